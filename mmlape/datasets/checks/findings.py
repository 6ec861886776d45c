"""Problems gathered: those of one kind are one finding, with a count and the first few sentences."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mmlape.datasets.checks.base import ERROR, Problem

EXAMPLES = 5


@dataclass
class Finding:
    """All problems of one kind in one split."""

    split: str
    severity: str
    kind: str
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        others = f' (the first of {self.count})' if self.count > 1 and len(self.examples) > 1 else ''
        return f'{self.kind}: {self.examples[0]}{others}'


class Findings:
    """Findings in the order of their first problem, errors first."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], Finding] = {}

    def add(self, split: str, problem: Problem) -> None:
        """Counts a problem, and keeps its sentence if it is one of the first."""
        key = split, problem.severity, problem.kind
        finding = self._found.setdefault(key, Finding(*key))
        finding.count += problem.count
        if len(finding.examples) < EXAMPLES:
            finding.examples.append(problem.text)

    def __iter__(self) -> Iterator[Finding]:
        return iter(sorted(self._found.values(), key=lambda finding: finding.severity != ERROR))

    def __len__(self) -> int:
        return len(self._found)

    @property
    def errors(self) -> list[Finding]:
        """Those that would end or spoil a training."""
        return [finding for finding in self if finding.severity == ERROR]
