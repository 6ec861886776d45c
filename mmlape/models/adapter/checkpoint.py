"""The checkpoint files of a ViT-Adapter: those of its ViT, and the adapter's own parts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from mmlape.checkpoint.key_maps import Weights
from mmlape.checkpoint.loading import LoadOptions
from mmlape.models.base.tensor_names import Description
from mmlape.models.grid import Grid
from mmlape.models.vit.checkpoint import ViTCheckpointAdapter
from mmlape.models.vit.layouts import NAMES, is_adapter, prefix_tokens, table_tokens

ADAPTER_PARTS = ('level_embed', 'spm.', 'interactions.', 'up.', 'norm1.', 'norm2.', 'norm3.', 'norm4.')
OF_THE_VIT = ('arch', 'img_size', 'pe_type', 'pe_joining', 'patch_norm', 'norm_placement', 'qkv_bias', 'norm_cfg')
OF_THE_VIT += ('window_padding', 'patch_size', 'ffn_type', 'in_channels', 'pe_norm')
POINTS = 4
"""What ``n_points`` is taken to be where a file does not record it."""
POINTS_ASSUMED = f'n_points leaves no trace in a file: {POINTS} are assumed, and deform_num_heads follows from that'


def infer_options(weights: Weights, dims: int, defaults: dict) -> dict:
    """Return the arguments of ``AdapterMixin.build_adapter`` that a file tells, where they are not the defaults.

    The ViT's tokens have ``dims`` channels; ``defaults`` are those that are not ``build_adapter``'s.
    """
    tensors, first = weights.tensors, 'interactions.0.extractor'
    samples = len(tensors[f'{first}.attn.attention_weights.weight'])  # heads times points
    hidden = tensors.get(f'{first}.ffn.fc1.weight')
    options = dict(
        conv_inplane=len(tensors['spm.stem.0.weight']),
        deform_num_heads=samples // weights.recorded.get('n_points', POINTS),
        deform_ratio=len(tensors[f'{first}.attn.value_proj.weight']) / dims,
        cffn_ratio=None if hidden is None else len(hidden) / dims,
        use_extra_extractor=weights.has(r'interactions\.\d+\.extra_extractors\.'),
    )
    usual = dict(conv_inplane=64, deform_num_heads=6, deform_ratio=1.0, cffn_ratio=0.25, use_extra_extractor=True)
    defaults = usual | defaults
    return {key: value for key, value in options.items() if defaults[key] != value}


class ViTAdapterCheckpointAdapter(ViTCheckpointAdapter):
    """Files of an adapter, the official ones among them; plain ViTs fill the ViT."""

    assumed_arguments: ClassVar[Mapping[str, Any]] = {**ViTCheckpointAdapter.assumed_arguments, 'n_points': POINTS}

    def owns(self, kind: type, weights: Weights) -> bool:
        """Check for the adapter's own parts."""
        return is_adapter(weights)

    def infer(self, kind: type, weights: Weights) -> Description:
        """Infer the ViT, and what differs from the adapter's defaults as far as it shows."""
        rows, config, notes = super().infer(kind, weights)
        options = infer_options(weights, len(weights.tensors['patch_embed.proj.weight']), {})
        if 'cffn_ratio' in options and options['cffn_ratio'] is None:
            del options['cffn_ratio']
            options['with_cffn'] = False
        config = {key: value for key, value in config.items() if key in OF_THE_VIT} | options
        config |= {'with_cls_token': True} if prefix_tokens(weights) else {}
        config |= {'with_prefix_pe': False} if NAMES.tables(weights) and not table_tokens(weights) else {}
        trace = 'windows, interaction_indexes and vit_feature_source leave no trace in a file'
        notes = [trace, *([] if 'n_points' in weights.recorded else [POINTS_ASSUMED]), *notes]
        return Description(rows, config, notes)

    def view(self, kind: type, weights: Weights, grid: Grid | None, path: str) -> dict:
        """Return a plain ViT; the adapter's own parts show no position."""
        return ViTCheckpointAdapter().view(kind, weights, grid, path) | {'type': 'mmlape.VisionTransformer'}

    def may_be_new(self, model: nn.Module, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor may keep its initial values: over a plain ViT the adapter's own parts may."""
        if name.startswith(ADAPTER_PARTS):
            return not is_adapter(weights)
        return super().may_be_new(model, name, weights, options)
