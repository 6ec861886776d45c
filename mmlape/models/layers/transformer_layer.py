"""One transformer layer: attention and the feed-forward network, with the norms where ``norm_placement`` has them.

    x <- x + gamma1 * Attention(join(x, pe));  x <- x + gamma2 * FFN(LN(x))      (pre-norm, the default)

Parameter names are those of DeiT and timm; ``gamma1`` and ``gamma2`` are ViT-Adapter's LayerScale.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmlape.errors import ConfigError
from mmlape.models.grid import Grid
from mmlape.models.layers.norm_placement import PRE, GroupScale, NormPlacement
from mmlape.models.named_layers import build_activation, build_norm
from mmlape.models.position import AttentionInput, Joining, LayerPosition, Position, Stream, attaching, build_pe_norm


def full_precision(x: Tensor, module: nn.Module) -> Tensor:
    """Return values in the precision of a module's parameters under autocast, whatever a layer has made them.

    A PE that is added at the input keeps the residual stream of a float32 model in float32; without
    it all of the stream would be half. On the CPU a norm of half parameters takes no float32.
    """
    first = next(module.parameters(), None)
    if first is None or not torch.is_autocast_enabled(first.device.type):
        return x
    return x.to(first.dtype)


def add_branch(x: Tensor, out: Tensor, gamma: Tensor | None) -> Tensor:
    """Return ``x + gamma * out``, or ``x + out`` without LayerScale."""
    return x + out if gamma is None else torch.addcmul(x, gamma, out)


class DropPath(nn.Module):
    """Stochastic depth (arXiv 1603.09382): set images of a batch to zero with a probability in training.

    The others are divided by that of staying.
    """

    def __init__(self, drop_prob: float):
        super().__init__()
        if not 0 <= drop_prob < 1:
            raise ConfigError(f'drop_path_rate: {drop_prob} is no share of at least 0 and below 1')
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        """Drop images of (B, ...)."""
        if not self.training or not self.drop_prob:
            return x
        keep = 1 - self.drop_prob
        noise = torch.rand((x.shape[0], *(1,) * (x.ndim - 1)), dtype=x.dtype, device=x.device)
        return x / keep * (keep + noise).floor()


class FFN(nn.Module):
    """Two linear maps with an activation between them, by default the exact GELU.

    Attributes:
        norm: Norms the hidden units after the activation. It is the identity unless a layer sets
            another.
    """

    def __init__(
        self, embed_dims: int, feedforward_channels: int, drop_rate: float = 0.0, act_cfg: dict | None = None
    ):
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, feedforward_channels)
        self.act = build_activation(act_cfg or dict(type='GELU'))
        self.norm: nn.Module = nn.Identity()
        self.fc2 = nn.Linear(feedforward_channels, embed_dims)
        self.drop = nn.Dropout(drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, D) to (B, N, D)."""
        return self.drop(self.fc2(self.norm(self.drop(self.act(self.fc1(x))))))


