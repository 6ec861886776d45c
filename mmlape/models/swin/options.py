"""Arguments of a Swin Transformer, checked and completed; each function raises ConfigError with the valid choices."""

from collections.abc import Sequence

from mmlape.errors import ConfigError
from mmlape.models.base import archs
from mmlape.models.grid import Grid
from mmlape.models.layers.patch_embed import PATCH_NORMS
from mmlape.models.position import Position, PositionType, joinings, resolve_position
from mmlape.models.swin.layers import merged_grid


def _arch(embed_dims: int, third: int, num_heads: int) -> dict:
    return dict(embed_dims=embed_dims, depths=(2, 2, third, 2), num_heads=tuple(num_heads * 2**i for i in range(4)))


ARCHS = {'tiny': _arch(96, 6, 3), 'small': _arch(96, 18, 3), 'base': _arch(128, 18, 4)}
HIERARCHIES = ('merge', 'stage')


def resolve_arch(arch: str | dict) -> dict:
    """Return ``embed_dims``, ``depths`` and ``num_heads`` of a name or a dict."""
    arch = archs.resolve_arch(arch, ARCHS)
    depths, heads = tuple(arch['depths']), tuple(arch['num_heads'])
    if len(depths) != len(heads):
        raise ConfigError(f'arch: depths has {len(depths)} stages, num_heads {len(heads)}')
    if not depths or min(depths) < 1:
        raise ConfigError(f'arch: every stage needs a layer, but depths={depths}')
    for stage, count in enumerate(heads):
        dims = arch['embed_dims'] * 2**stage
        if dims % count:
            raise ConfigError(f'arch: the width {dims} of stage {stage} is not a multiple of its {count} heads')
    return dict(embed_dims=arch['embed_dims'], depths=depths, num_heads=heads)


def resolve_swin_position(pe_type: PositionType, pe_joining: str, pe_norm: str, pe_hierarchy: str) -> Position:
    """Look position encodings and their joining up; they must fit windows and stages."""
    position = resolve_position(pe_type, pe_joining, pe_norm)
    if position.joining.table_per_layer:
        fitting = [
            name
            for name, other in joinings().items()
            if not other.table_per_layer and (position.absolute is None or other.fits(position.absolute))
        ]
        raise ConfigError(
            f'pe_joining={pe_joining!r} has a table for each layer, which cannot go from stage to stage; choose '
            f'pe_joining from: {", ".join(fitting)}'
        )
    unfit = [repr(kind.name) for kind in position.build_inside() if not kind.windows]
    if unfit:
        raise ConfigError(f'pe_type={pe_type!r}: {", ".join(unfit)} does not work in windows; leave it out')
    if pe_hierarchy not in HIERARCHIES:
        raise ConfigError(f'unknown pe_hierarchy={pe_hierarchy!r}; choose one of: {", ".join(HIERARCHIES)}')
    if pe_hierarchy != 'merge' and position.absolute is None:
        raise ConfigError(
            f'pe_hierarchy={pe_hierarchy!r} would have no effect without an absolute kind in pe_type={pe_type!r}; '
            "leave it at its default, 'merge'"
        )
    return position


def resolve_windows(window_size: int | Sequence[int], num_stages: int) -> tuple[int, ...]:
    """Return the side of a window of each stage."""
    sides = (window_size,) * num_stages if isinstance(window_size, int) else tuple(window_size)
    if len(sides) != num_stages:
        raise ConfigError(f'window_size has {len(sides)} values, the model {num_stages} stages')
    if min(sides) < 1:
        raise ConfigError(f'window_size={window_size} must be at least 1')
    return sides


def table_windows(windows: Sequence[int], grid: Grid, pad_small_map: bool) -> tuple[int, ...]:
    """Return the side that each stage's bias tables are made for: a window shrunk to a small map has a small table."""
    sides = []
    for window in windows:
        sides.append(window if pad_small_map else min(window, *grid))
        grid = merged_grid(grid)
    return tuple(sides)


def check_sizes(img_size: tuple[int, int], patch_size: int, patch_norm: str) -> None:
    """Check sizes that the parts of the model would take without a word, and the norms of the stem."""
    if min(img_size) < patch_size:
        raise ConfigError(f'img_size={img_size} has a side smaller than patch_size={patch_size}')
    if patch_norm in PATCH_NORMS and PATCH_NORMS[patch_norm][2] is not None:
        fitting = ', '.join(name for name, norms in PATCH_NORMS.items() if norms[2] is None)
        raise ConfigError(
            f'patch_norm={patch_norm!r} norms tokens + PE, which Swin does not; choose one of: {fitting}'
        )
