"""Issues of a dataset, and a log that groups those of one kind."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

ERROR, WARNING = 'error', 'warning'
MAX_EXAMPLES = 5


@dataclass(frozen=True)
class DataIssue:
    """Something wrong with a dataset.

    Attributes:
        severity: `ERROR` for what ends or spoils a run, `WARNING` for what a person should know.
        kind: A few words that similar issues share.
        message: One sentence that names the file.
        count: How many things it is about.
    """

    severity: str
    kind: str
    message: str
    count: int = 1


@dataclass
class IssueGroup:
    """All issues of one kind in one split, with the messages of the first few."""

    split: str
    severity: str
    kind: str
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        others = f' (the first of {self.count})' if self.count > 1 and len(self.examples) > 1 else ''
        return f'{self.kind}: {self.examples[0]}{others}'


class IssueLog:
    """Groups of issues in the order of their first issue, errors first."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str], IssueGroup] = {}

    def add(self, split: str, issues: Iterable[DataIssue]) -> None:
        """Add issues of a split to their groups."""
        for issue in issues:
            key = split, issue.severity, issue.kind
            group = self._groups.setdefault(key, IssueGroup(*key))
            group.count += issue.count
            if len(group.examples) < MAX_EXAMPLES:
                group.examples.append(issue.message)

    def __iter__(self) -> Iterator[IssueGroup]:
        return iter(sorted(self._groups.values(), key=lambda group: group.severity != ERROR))

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def errors(self) -> list[IssueGroup]:
        """The groups that would end or spoil a run."""
        return [group for group in self if group.severity == ERROR]
