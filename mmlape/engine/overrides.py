"""Distinguish a mistyped override from one that adds a key on purpose."""

import difflib
import warnings
from typing import Any

from mmlape.engine.keys import accepted, children_of, unknown_key
from mmlape.errors import ConfigError


def check_override(cfg: dict, key: str, source: str = '--cfg-options') -> None:
    """Check that ``key`` changes an existing value, or adds one that is accepted there.

    A new part is accepted if the class that is built there, the runner or the data loader has an argument of that
    name. Where the accepted arguments are unknown, the last part may be new, with a warning, unless it resembles an
    existing one.

    Args:
        cfg: The configuration.
        key: Dotted.
        source: Where it is given, for messages.

    Raises:
        ConfigError: A part does not exist; the message names it and similar ones.
    """
    parts = key.split('.')
    node: Any = cfg
    for depth, part in enumerate(parts):
        where = '.'.join(parts[:depth])
        children = children_of(node)
        if children is None:
            raise ConfigError(f"{source} {key}: '{where}' is the value {node!r} and has no keys")
        if part in children:
            node = children[part]
            continue
        if isinstance(node, list | tuple):
            raise ConfigError(f'{source} {key}: {unknown_key(where, part, children)}')
        _check_new(cfg, node, where, part, f'{source} {key}', leaf=depth == len(parts) - 1)
        return


def _check_new(cfg: dict, node: dict, where: str, part: str, option: str, leaf: bool) -> None:
    names, complete = accepted(cfg, node, where)
    if part in names:
        return
    known = {*names, *node}
    if complete or not leaf or difflib.get_close_matches(part, list(node), n=1, cutoff=0.75):
        raise ConfigError(f'{option}: {unknown_key(where, part, known)}')
    warnings.warn(f'{option} adds a new key that nothing in the configuration had', stacklevel=2)
