"""ViT-Adapter as a backbone of transformers 5, for Mask2Former, MaskFormer and UperNet.

    vit = dict(model_name='vit_small_patch16_dinov3', frozen=True)
    config = PyramidConfig('TimmViTAdapter', dict(vit=vit, mode='read-only'))
    Mask2FormerForUniversalSegmentation(Mask2FormerConfig(backbone_config=config))

Importing this module makes the classes known to ``AutoConfig`` and ``AutoBackbone``.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import mmlape.kinds  # noqa: F401  (it tells the gate of our position encodings)
from mmlape.checkpoint.gate import admit
from mmlape.errors import StackError
from mmlape.integrations import STRIDES, build_pyramid, load_named
from mmlape.models.named_layers import ACTIVATIONS, NORMS

try:
    from transformers import AutoBackbone, AutoConfig, PreTrainedConfig, PreTrainedModel
    from transformers.backbone_utils import BackboneConfigMixin, BackboneMixin
    from transformers.initialization import copy_
    from transformers.modeling_outputs import BackboneOutput
except ImportError as error:
    raise StackError(
        f"mmlape.integrations.transformers needs transformers 5 ({error}): pip install 'mmlape[transformers]'"
    ) from error

__all__ = ['PyramidBackbone', 'PyramidConfig']


class PyramidConfig(BackboneConfigMixin, PreTrainedConfig):
    """Configuration of a ``PyramidBackbone``.

    Args:
        name: The class of the backbone, ``ViTAdapter``, ``TimmViTAdapter`` or another of four maps.
        options: Its arguments, as JSON has them. Weights that they name (``pretrained``,
            ``checkpoint``, ``init_cfg``) are loaded when a model is built from the configuration;
            ``from_pretrained`` has its own file, and a configuration from a file names none.
        **kwargs: Of transformers' configurations; ``out_features`` chooses from 'stage1' (stride 4)
            to 'stage4'.
    """

    model_type = 'mmlape_pyramid'

    def __init__(
        self,
        name: str = 'ViTAdapter',
        options: Mapping[str, Any] | None = None,
        out_features: list[str] | None = None,
        out_indices: list[int] | None = None,
        **kwargs,
    ):
        self.name, self.options = name, dict(options or {})
        self.stage_names = [f'stage{number}' for number in range(1, len(STRIDES) + 1)]
        everything = None if out_indices is not None else out_features or self.stage_names
        self.set_output_features_output_indices(everything or out_features, out_indices)
        super().__init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs) -> 'PyramidConfig':
        """Read a configuration, as of a file, whose options name no weights and pass the gate."""
        where = 'the options of a PyramidConfig'
        options = admit(config_dict.get('options') or {}, where, known=(*NORMS, *ACTIVATIONS))
        return super().from_dict({**config_dict, 'options': options}, **kwargs)


class PyramidBackbone(BackboneMixin, PreTrainedModel):
    """A backbone of mmlape, ``backbone``, whose maps are transformers' ``feature_maps``.

    Raises:
        ConfigError: For a name or options that cannot work.
        CheckpointError: If the weights that the options name do not fit.
    """

    config_class = PyramidConfig
    base_model_prefix = 'backbone'
    main_input_name = 'pixel_values'
    has_attentions = False

    def __init__(self, config: PyramidConfig):
        super().__init__(config)
        self.backbone = self._build()
        self.num_features = [self.backbone.embed_dims] * len(STRIDES)
        # `from_pretrained` builds on the meta device, and fills in what its file has
        self.built_empty = any(parameter.is_meta for parameter in self.backbone.parameters())
        self.untrained = [name for name, value in self.backbone.named_parameters() if not value.requires_grad]
        if not self.built_empty:
            load_named(self.backbone)
        self.post_init()

    def _build(self) -> Any:
        return build_pyramid(self.config.name, self.config.options, 'PyramidConfig: ')

    def _initialize_weights(self, module: nn.Module, is_custom_code: bool = False) -> None:
        """Ask ``_init_weights``: transformers skips other packages' classes that have no tensors of their own."""
        super()._initialize_weights(module)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Give what a file lacks, such as rotary angles, its initial values, and freeze what was frozen.

        Initial values of a model that was not built empty are the constructor's.
        """
        if module is not self or not self.built_empty:
            return
        for name in self.untrained:
            self.backbone.get_parameter(name).requires_grad_(False)
        tensors = {**dict(self.backbone.named_parameters()), **dict(self.backbone.named_buffers())}
        if all(getattr(value, '_is_hf_initialized', False) for value in tensors.values()):
            return
        with torch.device('cpu'):
            fresh = self._build()
        for name, value in (*fresh.named_parameters(), *fresh.named_buffers()):
            copy_(tensors[name], value)

    def forward(
        self,
        pixel_values: Tensor,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        **kwargs,
    ) -> BackboneOutput | tuple[tuple[Tensor, ...]]:
        """Return the maps of images (B, C, H, W) that ``out_features`` names, at the strides 4, 8, 16 and 32."""
        # the last parameters: those of a ViT with frozen_dtype have a precision of their own
        dtype = [*self.backbone.parameters()][-1].dtype
        maps = dict(zip(self.stage_names, self.backbone(pixel_values.to(dtype))))
        chosen = tuple(maps[name] for name in self.out_features)
        if return_dict is False:
            return (chosen,)
        return BackboneOutput(
            feature_maps=chosen, hidden_states=tuple(maps.values()) if output_hidden_states else None
        )


AutoConfig.register(PyramidConfig.model_type, PyramidConfig, exist_ok=True)
AutoBackbone.register(PyramidConfig, PyramidBackbone, exist_ok=True)
