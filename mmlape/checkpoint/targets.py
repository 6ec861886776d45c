"""Layouts that weights can be written in, and the one rule of what each has a place for.

A layout says what its models have. All else that a file tells is refused by name, whatever a model comes to have.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmlape.checkpoint.key_maps import Tensors, Weights
from mmlape.kinds import POSITION_ENCODINGS


@dataclass(frozen=True)
class Target:
    """A layout that weights can be written in; without ``names``, it has a place for everything."""

    rename: Callable[[Tensors], Tensors] | None = None  # translates the tensors; None keeps the names
    wrapper: str | None = None  # key of the file that holds them; None for the file itself
    part: str = ''  # name of the backbone in a complete model
    names: str | None = None  # regular expression that the complete name of each tensor matches
    # what each of its models has, in words, and the regular expression that the complete name of a tensor then matches
    needed: Mapping[str, str] = field(default_factory=dict)
    # position encodings that its models can have, a tuple for each choice of those together: names in
    # ``POSITION_ENCODINGS``, or base classes of any kind
    encodings: tuple[tuple[str | type, ...], ...] = ()
    # values that a model's arguments can have, None for all; others have their default
    arguments: Mapping[str, Sequence | None] = field(default_factory=dict)
    # returns what else has no place, such as two things that exclude one another
    clashes: Callable[[Weights], list[str]] | None = None
    # beginnings of the names of a classifier's heads; with any other, all heads are left out
    head_names: tuple[str, ...] = ('head.', 'head_dist.')
    # does before ``rename`` what depends on the rows of a file's tables
    rename_table: Callable[[Weights, Tensors], Tensors] | None = None

    def missing(self, weights: Weights, described: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
        """Return what of a file's model this layout has no place for.

        ``described`` is what the file records of the model's arguments; ``defaults`` are those of
        the arguments that leave no trace in a file but its metadata. Of a file without metadata,
        the names of its tensors decide.
        """
        if self.names is None:
            return []
        pe_type = described.get('pe_type', ())
        missing = [] if pe_type == () or self._has_place_for(pe_type) else [f'pe_type={pe_type!r}']
        for key, value in described.items():
            taken = self.arguments.get(key, [defaults[key]] if key in defaults else ())
            if key != 'pe_type' and taken is not None and value not in taken:
                missing.append(f'{key}={value!r}')
        missing += self.clashes(weights) if self.clashes else []
        if missing:
            return missing
        others = [name for name in weights.tensors if not re.fullmatch(self.names, name)]
        numberless = dict.fromkeys(re.sub(r'\.\d+\.', '.*.', name) for name in others)
        absent = [
            f'a model without {what}'
            for what, pattern in self.needed.items()
            if not any(re.fullmatch(pattern, name) for name in weights.tensors)
        ]
        return [*numberless, *absent]

    def translate(self, weights: Weights, tensors: Tensors) -> Tensors:
        """Return tensors of a file, ``weights`` and perhaps heads, under the names of this layout."""
        tensors = self.rename_table(weights, tensors) if self.rename_table else tensors
        return self.rename(tensors) if self.rename else tensors

    def takes_heads(self, weights: Weights) -> bool:
        """Check whether there is a place for a classifier's heads."""
        return self.names is None or all(name.startswith(self.head_names) for name in weights.head_tensors)

    def _has_place_for(self, pe_type: object) -> bool:
        entries = pe_type if isinstance(pe_type, list | tuple) else [pe_type]
        names = [str(entry.get('type') if isinstance(entry, Mapping) else entry) for entry in entries]
        names = [name for name in names if name != 'none']
        return any(
            len(choice) == len(names) and all(_is_one_of(name, choice) for name in names) for choice in self.encodings
        )


def _is_one_of(name: str, choice: tuple[str | type, ...]) -> bool:
    kind = POSITION_ENCODINGS.get(name) or object
    return any(issubclass(kind, entry) if isinstance(entry, type) else name == entry for entry in choice)
