"""Which ``in_channels`` of a configuration do not fit the model, found once a first step has failed."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor, nn

from mmlape.errors import ConfigError

_SIDE = 64
_OF_ALL_LEVELS = ('bbox_head', 'rpn_head')
_OF_SOME = ('decode_head', 'auxiliary_head', 'head')


@contextlib.contextmanager
def explained_widths(model: nn.Module, cfg: Config) -> Iterator[None]:
    """Raise ConfigError with the key for a RuntimeError of the block, if a part of the model has another width."""
    try:
        yield
    except RuntimeError as error:
        wrong = next(_wrong_widths(model, cfg.model), None)
        if wrong is None:
            raise
        key, given, before, widths = wrong
        raise ConfigError(
            f'{cfg.filename}: {key}={given}, but the {before} before it has outputs of '
            f'{", ".join(map(str, widths))} channels: set {key}={_plain(widths)}'
        ) from error


def _plain(widths: Sequence[int]) -> int | list[int]:
    return widths[0] if len(widths) == 1 else list(widths)


def _wrong_widths(model: nn.Module, cfg: dict) -> Iterator[tuple[str, Any, str, list[int]]]:
    """Yield key and value of each ``in_channels`` that does not fit, what is before it, and the widths of that."""
    outputs = _outputs(model, 'backbone', cfg)
    before = 'backbone'
    neck = cfg.get('neck')
    if isinstance(neck, dict) and outputs:
        widths, given = [output.shape[1] for output in outputs], neck.get('in_channels')
        if isinstance(given, list | tuple) and list(given) != widths:
            yield 'model.neck.in_channels', given, before, widths
            return
        outputs, before = _outputs(model, 'neck', cfg, outputs), 'neck'
    widths = [output.shape[1] for output in outputs]
    for name in (*_OF_SOME, *_OF_ALL_LEVELS):
        heads = cfg.get(name)
        for index, head in enumerate(heads if isinstance(heads, list) else [heads]):
            given = head.get('in_channels') if isinstance(head, dict) else None
            if given is None or not widths:
                continue
            places = head.get('in_index', -1)
            places = places if isinstance(places, list | tuple) else [places]
            if name in _OF_ALL_LEVELS:
                places = [next((i for i, width in enumerate(widths) if width != given), 0)]
            if any(not -len(widths) <= place < len(widths) for place in places):
                continue
            expected = [widths[place] for place in places]
            if _plain(expected) != (list(given) if isinstance(given, list | tuple) else given):
                key = f'model.{name}.{index}' if isinstance(heads, list) else f'model.{name}'
                yield f'{key}.in_channels', given, before, expected


@torch.no_grad()
def _outputs(model: nn.Module, part: str, cfg: dict, inputs: Any = None) -> list[Tensor]:
    """Return what a part of the model makes of a small image, or of other outputs; none if it does not take that."""
    module = getattr(model, part, None)
    if module is None:
        return []
    if inputs is None:
        device = next(model.parameters()).device
        channels = cfg['backbone'].get('in_channels', 3)
        inputs = torch.zeros(1, channels, _SIDE, _SIDE, device=device)
    training = module.training
    try:
        outputs = module.eval()(inputs)
    except Exception:  # of any type; the first error is the one to show
        return []
    finally:
        module.train(training)
    outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
    return [output for output in outputs if isinstance(output, Tensor) and output.dim() > 1]
