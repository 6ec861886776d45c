"""Arguments of a ViT, checked and completed; each function raises ConfigError with the valid choices."""

from collections.abc import Sequence

from mmlape.errors import ConfigError
from mmlape.models.position import Position


def _arch(embed_dims: int, num_heads: int) -> dict:
    return dict(embed_dims=embed_dims, num_layers=12, num_heads=num_heads, feedforward_channels=4 * embed_dims)


ARCHS = {'deit-tiny': _arch(192, 3), 'deit-small': _arch(384, 6), 'deit-base': _arch(768, 12)}


def _per_layer(key: str, value, num_layers: int) -> list:
    values = list(value) if isinstance(value, Sequence) else [value] * num_layers
    if len(values) != num_layers:
        raise ConfigError(f'{key} has {len(values)} entries for {num_layers} layers')
    return values


def resolve_windows(
    window_attn: bool | Sequence[bool],
    window_size: int | Sequence[int | None],
    num_layers: int,
    num_prefix: int,
    position: Position,
) -> list[int | None]:
    """Return the side of each layer's windows; None for global attention."""
    windowed = _per_layer('window_attn', window_attn, num_layers)
    sizes = _per_layer('window_size', window_size, num_layers)
    if any(use and not size for use, size in zip(windowed, sizes)):
        raise ConfigError('window_size must be a positive number in every layer with window_attn')
    unfit = [repr(kind.name) for kind in position.build_inside() if not kind.windows]
    if any(windowed) and (num_prefix or unfit):
        other = f' and a pe_type without {", ".join(unfit)}' if unfit else ''
        raise ConfigError(f'window_attn needs with_cls_token=False, num_registers=0{other}')
    return [size if use else None for use, size in zip(windowed, sizes)]
