"""Arguments of an adapter, checked and completed; each function raises ConfigError with the valid choices."""

from collections.abc import Sequence

from mmlape.errors import ConfigError


def resolve_interactions(indexes: Sequence[Sequence[int]] | None, num_layers: int) -> list[tuple[int, int]]:
    """Return layer ranges [start, stop) from pairs of first and last layer; None splits the layers into four.

    Raises:
        ConfigError: If the pairs do not cover the layers in order.
    """
    if indexes is None:
        bounds = [round(i * num_layers / 4) for i in range(5)]
        return list(zip(bounds, bounds[1:]))
    ranges = [(pair[0], pair[-1] + 1) for pair in indexes]
    starts, stops = zip(*ranges)
    if starts != (0, *stops[:-1]) or stops[-1] != num_layers or any(a >= b for a, b in ranges):
        raise ConfigError(f'interaction_indexes={indexes} must cover the {num_layers} layers in order, without gaps')
    return ranges


def check_adapter(source: str | None, interactions: int, value_dims: int, num_heads: int) -> None:
    """Check what maps get of the ViT, and the width of the deformable attention's heads."""
    if source not in ('last', 'interaction', None):
        raise ConfigError(f'unknown vit_feature_source={source!r}; choose one of: last, interaction')
    if source == 'interaction' and interactions != 4:
        raise ConfigError(f"vit_feature_source='interaction' needs four interactions, not {interactions}")
    if value_dims % num_heads:
        raise ConfigError(
            f'embed_dims * deform_ratio = {value_dims} is not a multiple of deform_num_heads={num_heads}'
        )
