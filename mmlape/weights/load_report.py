"""What loading a file of weights did."""

import re
from collections import Counter
from dataclasses import dataclass, field

from mmlape.weights.normalisation import Normalisation


@dataclass
class LoadReport:
    """What loading did."""

    path: str  # the file
    layout: str  # the recognised layout
    total: int = 0  # how many tensors the model has
    loaded: list[str] = field(default_factory=list)  # names that got the checkpoint's values
    renamed: str = ''  # how many tensors of a released model got other names, and whose they were
    new: list[str] = field(default_factory=list)  # names that keep their initial values, and may
    # names of the checkpoint that this model has no place for
    dropped: list[str] = field(default_factory=list)
    resized: dict[str, str] = field(default_factory=dict)  # name to 'from -> to'
    problems: list[str] = field(default_factory=list)  # what strict loading refuses
    # what loads, but is probably not what was meant
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what the file does not tell
    # of the images that the weights want; None if it is unknown
    normalisation: Normalisation | None = None

    def __str__(self) -> str:
        lines = [f'checkpoint {self.path} ({self.layout} layout): loaded {len(self.loaded)} of {self.total}']
        lines += [f'  {summary_of_resized(self.resized)}'] if self.resized else []
        lines += [f'  renamed: {self.renamed}'] if self.renamed else []
        lines += [f'  new: {summary(self.new)}'] if self.new else []
        lines += [f'  dropped: {summary(self.dropped)}'] if self.dropped else []
        lines += [f'  problem: {problem}' for problem in self.problems]
        lines += [f'  note: {note}' for note in self.notes]
        return '\n'.join(lines)


def summary(names: list[str]) -> str:
    """Join names with layer numbers left out: 'blocks.*.gamma1 (12)'."""
    groups = Counter(re.sub(r'\.\d+\.', '.*.', name) for name in names)
    return ', '.join(key if count == 1 else f'{key} ({count})' for key, count in groups.items())


def summary_of_resized(resized: dict[str, str]) -> str:
    """Return 'resized pos_embed: 14x14 -> 32x32' for names and what happened to them."""
    changes = {how: [name for name in resized if resized[name] == how] for how in dict.fromkeys(resized.values())}
    return '; '.join(f'resized {summary(names)}: {how}' for how, names in changes.items())
