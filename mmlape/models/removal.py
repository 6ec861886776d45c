"""Take position out of the patch tokens of a frozen ViT, whatever its encoding has left in them.

constant   x - BB'x,  B the first singular vectors of the tokens of one constant image (INSID3, arXiv 2603.28480)
ridge      x - BB'x,  B what ridge regressions read row and column from, round by round (RASA's idea, closed form)
mean       x - m,     m the mean token of each place over training images
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import FakeTensor

from mmlape.errors import ConfigError, require_choice
from mmlape.models.grid import Grid

OPTIONS = {'constant': ('directions', 'value'), 'ridge': ('rounds',), 'mean': ()}
"""The ways, and the options of each beside ``unit_length``."""
STRENGTH = 1.0
"""Of the ridge regressions, beside the mean variance of a channel.

Weaker ones choose directions of little variance, of which a ViT has many that tell the place: of R^2 0.80, five rounds
left 0.61 with 1e-4, and 0.03 with 1.0."""


def constant_directions(tokens: Tensor, count: int) -> Tensor:
    """Return the directions (D, count) in which tokens (N, D) of one image vary most, at unit length.

    Raises:
        ConfigError: There are not so many.
    """
    most = min(len(tokens) - 1, tokens.shape[1])
    if not 0 <= count <= most:
        raise ConfigError(
            f'remove_position.directions={count}: {len(tokens)} patches of {tokens.shape[1]} channels have {most}'
        )
    unit = F.normalize(tokens.double(), dim=-1)
    centred = unit - unit.mean(0)
    return torch.linalg.eigh(centred.mT @ centred).eigenvectors.flip(1)[:, :count]  # a tenth of an SVD's time


def place_moments(tokens: Tensor, grid: Grid) -> Tensor:
    """Return the sum of zz' over tokens (B, N, D), z = (token, row, column, 1): (D + 3, D + 3), in float64."""
    rows, columns = (torch.linspace(-1, 1, side, dtype=torch.float64, device=tokens.device) for side in grid)
    places = F.pad(torch.cartesian_prod(rows, columns), (0, 1), value=1.0)  # (N, 3)
    z = torch.cat((tokens.double(), places.expand(len(tokens), -1, -1)), dim=2).flatten(0, 1)
    return z.mT @ z


def ridge_directions(moments: Tensor, rounds: int) -> Tensor:
    """Return orthonormal directions (D, 2 * rounds): of each round those that read the place from what is left."""
    mean = moments[:-1, -1] / moments[-1, -1]
    both = moments[:-1, :-1] / moments[-1, -1] - torch.outer(mean, mean)
    covariance, shared = both[:-2, :-2], both[:-2, -2:]  # (D, D), (D, 2)
    one = torch.eye(len(shared), dtype=both.dtype, device=both.device)
    basis = shared[:, :0]
    for _ in range(rounds):
        left = one - basis @ basis.mT
        seen = left @ covariance @ left
        weight = torch.linalg.solve(seen + STRENGTH * seen.diagonal().mean() * one, left @ shared)
        basis = torch.linalg.qr(torch.cat((basis, weight), dim=1)).Q
    return basis


