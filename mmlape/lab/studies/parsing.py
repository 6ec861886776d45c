"""The YAML of studies: values of YAML 1.2, read once."""

import copy
import functools
import re
from collections import Counter
from typing import Any

import yaml

from mmlape.errors import ConfigError

_BOOLEAN = 'tag:yaml.org,2002:bool'
_FLOAT = 'tag:yaml.org,2002:float'
_SAFE = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)


def parse(text: str, file: str) -> Any:
    """Return the content of a study; a ConfigError names file and line if it is no YAML."""
    try:
        return copy.deepcopy(_values(text))
    except yaml.YAMLError as error:
        mark = getattr(error, 'problem_mark', None)
        line = f':{mark.line + 1}' if mark else ''
        reason = getattr(error, 'problem', None) or error
        raise ConfigError(f'{file}{line} does not parse: {reason}') from error


@functools.lru_cache(maxsize=64)  # all studies of the package
def _values(text: str) -> Any:
    return yaml.load(text, _Loader)


class _Loader(_SAFE):  # type: ignore[misc,valid-type]
    """YAML 1.2's plain values: ``on`` is a word (iRPE has ``on: k``), 1e-3 is a number.

    No key may be given twice.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key, count in keys.items():
            if count > 1:
                raise yaml.constructor.ConstructorError(None, None, f"'{key}' is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOLEAN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOLEAN, re.compile('(true|True|TRUE|false|False|FALSE)$'), list('tTfF'))
_Loader.add_implicit_resolver(_FLOAT, re.compile(r'[-+]?\d+(\.\d*)?[eE][-+]?\d+$'), list('-+0123456789'))
_Loader.add_constructor('!tuple', lambda loader, node: tuple(loader.construct_sequence(node, deep=True)))
