"""Image relative position encoding on queries, keys and values (iRPE, ICCV 2021), with its public parameter names.

With b(i, j) the bucket of the offset of query i from key j, and all entries starting at zero,

    bias          logits(i, j) += r[b(i, j)]
    contextual    logits(i, j) += (q_i . r^K[b(i, j)] + k_j . r^Q[b(j, i)]) / sqrt(d)
                  z_i = sum_j a_ij (v_j + r^V[b(i, j)])

One product of the queries (or keys) with a table and a gather replace N x N vectors; for values the weights are summed
by bucket first. Buckets say which offsets share an entry. With x an offset or a distance, and [.] rounding to the
nearest integer,

    g(x) = [x]                                                              |x| <= alpha
         = sign(x) min(beta, [alpha + ln(|x|/alpha) / ln(gamma/alpha) (beta - alpha)])    else
    h(x) = max(-beta, min(beta, [x]))                                       earlier methods

The public code (microsoft/Cream) truncates beta to an integer and reads two of the mappings otherwise than the paper,
which also has r^Q[b(i, j)] and divides biases by sqrt(d): ``reading='paper'``.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.errors import ConfigError, require_choice
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.grid import Grid, cached_tensor
from mmlape.models.position.base import AttentionPosition, AttentionSlot

METHODS = ('euclidean', 'quantization', 'cross', 'product')
INDEXES = ('piecewise', 'clip')
READINGS = ('code', 'paper')


@dataclass(frozen=True)
class Buckets:
    """A mapping of offsets (rows, columns) to buckets."""

    # 'euclidean' and 'quantization' map distances, 'product' pairs of row and column, 'cross' rows and columns apart,
    # to a table each
    method: str = 'product'
    # alpha, beta, gamma: of g; ranges are -beta to beta
    alpha: float = 1.9
    beta: float = 3.8
    gamma: float = 15.2
    index: str = 'piecewise'  # 'piecewise' (g) or 'clip' (h)
    # 'code' rounds a distance before g and takes the squared distance for its rank, as the public code does; 'paper'
    # does as the equations say, with the rank among the distances of a grid without end
    reading: str = 'code'

    def __post_init__(self):
        for key, choices in (('method', METHODS), ('index', INDEXES), ('reading', READINGS)):
            require_choice(key, getattr(self, key), choices, 'irpe: ')
        if not 0 < self.alpha < self.gamma or not self.alpha <= self.beta or self.beta < 1:
            raise ConfigError(
                f'irpe: alpha={self.alpha:g}, beta={self.beta:g} and gamma={self.gamma:g} must be '
                'positive, alpha below gamma, beta at least alpha, and beta at least 1'
            )

    @property
    def side(self) -> int:
        """How many values an index can have: from -beta to beta."""
        return 2 * int(self.beta) + 1

    @property
    def count(self) -> int:
        """How many buckets a table has, without that of prefix tokens."""
        return self.side**2 if self.method == 'product' else self.side

    @property
    def tables(self) -> int:
        """How many tables there are: two for 'cross', rows first."""
        return 2 if self.method == 'cross' else 1

    def of_offsets(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, ...]:
        """Return the bucket of every offset of a query from a key, in rows and in columns, one tensor a table."""
        middle, index = int(self.beta), self._index
        if self.method == 'cross':
            return index(rows) + middle, index(columns) + middle
        if self.method == 'product':
            return ((index(rows) + middle) * self.side + index(columns) + middle,)
        squared = rows.square() + columns.square()
        if self.method == 'euclidean':
            distance = squared.double().sqrt()
            return (index(distance.round() if self.reading == 'code' else distance) + middle,)
        return (index(squared if self.reading == 'code' else _rank(squared)) + middle,)

    def of_grid(self, grid: Grid, num_prefix: int, device: torch.device | None = None) -> tuple[Tensor, ...]:
        """Return the bucket of every pair of tokens of a grid, (P + N, P + N), one tensor a table.

        Pairs with one of the P prefix tokens have a bucket of their own, the last one.
        """
        return _of_grid(self, tuple(grid), num_prefix, device)

    def _index(self, x: Tensor) -> Tensor:
        """Compute g or h, truncated to an integer."""
        x, size = x.double(), x.double().abs()
        if self.index == 'clip':
            return x.round().clamp(-int(self.beta), int(self.beta)).long()
        growth = (size.clamp(min=self.alpha) / self.alpha).log() / math.log(self.gamma / self.alpha)
        far = (self.alpha + growth * (self.beta - self.alpha)).round().clamp(max=self.beta)
        return (x.sign() * torch.where(size <= self.alpha, size.round(), far)).long()


def _rank(squared: Tensor) -> Tensor:
    """Return the place of squared distances among all sums of two squares, from 0."""
    most = math.isqrt(int(squared.max())) + 1
    squares = torch.arange(most + 1, device=squared.device).square()
    sums = (squares[:, None] + squares).unique()
    return torch.searchsorted(sums[sums <= squared.max()], squared.contiguous())


@cached_tensor(maxsize=4)
def _of_grid(buckets: Buckets, grid: Grid, num_prefix: int, device: torch.device | None) -> tuple[Tensor, ...]:
    cells = torch.cartesian_prod(*(torch.arange(side, device=device) for side in grid))  # (N, 2)
    rows, columns = (cells[:, None] - cells[None]).unbind(-1)
    tables = buckets.of_offsets(rows, columns)
    return tuple(F.pad(ids, (num_prefix, 0, num_prefix, 0), value=buckets.count) for ids in tables)


MODES = ('bias', 'contextual')
LEAVES = {'bias': 'lookup_table_bias', 'contextual': 'lookup_table_weight'}
CROSS = ('rp_rows', 'rp_cols')


def _ratios(beta: int) -> str:
    """Return which ratios have this largest index."""
    return f'{beta / 2:g} <= ratio < {(beta + 1) / 2:g}'


def gathered(x: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Return x_i . table[ids[i, j]], (B, heads, N, N), of x (B, heads, N, d) and a table (d, T) or (heads, d, T)."""
    scores = x @ table
    return scores.gather(-1, ids.expand(*scores.shape[:2], -1, -1))


