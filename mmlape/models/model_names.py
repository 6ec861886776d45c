"""Archs and models by name, as mmpretrain and timm have them: which there are, and how one is built."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from torch import nn

from mmlape.errors import ConfigError
from mmlape.kinds import BACKBONES
from mmlape.models.base.backbone import parameters

VARIANTS = {'lape': dict(pe_joining='lape'), 'dpn': dict(patch_norm='dual')}
"""What the suffixes of a model's name stand for."""


def resolve_arch(arch: str | dict, archs: Mapping[str, dict]) -> dict:
    """Return the entry of a name in ``archs``, or a dict with the same keys.

    Raises:
        ConfigError: For an unknown name, other keys, or a width that the heads do not divide.
    """
    keys = set(next(iter(archs.values())))
    if isinstance(arch, str):
        if arch not in archs:
            raise ConfigError(
                f'unknown arch={arch!r}; choose one of: {", ".join(archs)}, or a dict with {sorted(keys)}'
            )
        return archs[arch]
    if set(arch) != keys:
        raise ConfigError(f'arch must have exactly the keys {sorted(keys)}, not {sorted(arch)}')
    dims, heads = arch['embed_dims'], arch['num_heads']
    if isinstance(heads, int) and dims % heads:  # of a hierarchical model, each stage has its own
        raise ConfigError(f'arch: embed_dims={dims} is not a multiple of num_heads={heads}')
    return dict(arch)


def name_models(
    pattern: str, archs: Iterable[str], variants: Mapping[str, dict] = MappingProxyType(VARIANTS)
) -> dict[str, dict]:
    """Return the arguments of models by name, for the ``model_names`` of a backbone.

    An arch 'tiny' and the pattern 'swin-{}' give 'swin-tiny', 'swin-tiny-lape', 'swin-tiny-dpn', 'swin-tiny-lape-dpn';
    slashes of an arch become hyphens. ``variants`` have what the suffix of a name adds to the arguments.
    """
    return with_variants({pattern.format(arch.replace('/', '-')): dict(arch=arch) for arch in archs}, variants)


def with_variants(
    models: Mapping[str, dict], variants: Mapping[str, dict] = MappingProxyType(VARIANTS)
) -> dict[str, dict]:
    """Return the arguments of models by name, with a name more for each suffix, and suffixes together."""
    models = dict(models)
    for suffix, options in variants.items():
        models |= {f'{name}-{suffix}': {**arguments, **options} for name, arguments in models.items()}
    return models


def list_models(pattern: str = '*') -> list[str]:
    """Return the names that ``get_model`` takes, sorted.

    Args:
        pattern: Which, with ``*`` and ``?`` as in a shell: 'swin*', '*-lape', 'timm/*dinov3*'.
    """
    return sorted(name for _, names in _named() for name in names if fnmatchcase(name, pattern))


def get_model(name: str, pretrained: bool | str | Path | None = None, **overrides) -> nn.Module:
    """Build a backbone by its name.

    Args:
        name: One that ``list_models`` returns.
        pretrained: A checkpoint of any layout that the backbone knows, loaded as ``init_cfg`` loads it; None or False
            keeps the initial values. True loads the weights that timm knows for a name of timm.
        **overrides: Arguments of the backbone that replace those of the name, such as ``out_type='featmap'``.

    Raises:
        ConfigError: For an unknown name, with the closest ones; and for arguments that the backbone refuses.
        CheckpointError: If the checkpoint does not fit the model.
    """
    model_class, options = find_model(name)
    options = {**options, **overrides}
    if pretrained is True and 'pretrained' not in parameters(model_class):
        raise ConfigError(
            f'get_model({name!r}): no weights belong to this name; give pretrained the path or address of a file'
        )
    if pretrained and 'init_cfg' in options:
        raise ConfigError(f'get_model({name!r}): pretrained and init_cfg each name weights: give one of them')
    if pretrained is True:
        options['pretrained'] = True
    elif pretrained:
        options['init_cfg'] = dict(type='Pretrained', checkpoint=str(pretrained))
    model = model_class(**options)
    if pretrained:
        model.init_weights()
    return model


def find_model(name: str) -> tuple[type, dict]:
    """Return the class of a model, and its arguments.

    Raises:
        ConfigError: If there is no model of that name; the message has the closest ones.
    """
    for model_class, names in _named():
        if name in names:
            return model_class, names[name]
    close = difflib.get_close_matches(name, list_models(), 4, 0.5)
    hint = f'the closest names: {", ".join(close)}' if close else 'mmlape list-models prints the names'
    raise ConfigError(f'no model {name!r}; {hint}')


def _named() -> Iterator[tuple[type, Mapping[str, dict]]]:
    """Yield every registered class that names its models; a subclass does not have those of its base."""
    BACKBONES.import_from_location()
    for model_class in dict.fromkeys(BACKBONES.module_dict.values()):
        names = vars(model_class).get('model_names')
        if names is not None:
            yield model_class, names
