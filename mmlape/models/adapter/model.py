"""ViT-Adapter (arXiv 2205.08534) over our own ViT, with the parameter names and numerics of the public checkpoints."""

from collections.abc import Sequence

from mmlape.checkpoint.key_maps import Weights
from mmlape.checkpoint.loading import LoadOptions
from mmlape.errors import ConfigError
from mmlape.models.adapter.branch import AdapterMixin, infer_options
from mmlape.models.base.archs import name_models
from mmlape.models.vit.layouts import ADAPTER
from mmlape.models.vit.model import VisionTransformer
from mmlape.models.vit.options import ARCHS
from mmlape.registry import MODELS

ADAPTER_PARTS = ('level_embed', 'spm.', 'interactions.', 'up.', 'norm1.', 'norm2.', 'norm3.', 'norm4.')
FIXED = (('with_cls_token', False), ('num_registers', 0), ('final_norm', False), ('patch_size', 16))


@MODELS.register_module()
class ViTAdapter(AdapterMixin, VisionTransformer):
    """ViT-Adapter over the same ViT: any joining, position encoding and patch norm of ``VisionTransformer``.

    Images of any size of at least one patch work: sides are padded with zeros on the right and the bottom to a
    multiple of 32 inside, and each map is cropped back to ``ceil(side / stride)``.

    Args:
        arch: As in ``VisionTransformer``.
        img_size: As in ``VisionTransformer``.
        conv_inplane: Width of the convolutional stem.
        n_points: Places that deformable attention samples per head and level.
        deform_num_heads: Its heads.
        init_values: Initial gamma of the injectors.
        interaction_indexes: First and last layer of each interaction; None splits the layers into four.
        with_cffn: Whether extractors have a ConvFFN.
        cffn_ratio: Its width relative to ``embed_dims``.
        deform_ratio: Width of the deformable attention's values relative to ``embed_dims``.
        add_vit_feature: Whether the ViT's own features are added to the maps.
        use_extra_extractor: Whether two more extractors follow the last one.
        vit_feature_source: Which ViT features are added: 'last' (all four maps from the last layer, as in the public
            detection code) or 'interaction' (map k from the tokens after interaction k, as in the segmentation code).
        layer_scale_init_value: Initial LayerScale gammas.
        **kwargs: Of ``VisionTransformer``. There is no class token, but a PE table keeps the row that a checkpoint has
            for it; there are no registers and no final norm; ``patch_size`` is 16.

    Raises:
        ConfigError: For unknown names and for combinations that cannot work; the message has the valid choices.
    """

    model_names = name_models('{}-adapter', ARCHS)
    paper_name = 'DeiT'
    paper_adapter = 'ViT-Adapter'

    def __init__(
        self,
        arch: str | dict = 'deit-base',
        img_size: int | tuple[int, int] = 224,
        conv_inplane: int = 64,
        n_points: int = 4,
        deform_num_heads: int = 6,
        init_values: float = 0.0,
        interaction_indexes: Sequence[Sequence[int]] | None = None,
        with_cffn: bool = True,
        cffn_ratio: float = 0.25,
        deform_ratio: float = 1.0,
        add_vit_feature: bool = True,
        use_extra_extractor: bool = True,
        vit_feature_source: str = 'last',
        layer_scale_init_value: float = 1.0,
        **kwargs,
    ):
        for key, only in FIXED:
            if kwargs.setdefault(key, only) != only:
                raise ConfigError(f'ViTAdapter works with {key}={only!r} only, not {kwargs[key]!r}')
        kwargs.setdefault('out_type', 'featmap')
        super().__init__(arch, img_size, layer_scale_init_value=layer_scale_init_value, **kwargs)
        shared = {
            key: kwargs[key] for key in ('in_channels', 'drop_path_rate', 'norm_cfg', 'with_cp') if key in kwargs
        }
        self.build_adapter(
            conv_inplane,
            n_points,
            deform_num_heads,
            init_values,
            interaction_indexes,
            cffn_ratio if with_cffn else None,
            deform_ratio,
            use_extra_extractor,
            vit_feature_source if add_vit_feature else None,
            **{key: kwargs[key] for key in shared if key in kwargs},
        )
        self.strides = AdapterMixin.strides

    def table_tokens(self) -> dict[str, int]:
        """Return the class row of the pretraining, which no token of this model has."""
        return {'cls_token': 1} if self.with_prefix_pe else {}

    # checkpoints

    @classmethod
    def owns_checkpoint(cls, weights: Weights) -> bool:
        """Check for the adapter's own parts."""
        return weights.layout == ADAPTER.name

    @classmethod
    def describe_checkpoint(cls, weights: Weights, path: str) -> tuple[dict[str, str], dict, list[str]]:
        """Describe the ViT, and what differs from the adapter's defaults as far as it shows."""
        rows, config, notes = super().describe_checkpoint(weights, path)
        found = infer_options(weights.tensors, len(weights.tensors['patch_embed.proj.weight']), {})
        if 'cffn_ratio' in found and found['cffn_ratio'] is None:
            del found['cffn_ratio']
            found['with_cffn'] = False
        vit = ('type', 'arch', 'img_size', 'pe_type', 'pe_joining', 'patch_norm', 'norm_placement')
        plain = {key: value for key, value in config.items() if key in vit}
        notes = ['windows, interaction_indexes and vit_feature_source leave no trace in a file', *notes]
        return rows, dict(plain, **found, init_cfg=config['init_cfg']), notes

    def may_be_new(self, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor may keep its initial values: over a plain ViT the adapter's own parts may."""
        if name.startswith(ADAPTER_PARTS):
            return weights.layout != ADAPTER.name
        return super().may_be_new(name, weights, options)