class PositionRemoval(nn.Module):
    """Takes position out of the patch tokens of some layers of one backbone, on one canvas.

    Args:
        layers: Their numbers.
        dims: Width D of the tokens.
        patches: Number N of the patches, of ``how='mean'``.
        options: ``how``, one of ``OPTIONS``, with ``directions``, ``rounds``; ``value``, the channels of the constant
            image as the backbone gets them; and ``unit_length``, whether tokens are brought to length 1 afterwards.
        value: What ``value`` is by default.

    Attributes:
        values: Directions (layers, D, count), or means (layers, N, D).
        canvas: Height and width of the images that they are for; zeros as long as there are none.

    Raises:
        ConfigError: For an unknown way or option.
    """

    def __init__(
        self, layers: Sequence[int], dims: int, patches: int, options: Mapping[str, Any], value: Sequence[float] = ()
    ) -> None:
        super().__init__()
        self.layers, self.how = list(layers), options.get('how')
        require_choice('remove_position.how', self.how, tuple(OPTIONS))
        unknown = set(options) - {'how', 'unit_length', *OPTIONS[self.how]}
        if unknown:
            raise ConfigError(f'remove_position: {self.how!r} has no {min(unknown)}; it has {OPTIONS[self.how]}')
        self.rounds, self.unit_length = options.get('rounds', 5), options.get('unit_length', False)
        self.value = tuple(options.get('value', value))
        self.count = options.get('directions', 20) if self.how == 'constant' else 2 * self.rounds
        shape = (patches, dims) if self.how == 'mean' else (dims, self.count)
        stays = self.how != 'constant'  # whose directions follow from weights and canvas, and are not averaged
        self.register_buffer('values', torch.zeros(len(self.layers), *shape), persistent=stays)
        self.register_buffer('canvas', torch.zeros(2, dtype=torch.long), persistent=stays)
        self._canvas: Grid = (0, 0)  # the buffer's, for a model that is recorded

    def forward(self, tokens: Tensor, layer: int) -> Tensor:
        """Return patch tokens (B, N, D) of a layer without position."""
        values = self.values[self.layers.index(layer)].to(tokens.dtype)
        left = tokens - (values if self.how == 'mean' else tokens @ values @ values.mT)
        return F.normalize(left, dim=-1) if self.unit_length else left

    @torch.no_grad()
    def fit(self, batches: Iterable[tuple[Sequence[Tensor], Grid]], canvas: Grid = (0, 0)) -> None:
        """Compute what is taken out.

        Args:
            batches: For each batch of images the patch tokens (B, N, D) of each layer, and their grid.
            canvas: Height and width of the images.

        Raises:
            ConfigError: The means are for another number of patches, or there are not so many directions.
        """
        count, totals = 0, [self.values.new_zeros((), dtype=torch.float64)] * len(self.layers)
        for batch, grid in batches:
            count += len(batch[0])
            totals = [
                total + (place_moments(one, grid) if self.how == 'ridge' else one.double().sum(0))
                for total, one in zip(totals, batch)
            ]
        if self.how == 'ridge':
            found = [ridge_directions(total, self.rounds) for total in totals]
        elif self.how == 'mean':
            found = [total / count for total in totals]
        else:
            found = [constant_directions(total / count, self.count) for total in totals]
        if found[0].shape != self.values.shape[1:]:
            raise ConfigError(
                f"remove_position: how='mean' is for {self.values.shape[1]} patches, and images of {canvas} have "
                f"{len(found[0])}: set the backbone's img_size to the side of the images"
            )
        self.values.copy_(torch.stack(found))
        self.canvas.copy_(torch.tensor(canvas))
        self._canvas = canvas

    def prepare(self, backbone: Any, x: Tensor) -> None:
        """Compute the directions of a constant image as large as images (B, C, H, W), unless they are there.

        Raises:
            ConfigError: What is taken out was computed from images of another size, or not at all; or the model is
                recorded, before it has seen an image of this size.
        """
        canvas = int(x.shape[-2]), int(x.shape[-1])
        recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()
        if isinstance(x, FakeTensor) and not recorded:
            return  # only shapes are asked for
        if not recorded:  # others write buffers, too, such as DistributedDataParallel
            self._canvas = tuple(self.canvas.tolist())
        if self._canvas == canvas:
            return
        if self.how != 'constant' or recorded:
            of = f'of images of {self._canvas[0]}x{self._canvas[1]}' if any(self._canvas) else 'of no images yet'
            patch = backbone.patch_size
            fix = f'`mmlape probe MODEL --images DIR --size {canvas[0]} {canvas[1]} --fit FILE` computes it'
            if self.how == 'constant':
                fix = 'run the model once on an image of this size before'
            elif canvas[0] % patch or canvas[1] % patch:
                fix = f'give it complete patches, such as by model.data_preprocessor.pad_size_divisor={patch}'
            raise ConfigError(
                f'remove_position: what {self.how!r} takes out is {of}, not of {canvas[0]}x{canvas[1]}: {fix}'
            )
        if len(self.value) != x.shape[1]:
            raise ConfigError(f'remove_position.value={self.value}: give that of each of {x.shape[1]} channels')
        image = x.new_tensor(self.value)[:, None, None].expand(1, -1, *canvas)
        self.fit([backbone.patch_tokens(image, self.layers)], canvas)

    def train(self, mode: bool = True) -> 'PositionRemoval':
        """Stay in evaluation mode, as what is frozen."""
        return super().train(False)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._canvas = (0, 0) if self.canvas.is_meta else tuple(self.canvas.tolist())


def forget_removal(backbone: nn.Module, state_dict: Mapping[str, Tensor], prefix: str, *args: Any) -> None:
    """Forget what is taken out as other weights of the frozen ViT are loaded; a file that has it gives it again."""
    if any(prefix + name in state_dict for name, value in backbone.named_parameters() if not value.requires_grad):
        backbone.removal.canvas.zero_()


def remove_position(tokens: Iterable[Any], grid: Grid, **options: Any) -> Callable[[Any], Tensor]:
    """Return a function that takes position out of the patch tokens (B, N, D) of any model.

    Args:
        tokens: Those from which it is computed, batches (B, N, D) of torch or NumPy: of 'constant' of one constant
            image, else of training images.
        grid: Rows and columns of patches.
        **options: Of ``PositionRemoval``.

    Raises:
        ConfigError: For an unknown way or option, and more directions than there are.
    """
    batches = map(torch.as_tensor, tokens)
    first = next(batches)
    removal = PositionRemoval((0,), first.shape[2], first.shape[1], options).to(first)
    removal.fit(([batch], grid) for batch in itertools.chain([first], batches))
    return lambda some: removal(torch.as_tensor(some), 0)
