"""Archs by name: what an argument ``arch`` takes, and the names of models that they give."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from mmlape.errors import ConfigError

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

    An arch 'tiny' and the pattern 'swin-{}' give 'swin-tiny', 'swin-tiny-lape', 'swin-tiny-dpn', 'swin-tiny-lape-dpn'.

    Args:
        pattern: The name, with ``{}`` for that of the arch, whose slashes become hyphens.
        archs: Names of archs.
        variants: What each variant adds to the arguments, by the suffix of its name.
    """
    named = {pattern.format(arch.replace('/', '-')): dict(arch=arch) for arch in archs}
    for suffix, options in variants.items():
        named |= {f'{name}-{suffix}': {**own, **options} for name, own in named.items()}
    return named
