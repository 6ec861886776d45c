"""The checkpoint files of a ViT-Adapter: those of its ViT, and the adapter's own parts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from mmlape.checkpoint.key_maps import Weights
from mmlape.checkpoint.loading import LoadOptions
from mmlape.models.vit.checkpoint import ViTCheckpointAdapter
from mmlape.models.vit.layouts import is_adapter

ADAPTER_PARTS = ('level_embed', 'spm.', 'interactions.', 'up.', 'norm1.', 'norm2.', 'norm3.', 'norm4.')


class ViTAdapterCheckpointAdapter(ViTCheckpointAdapter):
    """Files of an adapter, the official ones among them; plain ViTs fill the ViT."""

    assumed_arguments: ClassVar[Mapping[str, Any]] = {**ViTCheckpointAdapter.assumed_arguments, 'n_points': 4}

    def owns(self, model_class: type, weights: Weights) -> bool:
        """Check for the adapter's own parts."""
        return is_adapter(weights)

    def notes(self, weights: Weights) -> list[str]:
        """Return what leaves no trace in a file, too."""
        trace = 'windows, interaction_indexes, vit_feature_source and n_points leave no trace in a file'
        return [*([] if weights.is_described else [trace]), *super().notes(weights)]

    def may_be_new(self, model: nn.Module, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor may keep its initial values: over a plain ViT the adapter's own parts may."""
        if name.startswith(ADAPTER_PARTS):
            return not is_adapter(weights)
        return super().may_be_new(model, name, weights, options)
