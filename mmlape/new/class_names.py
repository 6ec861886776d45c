"""Names of classes by the number or the colour that stands for them, and what the values of label maps mean."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mmlape.errors import DataError
from mmlape.lab.datasets.folders import read_lines, require_unique

IGNORED = 255
"""The id of pixels that are not learnt."""
COLOUR = 1 << 24
"""Is added to colours, so that none is taken for an id; grey ones are ids."""
NOTHING = -(1 << 40)
"""Stands for pixels without data, which are not learnt."""
NUMBER_FIRST = re.compile(r'(\d+)\s*[=:,]\s*(\S.*)')
COLOUR_LAST = re.compile(r'(.*?\S)\s*[=:,]\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)(?:[:,\s].*)?')
COLOUR_FIRST = re.compile(r'(\d+)[\s,]+(\d+)[\s,]+(\d+)[\s,]+(\S.*)')


@dataclass(frozen=True)
class Names:
    """Names of classes: by their values, or in the order of their numbers."""

    by_value: Mapping[int, str] = field(default_factory=dict)
    listed: Sequence[str] = ()
    source: str = '--classes'  # that names them

    def __bool__(self) -> bool:
        return bool(self.by_value or self.listed)

    @classmethod
    def parse(cls, words: Sequence[str]) -> 'Names':
        """Return the names that '1=scratch', 'scratch=255,0,0' or bare words give, or the lines of a file.

        Raises:
            DataError: Some have a number or a colour and others have none, or two are alike.
        """
        lines = read_lines(words[0]) if len(words) == 1 and Path(words[0]).is_file() else list(words)
        names = cls.of_lines(lines)
        if names.by_value and names.listed:
            name = names.listed[0]
            raise DataError(f'--classes: {name!r} has neither number nor colour, as others have: write 1={name}')
        if len(names.by_value) + len(names.listed) < len(lines):
            raise DataError('--classes names a number or a colour more than once')
        require_unique([*names.by_value.values(), *names.listed], '--classes')
        return names

    @classmethod
    def of_lines(cls, lines: Iterable[str]) -> 'Names':
        """Return the names of lines such as '1=scratch', 'scratch=255,0,0', '255 0 0 scratch' or 'scratch'."""
        by_value, listed = {}, []
        for line in lines:
            if match := COLOUR_FIRST.fullmatch(line):
                by_value[value_of(*map(int, match.groups()[:3]))] = match[4]
            elif match := COLOUR_LAST.fullmatch(line):
                by_value[value_of(*map(int, match.groups()[1:]))] = match[1]
            elif match := NUMBER_FIRST.fullmatch(line):
                by_value[int(match[1])] = match[2]
            else:
                listed.append(line)
        return cls(by_value, listed)

    def of_values(self, values: Sequence[int], zero_is_unnamed: bool = False) -> dict[int, str]:
        """Return the name of each value; bare names only where one reading fits.

        Args:
            values: That occur, in order.
            zero_is_unnamed: Whether the names begin with the number 1.

        Raises:
            DataError: Several readings fit, or none.
        """
        if self.by_value:
            return dict(self.by_value)
        count = len(self.listed)
        rest = [value for value in values if value]
        if zero_is_unnamed and values[-1] <= count:
            keys = list(range(1, count + 1))
        elif values == list(range(count)) or (values == [0, IGNORED] and count == 2):
            keys = list(values)
        elif rest == list(range(1, count + 1)) or len(rest) == count == 1:
            keys = rest
        else:
            shown = ' '.join(f'{_words(value)}' for value in values[:8])
            known = ', '.join(map(describe, values[:8]))
            more = ' ...' * (len(values) > 8)
            start = f'{self.source}: {count} names for the values {known}{more}'
            raise DataError(f'{start}: which is which? --classes {shown}{more}')
        return dict(zip(keys, self.listed))


NONE = Names()


def value_of(red: int, green: int, blue: int) -> int:
    """Return the value that stands for a colour."""
    return red if red == green == blue else COLOUR + (red << 16) + (green << 8) + blue


def rgb(value: int) -> list[int]:
    """Return the colour of a value; that of an id is grey."""
    rest = value - COLOUR
    return [value] * 3 if rest < 0 else [rest >> 16, rest >> 8 & 255, rest & 255]


def describe(value: int) -> str:
    """Return a number, a colour as 'red,green,blue', or 'no data'."""
    if value == NOTHING:
        return 'no data'
    return str(value) if value < COLOUR else ','.join(map(str, rgb(value)))


def _words(value: int) -> str:
    return f'{value}=NAME' if value < COLOUR else f'NAME={describe(value)}'


def meaning(values: Sequence[int], names: Names, background: bool | None) -> tuple[tuple[str, ...], dict[int, int]]:
    """Return the names of the classes, and the class of each value, -1 for none.

    Args:
        values: Of all maps, in order.
        names: Of the classes.
        background: Whether 0 is a class, which has no name; None if it is as it has one.

    Raises:
        DataError: There is one value only, or a value has no name.
    """
    of_colours = values[-1] >= COLOUR
    is_mask = {*values} - {NOTHING} == {0, IGNORED}
    ignored = {NOTHING} if of_colours or is_mask or IGNORED in names.by_value else {NOTHING, IGNORED}
    if background is False:
        ignored.add(0)
    learnt = [value for value in values if value not in ignored]
    if len(learnt) < 2:
        shown = describe(learnt[0] if learnt else values[0])
        rest = ', beside no data; where that is 0, --background class learns it' * (NOTHING in values)
        raise DataError(f'label maps have the id {shown} only{rest}: there is nothing to choose from; two are needed')
    if not names:
        by_value = {value: _default(value, learnt) for value in learnt}
        if is_mask:
            by_value[IGNORED] = 'object'
    else:
        present = [value for value in values if value not in ignored - {0}]
        by_value = names.of_values(present, background is not None)
        nameless = [value for value in learnt if value not in by_value]
        if nameless == [0]:
            by_value = {0: 'background', **by_value}
        elif nameless:
            raise DataError(
                f'label maps have {", ".join(map(describe, nameless[:8]))}, which have no name in {names.source}: add '
                f'{" ".join(map(_words, nameless[:8]))} to --classes, or to the list of names'
            )
    keys = [value for value in by_value if value not in ignored]
    if not of_colours:
        keys.sort()
    numbers = dict.fromkeys(values, -1) | {value: number for number, value in enumerate(keys)}
    return tuple(by_value[value] for value in keys), numbers


def _default(value: int, values: Sequence[int]) -> str:
    """Return the name of a class that has none."""
    if values[-1] >= COLOUR or values == [0, IGNORED]:
        return f'colour {describe(value)}' if value else 'background'
    is_dense = values[-1] - values[0] == len(values) - 1 and values[0] < 2
    return f'{"class" if is_dense else "id"} {value}'
