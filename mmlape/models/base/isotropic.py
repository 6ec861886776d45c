"""A backbone whose layers all have the same tokens: how such backbones are built, and steps of their forward.

x = [prefix; tokens(image)];  x <- layer_l(x, PE)
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.init import trunc_normal_

from mmlape.errors import ConfigError
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid, contiguous, to_maps
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.layers.patch_embed import PATCH_NORMS
from mmlape.models.layers.transformer_layer import BaseTransformerLayer, build_layers, full_precision, growing_rates
from mmlape.models.position import AttentionSlot, Position, Stream

if TYPE_CHECKING:
    from mmlape.checkpoint.exact_loading import Normalisation
    from mmlape.models.removal import PositionRemoval

TOKENS = ('cls_token', 'dist_token', 'reg_token')
"""The tokens that can stand before the patches of a ViT."""
OUT_TYPES = ('cls_token', 'raw', 'featmap', 'avg_featmap')


class IsotropicBackbone(BaseBackbone):
    """The parts and the outputs that such backbones share.

    A subclass calls ``set_outputs`` and ``add_prefix_tokens`` in its constructor, and defines
    ``embed``; see ``BaseBackbone`` for what else it must have.

    Attributes:
        arch: Widths, depth and heads.
        norm: The norm after the last layer, which may be None.
        removal: What takes position out of the patches that are returned, if it is asked for.
    """

    out_types: ClassVar[tuple[str, ...]] = OUT_TYPES
    prefix_tokens: tuple[str, ...] = ('cls_token',)
    without_prefix = "set with_cls_token=False and out_type='avg_featmap' or 'featmap'"
    arch: dict[str, Any]
    norm: nn.Module | None
    removal: 'PositionRemoval | None'

    # building

    def add_prefix_tokens(self, counts: dict[str, int]) -> None:
        """Add trainable tokens before the patches.

        PE tables get the rows that ``table_tokens`` says.
        """
        self.prefix_tokens, self.num_prefix = tuple(counts), sum(counts.values())
        for name, count in counts.items():
            setattr(self, name, nn.Parameter(trunc_normal_(torch.zeros(1, count, self.embed_dims), std=0.02)))
        self.pe_prefix = sum(self.table_tokens().values())

    def table_tokens(self) -> dict[str, int]:
        """Return the prefix tokens, which all have rows in the PE tables."""
        return {name: getattr(self, name).shape[1] for name in self.prefix_tokens}

    def build_blocks(
        self,
        layer: type[BaseTransformerLayer],
        attn: dict,
        drop_path_rate: float,
        windows: Sequence[int | None] | None = None,
        **options,
    ) -> nn.ModuleList:
        """Build the layers of ``arch``, with stochastic depth that grows linearly from 0.

        ``attn`` are arguments of their attention beside widths and encodings, ``windows`` the side
        of each layer's windows (None for global attention), ``options`` further arguments of all
        layers.
        """
        depth, dims = self.arch['num_layers'], self.embed_dims
        attn = dict(attn, embed_dims=dims, num_heads=self.arch['num_heads'])
        windows = windows or [None] * depth
        slots = [
            AttentionSlot(
                layer=layer,
                grid=(side, side) if side else self.grid,
                num_prefix=self.num_prefix,
                normed=self.position.normed,
                interpolate_mode=self.interpolate_mode,
                window=side is not None,
                num_layers=depth,
            )
            for layer, side in enumerate(windows)
        ]
        attns = [dict(attn, window_size=side, slot=slot) for side, slot in zip(windows, slots)]
        return build_layers(
            layer,
            MultiheadAttention,
            attns,
            self.position,
            growing_rates(drop_path_rate, depth),
            embed_dims=dims,
            feedforward_channels=self.arch['feedforward_channels'],
            **options,
        )

    def add_removal(
        self, options: Mapping[str, Any] | None, layers: Sequence[int], normalisation: 'Normalisation | None' = None
    ) -> None:
        """Add what takes position out of the patches of some layers, if it is asked for.

        Raises:
            ConfigError: If a parameter is trained, or for an unknown way or option.
        """
        if options is None:
            return
        trained = [name for name, parameter in self.named_parameters() if parameter.requires_grad]
        if trained:
            raise ConfigError(
                f'remove_position is for features that stay, and {trained[0]} is trained: freeze the backbone, by '
                "frozen=True of TimmViT, or frozen_stages=(all layers) with final_norm='every' or False"
            )
        from mmlape.checkpoint.exact_loading import IMAGENET
        from mmlape.models.removal import PositionRemoval, forget_removal

        mean, std = (getattr(normalisation or IMAGENET, name) for name in ('mean', 'std'))
        black = [-one / other for one, other in zip(mean, std)]
        patches = self.grid[0] * self.grid[1]
        self.removal = PositionRemoval(layers, self.embed_dims, patches, options, black)
        self.register_load_state_dict_pre_hook(forget_removal)
        self.recorded_arguments['remove_position'] = dict(options)

    # running

    @abstractmethod
    def embed(self, x: Tensor) -> tuple[Tensor, Any, Grid]:
        """Return the first layer's tokens (B, P + N, D) of images (B, C, H, W), its PE, and the patches' grid.

        A subclass may have another state of the forward than the PE, which its ``run_layers`` takes.
        """

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return one output per out index of images (B, C, H, W); the final norm applies to the last layer."""
        if self.removal is not None:
            self.removal.prepare(self, x)
        layers = sorted(set(self.out_indices))
        tokens, first, hw = self.layer_tokens(x, layers)
        outs = {number: self.output(of_layer, hw, number, first) for number, of_layer in zip(layers, tokens)}
        return tuple(outs[number] for number in self.out_indices)

    def layer_tokens(self, x: Tensor, layers: Sequence[int]) -> tuple[list[Tensor], Any, Grid]:
        """Return the tokens (B, P + N, D) behind some layers, in order, what the first layer got, and the grid."""
        x, first, hw = self.embed(x)
        found, state, start = [], first, 0
        for number in layers:
            x, state = self.run_layers(x, state, hw, start, number + 1)
            start = number + 1
            found.append(x)
        return found, first, hw

    def patch_tokens(self, x: Tensor, layers: Sequence[int]) -> tuple[list[Tensor], Grid]:
        """Return the patch tokens (B, N, D) of some layers, in order, with their position, and the grid."""
        tokens, first, hw = self.layer_tokens(x, layers)
        normed = (
            self.normed(of_layer, number + 1 == self.num_layers, first) for number, of_layer in zip(layers, tokens)
        )
        return [self.split_prefix(of_layer)[1] for of_layer in normed], hw

    def fit_removal(self, images: Iterable[Tensor], size: Grid) -> None:
        """Compute what ``remove_position`` takes out from batches of normalised images (B, C, *size)."""
        self.removal.fit((self.patch_tokens(x, self.removal.layers) for x in images), size)

    def add_position(self, x: Tensor, hw: Grid) -> tuple[Tensor, Stream]:
        """Put the prefix tokens before tokens (B, N, D), and let the PE enter.

        Returns:
            Tokens (B, P + N, D), with the PE if its joining adds it at the input, and the PE for
            the first layer.
        """
        prefix = [getattr(self, name).expand(x.shape[0], -1, -1) for name in self.prefix_tokens]
        x = torch.cat((*prefix, x), dim=1) if prefix else x
        pe = self.position_stream(hw, self.num_prefix)
        return full_precision(self.position.joining.enter(x, pe), self), pe

    def run_layers(self, x: Tensor, pe: Stream, hw: Grid, start: int, stop: int) -> tuple[Tensor, Stream]:
        """Run layers ``start`` to ``stop`` (exclusive) on tokens (B, N, D)."""
        for layer in self.all_layers[start:stop]:
            x, pe = layer(x, pe, hw)
        return x, pe

    def split_prefix(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Split tokens (B, P + N, D) into those of the prefix and those of the patches."""
        if not self.num_prefix:  # no slice, whose backward would copy
            return x[:, :0], x
        return x[:, : self.num_prefix], x[:, self.num_prefix :]

    def output(self, x: Tensor, hw: Grid, number: int, pe: Any) -> Tensor | tuple[Tensor, ...]:
        """Return the output of a layer with tokens (B, P + N, D).

        Through the final norm behind the last one, and without position if so asked. ``pe`` is what
        the first layer received beside the tokens.
        """
        x = self.normed(x, number + 1 == self.num_layers, pe)
        if self.removal is not None:
            prefix, patches = self.split_prefix(x)
            x = torch.cat((prefix, self.removal(patches, number)), dim=1)
        return self.format(x, hw)

    def normed(self, x: Tensor, last: bool, pe: Any) -> Tensor:
        """Return the tokens (B, P + N, D) of a layer that is returned.

        The final norm applies to the last layer.
        """
        if not last or self.norm is None:
            return x
        return self.position.joining.finish(x, pe, self.norm, self.pe_norm)

    def format(self, x: Tensor, hw: Grid) -> Tensor | tuple[Tensor, ...]:
        """Return tokens (B, P + N, D) of a layer in the form that ``out_type`` says."""
        if self.out_type == 'raw':
            return x
        if self.out_type == 'cls_token':
            return x[:, 0]
        _, patches = self.split_prefix(x)  # (B, N, D)
        if self.out_type == 'avg_featmap':
            return patches.mean(dim=1)
        return contiguous(to_maps(patches, hw))


def require_cls_token(out_type: str, with_cls_token: bool) -> None:
    """Check that there is a class token where it is the output.

    Raises:
        ConfigError: If there is none.
    """
    if out_type == 'cls_token' and not with_cls_token:
        raise ConfigError("out_type='cls_token' needs with_cls_token=True; or choose 'featmap' or 'avg_featmap'")


def build_norm_pre(patch_norm: str, dims: int, eps: float, position: Position) -> nn.Module | None:
    """Build the norm of tokens + PE that a Dual PatchNorm's ablation has.

    None for the other kinds.

    Raises:
        ConfigError: If the PE does not join the tokens before the first layer.
    """
    build = PATCH_NORMS[patch_norm][2]
    if build is None:
        return None
    if position.absolute is None or not position.joining.at_input:
        options = position.options()
        raise ConfigError(
            f"patch_norm={patch_norm!r} norms tokens + PE, so it needs pe_joining='default' "
            f'and an absolute pe_type, not pe_joining={options["pe_joining"]!r} with '
            f'pe_type={options["pe_type"]!r}'
        )
    return build(dims, eps=eps)
