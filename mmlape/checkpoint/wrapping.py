"""What wrappers put around weights and models: names of distributed, compiled and averaged models.

module.backbone._orig_mod.blocks.0.norm1.weight  is  backbone.blocks.0.norm1.weight
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

INSIDE = ('_orig_mod', '_fsdp_wrapped_module', '_checkpoint_wrapped_module', '_forward_module')
"""Modules that stand for the one in them: of compilers, FSDP, recomputation and Lightning's Fabric."""
AROUND = 'module'
"""The model in DistributedDataParallel, DataParallel, DeepSpeed's engine and AveragedModel."""
COUNTERS = ('n_averaged', 'steps')
"""What averaged models of torch and MMEngine have beside their model."""
_INSIDE = re.compile(rf'(?:^|(?<=\.))(?:{"|".join(INSIDE)})\.')


def plain_names(names: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of a state dict by those that they have without wrappers; counters of an average have none."""
    plain = {_INSIDE.sub('', name): name for name in names}
    if len(plain) < len(names):  # two wrappers of one module
        plain = {name: name for name in names}
    while True:
        inner = [name for name in plain if name not in COUNTERS]
        depth = len(AROUND) + 1
        if not inner or not all(name.startswith(f'{AROUND}.') for name in inner):
            return plain
        plain = {name[depth:]: plain[name] for name in inner}


@contextlib.contextmanager
def unwrapped(model: nn.Module) -> Iterator[nn.Module]:
    """Lend a model without the wrappers around it and around its modules; they are the same modules, and stay so."""
    inner = _content(model)
    changed = []
    for parent in list(inner.modules()):
        for name, child in parent.named_children():
            content = _content(child)
            if content is not child:
                changed.append((parent, name, child))
                parent._modules[name] = content
    try:
        yield inner
    finally:
        for parent, name, child in changed:
            parent._modules[name] = child


def _content(module: nn.Module) -> nn.Module:
    """Return the model that a wrapper has, through any number of them."""
    while True:
        names = dict(module.named_children())
        inside = next((names[name] for name in INSIDE if name in names), None)
        if inside is None and set(names) == {AROUND} and _is_around(module):
            inside = names[AROUND]
        if inside is None:
            return module
        module = inside


def _is_around(module: nn.Module) -> bool:
    """Check for a class that stands for its ``module``; others may have one by that name."""
    known = ('DistributedDataParallel', 'DataParallel', 'AveragedModel', 'DeepSpeedEngine', 'BaseAveragedModel')
    return any(base.__name__.endswith(known) for base in type(module).__mro__)
