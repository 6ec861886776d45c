"""Several models over one frozen ViT: each of its modules runs once for what all of the models give it.

The first model leads. A frozen module of another model takes what the same module of the first has computed, if it
gets the same to the bit, and computes else; so outputs are those of each model alone.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from mmlape.checkpoint.gate import LEFT_OUT
from mmlape.errors import ConfigError
from mmlape.lab.config.config_file import differing_values
from mmlape.lab.config.stored_config import tiles_of
from mmlape.lab.training.frozen.part import config_of, outermost_frozen, replaced

WINDOWS = ('mode', 'crop_size', 'stride')
"""Keys of a segmentor's ``test_cfg`` that decide which images its ViT sees."""


class SharedPart:
    """The frozen part of several models that each prepare images alike.

    Args:
        models: By name, in evaluation mode, each with its config as ``cfg``.

    Raises:
        ConfigError: Nothing is frozen in a model, or what is frozen differs, or how images are prepared.
    """

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        self.models = list(models.values())
        (first, leader), *others = models.items()
        frozen = _frozen(leader)
        if not frozen:
            raise ConfigError(f'{first}: no part of its model is frozen, so it shares none: give it alone')
        for name, model in others:
            if _frozen(model) != frozen:
                raise ConfigError(f'{name} and {first} have not the same frozen parts ({", ".join(frozen)})')
            for key, mine, theirs in differing_values(*(_deciding(one, frozen) for one in (model, leader))):
                raise ConfigError(f'{name} and {first} share no frozen part: {key} is {mine} and {theirs}')
            for part in frozen:
                _require_equal(model.get_submodule(part), leader.get_submodule(part), f'{name} and {first}: {part}')
        self.names = [
            '.'.join(filter(None, (part, inner)))
            for part in frozen
            for inner, _ in leader.get_submodule(part).named_modules()
        ]

    @contextmanager
    def running_once(self) -> Iterator[None]:
        """Let the parts run once for each input that the first model gives them and then every other one, in turn."""
        leader, *others = self.models
        queues: list[dict[str, deque]] = [{name: deque() for name in self.names} for _ in others]
        running: list[str] = []

        def leading(name: str, forward: Callable) -> Callable:
            def lead(*args, **kwargs):
                if running:  # a part of a part
                    return forward(*args, **kwargs)
                running.append(name)
                try:
                    outputs = forward(*args, **kwargs)
                finally:
                    running.clear()
                for queue in queues:
                    queue[name].append(((args, kwargs), tree_map_only(Tensor, Tensor.clone, outputs)))
                return outputs

            return lead

        def following(queue: deque, forward: Callable) -> Callable:
            def follow(*args, **kwargs):
                while queue:
                    inputs, outputs = queue.popleft()
                    if _same(inputs, (args, kwargs)):
                        return outputs
                return forward(*args, **kwargs)

            return follow

        with ExitStack() as stack:
            for name in self.names:
                module = leader.get_submodule(name)
                stack.enter_context(replaced(module, 'forward', leading(name, module.forward)))
                for model, queue in zip(others, queues):
                    module = model.get_submodule(name)
                    stack.enter_context(replaced(module, 'forward', following(queue[name], module.forward)))
            yield


def _frozen(model: nn.Module) -> list[str]:
    found = outermost_frozen(model.train())
    model.eval()
    return found


def _deciding(model: nn.Module, frozen: Sequence[str]) -> Config:
    """Return what decides the inputs and the outputs of a model's frozen parts, but for tensors."""
    cfg = model.cfg
    values = dict(
        pipeline=cfg.test_pipeline,
        data_preprocessor=cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor'),
        tiles=tiles_of(cfg),
        windows={key: value for key, value in (cfg.model.get('test_cfg') or {}).items() if key in WINDOWS},
    )
    for name in frozen:
        part = config_of(cfg.model, name)
        values[name.replace('.', '_')] = {key: value for key, value in part.items() if key not in LEFT_OUT}
    return Config(values)


def _require_equal(mine: nn.Module, theirs: nn.Module, whose: str) -> None:
    ours, others = mine.state_dict(), theirs.state_dict()
    for key in [*ours, *(key for key in others if key not in ours)]:
        if not _same(ours.get(key), others.get(key)):
            raise ConfigError(f'{whose} is not the same: {key} differs, so it does not run once')


def _same(one: Any, other: Any) -> bool:
    """Check whether values, which may hold tensors, are the same; those that are recorded for a graph are, in turn."""
    (leaves, spec), (others, other_spec) = tree_flatten(one), tree_flatten(other)
    if spec != other_spec or torch.compiler.is_exporting():
        return spec == other_spec
    return all(_equal(*pair) for pair in zip(leaves, others))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one is other or (not isinstance(one, Tensor) and not isinstance(other, Tensor) and one == other)
