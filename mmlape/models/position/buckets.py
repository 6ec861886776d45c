"""Buckets of relative positions (iRPE, ICCV 2021): which offsets of two patches share an entry of a table.

With x an offset or a distance and [.] rounding to the nearest integer,

    g(x) = [x]                                                              |x| <= alpha
         = sign(x) min(beta, [alpha + ln(|x|/alpha) / ln(gamma/alpha) (beta - alpha)])    else
    h(x) = max(-beta, min(beta, [x]))                                       earlier methods

The public code (microsoft/Cream) truncates beta to an integer and reads two of the mappings otherwise than the paper.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlape.errors import ConfigError
from mmlape.models.cached_tensors import cached_tensor
from mmlape.models.grid import Grid

METHODS = ('euclidean', 'quantization', 'cross', 'product')
INDEXES = ('piecewise', 'clip')
READINGS = ('code', 'paper')


@dataclass(frozen=True)
class Buckets:
    """A mapping of offsets (rows, columns) to buckets.

    Attributes:
        method: 'euclidean' and 'quantization' map distances, 'product' pairs of row and column, 'cross' rows and
            columns apart, to a table each.
        alpha, beta, gamma: Of g; ranges are -beta to beta.
        index: 'piecewise' (g) or 'clip' (h).
        reading: 'code' rounds a distance before g and takes the squared distance for its rank, as the public code
            does; 'paper' does as the equations say, with the rank among the distances of a grid without end.
    """

    method: str = 'product'
    alpha: float = 1.9
    beta: float = 3.8
    gamma: float = 15.2
    index: str = 'piecewise'
    reading: str = 'code'

    def __post_init__(self):
        for key, choices in (('method', METHODS), ('index', INDEXES), ('reading', READINGS)):
            if getattr(self, key) not in choices:
                raise ConfigError(f'irpe: unknown {key}={getattr(self, key)!r}; choose one of: {", ".join(choices)}')
        if not 0 < self.alpha < self.gamma or not self.alpha <= self.beta or self.beta < 1:
            raise ConfigError(
                f'irpe: alpha={self.alpha:g}, beta={self.beta:g} and gamma={self.gamma:g} must be positive, alpha '
                'below gamma, beta at least alpha, and beta at least 1'
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
        """Return the bucket of every offset, one tensor a table.

        Args:
            rows: Row of the query minus row of the key, integers of any shape.
            columns: The same of the columns.
        """
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
        """Return the bucket of every pair of tokens, (P + N, P + N) a table; a prefix token's pairs have the last one.

        The last few results are kept.

        Args:
            grid: Of the N patches.
            num_prefix: Tokens P before them; with any, tables have one bucket more than ``count``.
            device: Of the result.
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