class SwiGLU(nn.Module):
    """A gated feed-forward network, w3(silu(w1 x) * w2 x), with the names of DINOv2's (arXiv 2002.05202, Eq. 5).

    Attributes:
        norm: Norms the hidden units, as in ``FFN``.

    Raises:
        ConfigError: For another activation.
    """

    def __init__(
        self, embed_dims: int, feedforward_channels: int, drop_rate: float = 0.0, act_cfg: dict | None = None
    ):
        super().__init__()
        if act_cfg is not None:
            raise ConfigError(f"ffn_type='swiglu' has the activation SiLU, and takes no act_cfg={act_cfg!r}")
        self.w1 = nn.Linear(embed_dims, feedforward_channels)
        self.w2 = nn.Linear(embed_dims, feedforward_channels)
        self.norm: nn.Module = nn.Identity()
        self.w3 = nn.Linear(feedforward_channels, embed_dims)
        self.drop = nn.Dropout(drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, D) to (B, N, D)."""
        return self.drop(self.w3(self.norm(self.drop(F.silu(self.w1(x)) * self.w2(x)))))


FFN_TYPES: dict[str, type[FFN | SwiGLU]] = {'mlp': FFN, 'swiglu': SwiGLU}


class BaseTransformerLayer(nn.Module):
    """What every layer does with the PE: its joining decides what attention sees of it.

    A subclass adds the other parts and defines ``run``.

    Args:
        embed_dims: Width D of the tokens.
        attn: The attention module.
        joining: The joining method.
        pe_norm: A key of ``PE_NORMS`` where the layer norms the PE.
        norm_cfg: Of the layer's norms; LayerNorm with eps 1e-6 by default.
        with_cp: Recompute activations in the backward pass to save memory.
        drop_path_rate: Stochastic depth of the branches.

    Attributes:
        norm_name: The name of the norm before attention, beside which ``pe_norm`` stands.
        attn_name: The name of the attention module.
    """

    norm_name: ClassVar[str] = 'norm1'
    attn_name: ClassVar[str] = 'attn'

    def __init__(
        self,
        embed_dims: int,
        attn: nn.Module,
        joining: Joining,
        pe_norm: str | None = None,
        norm_cfg: dict | None = None,
        with_cp: bool = False,
        drop_path_rate: float = 0.0,
    ):
        super().__init__()
        self.norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        self.embed_dims, self.joining, self.with_cp = embed_dims, joining, with_cp
        self.encodings: tuple[LayerPosition, ...] = ()
        setattr(self, self.norm_name, build_norm(self.norm_cfg, embed_dims))
        self.pe_norm = build_pe_norm(pe_norm, embed_dims, self.norm_cfg) if pe_norm else None
        setattr(self, self.attn_name, attn)
        self.drop_path = DropPath(drop_path_rate) if drop_path_rate else nn.Identity()

    def add_encoding(self, encoding: LayerPosition) -> None:
        """Let a position encoding follow this layer."""
        with attaching(self, encoding):
            encoding.attach(self, self.embed_dims)
        self.encodings += (encoding,)

    @property
    def attention(self) -> nn.Module:
        """The attention module."""
        return getattr(self, self.attn_name)

    def forward(self, x: Tensor, pe: Stream, hw: Grid) -> tuple[Tensor, Stream]:
        """Run the layer on tokens (B, N, D), with the PE as the previous layer passed it on, and the patches' grid.

        Returns:
            Tokens (B, N, D), and the PE for the next layer.
        """
        if self.with_cp and torch.is_grad_enabled():
            x, pe = checkpoint(self.run, x, pe, hw, use_reentrant=False, **self.checkpoint_options())
        else:
            x, pe = self.run(x, pe, hw)
        for encoding in self.encodings:
            x = encoding.apply(self, x, hw)
        return x, pe

    def checkpoint_options(self) -> dict:
        """Return further arguments of ``torch.utils.checkpoint.checkpoint`` for ``with_cp``."""
        return {}

    @abstractmethod
    def run(self, x: Tensor, pe: Stream, hw: Grid) -> tuple[Tensor, Stream]:
        """Run the layer, keeping all activations."""

    def join(self, x: Tensor, pe: Stream) -> tuple[Tensor, Tensor | AttentionInput, Stream]:
        """Join PE and tokens; see ``Joining.join``."""
        return self.joining.join(x, pe, getattr(self, self.norm_name), self.pe_norm)

    def join_position(self, x: Tensor, pe: Stream) -> tuple[Tensor, Tensor, Stream]:
        """Return the PE in the stream, in attention's queries, and for the next layer, beside tokens that are zero.

        Where tokens and PE have norms of their own the tokens' norm is left out, since its bias is
        no part of the PE.
        """
        norm = getattr(self, self.norm_name) if self.joining.shares_norm else torch.zeros_like
        x, seen, pe = self.joining.join(x, pe, norm, self.pe_norm)
        return x, seen.q if isinstance(seen, AttentionInput) else seen, pe


class TransformerEncoderLayer(BaseTransformerLayer):
    """The layer of DeiT; arguments that are not listed are those of ``BaseTransformerLayer``.

    Args:
        feedforward_channels: Hidden width of the FFN.
        drop_rate: Dropout of the FFN.
        layer_scale_init_value: Initial LayerScale gammas; 0 means no LayerScale.
        act_cfg: Activation of the FFN; None for the exact GELU.
        ffn_type: A key of ``FFN_TYPES``.
        norm_placement: Where the norms are. Those before the branches are ``norm1`` and ``norm2``,
            those of their outputs ``branch_norm1`` and ``branch_norm2``, those of the sums
            ``sum_norm1`` and ``sum_norm2``, those inside ``attn.norm`` and ``mlp.norm``. Without
            ``norm1``, the joining has the tokens as they are.
    """

    def __init__(
        self,
        embed_dims: int,
        attn: nn.Module,
        joining: Joining,
        feedforward_channels: int,
        drop_rate: float = 0.0,
        layer_scale_init_value: float = 0.0,
        act_cfg: dict | None = None,
        norm_placement: NormPlacement = PRE,
        ffn_type: str = 'mlp',
        **kwargs,
    ):
        super().__init__(embed_dims, attn, joining, **kwargs)
        first, second = norm_placement.attn, norm_placement.ffn
        self.norm1 = self.norm1 if first.before else nn.Identity()
        self.branch_norm1 = self._norm(first.branch, embed_dims)
        self.sum_norm1 = self._norm(first.sum, embed_dims)
        self.norm2 = self._norm(second.before, embed_dims)
        self.branch_norm2 = self._norm(second.branch, embed_dims)
        self.sum_norm2 = self._norm(second.sum, embed_dims)
        self.mlp = FFN_TYPES[ffn_type](embed_dims, feedforward_channels, drop_rate, act_cfg)
        scale = float(layer_scale_init_value)
        self.gamma1 = nn.Parameter(torch.full((embed_dims,), scale)) if scale else None
        self.gamma2 = nn.Parameter(torch.full((embed_dims,), scale)) if scale else None
        if first.inside:
            self.attn.norm = self._norm(True, embed_dims)
        if norm_placement.head_scale:
            self.attn.head_scale = GroupScale(self.attn.num_heads)
        self.mlp.norm = self._norm(second.inside, feedforward_channels)
        self.residual_scale = GroupScale(embed_dims) if norm_placement.residual_scale else nn.Identity()

    def _norm(self, wanted: bool, dims: int) -> nn.Module:
        return build_norm(self.norm_cfg, dims) if wanted else nn.Identity()

    def run(self, x: Tensor, pe: Stream, hw: Grid) -> tuple[Tensor, Stream]:
        """Run the layer, keeping all activations."""
        x, attn_input, pe = self.join(x, pe)
        out = self.branch_norm1(self.attn(attn_input, hw))
        x = self.sum_norm1(add_branch(x, self.drop_path(out), self.gamma1))
        out = self.branch_norm2(self.mlp(self.norm2(x)))
        x = self.sum_norm2(add_branch(self.residual_scale(x), self.drop_path(out), self.gamma2))
        return x, pe

    def join_position(self, x: Tensor, pe: Stream) -> tuple[Tensor, Tensor, Stream]:
        """Return what ``BaseTransformerLayer`` does.

        Norms of the sums also norm a PE in the stream.
        """
        x, seen, pe = super().join_position(x, pe)
        return self.sum_norm2(self.residual_scale(self.sum_norm1(x))), seen, pe


def growing_rates(drop_path_rate: float, num_layers: int) -> list[float]:
    """Return the stochastic depth of each layer, which grows linearly from 0 to that of the last one."""
    return [drop_path_rate * i / max(1, num_layers - 1) for i in range(num_layers)]


def build_layers(
    layer: Callable[..., nn.Module],
    attention: Callable[..., nn.Module],
    attn_options: Sequence[dict],
    position: Position,
    drop_path_rates: Sequence[float],
    **options,
) -> nn.ModuleList:
    """Build the layers of a model, or of one of its stages, each with its attention.

    ``attn_options`` are the arguments of each layer's attention but for ``encodings``, ``slot``
    among them; ``options`` are those of all layers.
    """
    # seeded initial values depend on the order: each layer's attention, then the rest of that layer
    return nn.ModuleList(
        layer(
            attn=attention(encodings=position.build_inside(), **of_attention),
            joining=position.joining,
            pe_norm=position.pe_norm_of(of_attention['slot'].layer),
            drop_path_rate=rate,
            **options,
        )
        for of_attention, rate in zip(attn_options, drop_path_rates)
    )