@POSITION_ENCODINGS.register_module('irpe')
class ImageRPE(AttentionPosition):
    """iRPE; buckets depend on offsets only, so its tables serve any grid and any window.

    Args:
        method: 'product', 'cross', 'euclidean' or 'quantization'; see ``Buckets``.
        mode: 'contextual' or 'bias'.
        on: Any of 'q', 'k' and 'v', such as 'qkv'; biases act on 'q' and 'k' only.
        share_heads: Whether all heads have one table.
        ratio: alpha; beta and gamma are twice and eight times as much. Or (alpha, beta, gamma).
        index: 'piecewise', or 'clip' of the earlier methods.
        reading: 'code' as the public code does it, or 'paper' where the equations differ.

    Raises:
        ConfigError: For unknown names and combinations without a meaning.
    """

    paper_name = 'iRPE'
    windows = True

    def __init__(
        self,
        method: str = 'product',
        mode: str = 'contextual',
        on: str = 'k',
        share_heads: bool = True,
        ratio: float | tuple[float, float, float] = 1.9,
        index: str = 'piecewise',
        reading: str = 'code',
    ):
        steps = (ratio, 2 * ratio, 8 * ratio) if isinstance(ratio, int | float) else tuple(ratio)
        alpha, beta, gamma = steps
        self.buckets = Buckets(method, alpha, beta, gamma, index, reading)
        require_choice('mode', mode, MODES, 'irpe: ')
        if not on or len(set(on)) < len(on) or set(on) - set('qkv'):
            raise ConfigError(f"irpe: on={on!r} must name one or more of q, k and v once, such as 'k' or 'qkv'")
        if mode == 'bias' and 'v' in on:
            raise ConfigError(f"irpe: mode='bias' has no form on values; leave v out of on={on!r}")
        self.mode, self.on, self.share_heads = mode, on, share_heads
        self.reads_weights = 'v' in on

    # parameters

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Register the tables ``rpe_q``, ``rpe_k`` and ``rpe_v``, with an entry more where there are prefix tokens."""
        super().attach(attn, slot)
        heads, count = (1 if self.share_heads else attn.num_heads, self.buckets.count + bool(slot.num_prefix))
        shapes = {'q': (heads, attn.head_dims, count), 'v': (heads, count, attn.head_dims)}
        for side in self.on:
            shape = (heads, count) if self.mode == 'bias' else shapes.get(side, shapes['q'])
            tables = [nn.Module() for _ in range(self.buckets.tables)]
            for table in tables:
                table.register_parameter(LEAVES[self.mode], nn.Parameter(torch.zeros(shape)))
            setattr(attn, f'rpe_{side}', tables[0] if len(tables) == 1 else nn.ModuleDict(zip(CROSS, tables)))

    def _tables(self, attn: nn.Module, side: str) -> list[Tensor]:
        return list(getattr(attn, f'rpe_{side}').parameters())

    def _ids(self, grid: Grid, device: torch.device) -> tuple[Tensor, ...]:
        return self.buckets.of_grid(grid, self.slot.num_prefix, device)

    # attention

    def logits(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid) -> Tensor | None:
        """Return the terms of keys and queries, (B or 1, heads or 1, N, N)."""
        ids, scale = self._ids(grid, q.device), attn.head_dims**-0.5
        terms = []
        for side, x in (('k', q), ('q', k)):
            for table, places in zip(self._tables(attn, side), ids) if side in self.on else ():
                as_equation = side == 'q' and self.buckets.reading == 'paper'
                term = self._term(table, x, places.mT if as_equation else places, scale)
                terms.append(term.mT if side == 'q' else term)
        return sum(terms[1:], terms[0]).to(q.dtype) if terms else None

    def _term(self, table: Tensor, x: Tensor, ids: Tensor, scale: float) -> Tensor:
        """Return the term of each row of ``x`` for each column of ``ids``."""
        if self.mode == 'bias':
            term = table[:, ids][None]  # (1, heads or 1, N, N)
            return term * scale if self.buckets.reading == 'paper' else term
        return gathered(x * scale, table, ids)

    def values(self, attn: nn.Module, weights: Tensor, grid: Grid) -> Tensor | None:
        """Return the term of the values, (B, heads, N, d), from attention's weights (B, heads, N, N)."""
        if 'v' not in self.on:
            return None
        out = 0
        for table, ids in zip(self._tables(attn, 'v'), self._ids(grid, weights.device)):
            sums = weights.new_zeros(*weights.shape[:-1], table.shape[1])
            out = out + sums.scatter_add(-1, ids.expand_as(weights), weights) @ table
        return out

    # checkpoints

    def fit(self, stored: dict[str, Tensor]) -> dict[str, Tensor]:
        """Drop the entry of prefix tokens where this model has none."""
        count, fitted = self.buckets.count, dict(stored)
        for name, table in stored.items():
            axis = 1 if name.startswith('rpe_v.') else -1
            if name.startswith('rpe_') and not self.slot.num_prefix and table.shape[axis] == count + 1:
                fitted[name] = table.narrow(axis, 0, count)
        return fitted

    def ambiguous_options(self, attn: dict[str, Tensor], num_prefix: int) -> list[str]:
        """Return the methods with their ratios, and the earlier kinds, that leave such tables."""
        stored_as, steps = self._stored(attn, num_prefix)
        texts = []
        for method, beta in steps.items():
            same = stored_as['mode'] == 'contextual' and 'q' not in stored_as['on'] and method in ('product', 'cross')
            reading = '' if same else ', reading code/paper'
            texts.append(f'irpe with method={method!r}, {_ratios(beta)}, index piecewise/clip{reading}')
        for name, kind in POSITION_ENCODINGS.module_dict.items():
            clipped = dict(mode='contextual', on=getattr(kind, 'sides', None), share_heads=True)
            if stored_as == clipped and 'product' in steps:
                texts.append(f'{name} with {_ratios(steps["product"])}')
        return texts

    def _stored(self, attn: dict[str, Tensor], num_prefix: int) -> tuple[dict, dict[str, int]]:
        """Return the arguments that names and shapes tell, and for each method that fits the largest index."""
        tables = {name: table for name, table in attn.items() if name.startswith('rpe_')}
        name, table = next(iter(tables.items()))
        count = table.shape[1 if name.startswith('rpe_v.') else -1] - bool(num_prefix)
        stored_as = dict(
            mode='bias' if name.endswith(LEAVES['bias']) else 'contextual',
            on=''.join(side for side in 'qkv' if any(name.startswith(f'rpe_{side}.') for name in tables)),
            share_heads=len(table) == 1,
        )
        if any(part in name for part in CROSS):
            return stored_as, dict(cross=count // 2)
        side = math.isqrt(count)
        product = dict(product=side // 2) if side * side == count and side % 2 else {}
        # the paper has a count for each of them, the most usual of which is Euclidean's
        distances = ('quantization', 'euclidean') if count == 133 else ('euclidean', 'quantization')
        return stored_as, product | dict.fromkeys(distances, count // 2)

    def drawn(self, attn: nn.Module, grid: Grid) -> Tensor | None:
        """Return the mean bias over heads; a contextual term depends on the image, so nothing is drawn."""
        if self.mode != 'bias':
            return None
        prefix = self.slot.num_prefix
        tokens = self._tables(attn, self.on[0])[0].new_zeros(1, attn.num_heads, prefix + grid[0] * grid[1], 1)
        return self.logits(attn, tokens, tokens, grid)[0].mean(0)[prefix:, prefix:]
