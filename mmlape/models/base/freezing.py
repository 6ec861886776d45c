"""Which parts of a backbone ``frozen_stages`` keeps from training."""

from torch import nn

from mmlape.errors import ConfigError
from mmlape.models.base.layer_stack import LayerStack


class FreezesStages(LayerStack):
    """Freezes the embeddings, the PE and the first layers.

    Attributes:
        frozen_stages: -1 trains everything, 0 freezes the embeddings, k the first k layers too.
        num_prefix: How many tokens before the patches run along.
    """

    frozen_stages: int = -1
    num_prefix: int = 0

    def frozen_modules(self) -> list[nn.Module]:
        """Return the modules that ``frozen_stages`` freezes."""
        if self.frozen_stages < 0:
            return []
        names = [*(name.rstrip('.') for name in self.embedding_names), 'pos_drop']
        embeddings = [getattr(self, name, None) for name in names]
        layers = self.all_layers[: self.frozen_stages]
        return [part for part in embeddings if isinstance(part, nn.Module)] + list(layers)

    def freeze(self) -> None:
        """Stop the training of what ``frozen_stages`` says.

        Raises:
            ConfigError: If there are not so many layers, or stages.
        """
        most = len(getattr(self, self.layers_name, self.all_layers))
        if self.frozen_stages not in range(-1, most + 1):
            raise ConfigError(f'frozen_stages={self.frozen_stages!r}: choose from -1, for nothing, to {most}, for all')
        if self.frozen_stages < 0:
            return
        for name in (*self.prefix_tokens[: self.num_prefix], *self.pe_names):
            getattr(self, name).requires_grad_(False)
        for module in self.frozen_modules():
            module.requires_grad_(False)

    def train(self, mode: bool = True):
        """Set the mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        for module in self.frozen_modules():
            module.eval()
        return self
