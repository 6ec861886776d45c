"""The errors that mmlape raises on purpose: one line that names what is wrong, and the fix."""

import difflib
import traceback
from collections.abc import Iterable, Sequence


class MMLaPEError(Exception):
    """Base of every error that the command line shows without a traceback."""


class ConfigError(MMLaPEError, ValueError):
    """A configuration asks for something that does not exist or cannot work."""


class DataError(MMLaPEError, ValueError):
    """A dataset is missing, incomplete or contradicts the configuration."""


class CheckpointError(MMLaPEError, RuntimeError):
    """A checkpoint cannot be read, or does not hold what it is loaded for."""


class MissingCheckpointError(CheckpointError):
    """A checkpoint is not where it should be."""


class StackError(MMLaPEError, RuntimeError):
    """A package of the stack (torch, the MM packages, compiled ops) is missing or too old."""


class TrainingError(MMLaPEError, RuntimeError):
    """Training cannot start, or cannot go on."""


class NotFiniteError(TrainingError):
    """A loss or a weight is NaN or infinite."""


class DiskSpaceError(TrainingError):
    """The checkpoints of a run do not fit on its disk."""


class ExportError(MMLaPEError, RuntimeError):
    """A model cannot be exported, or the export does not compute what the model does."""


def require_choice(key: str, value: object, choices: Iterable, where: str = '') -> None:
    """Raise ConfigError unless the value of an argument is one of the choices.

    The message has them.
    """
    known = list(choices)
    if value not in known:
        raise ConfigError(f'{where}unknown {key}={value!r}; choose one of: {", ".join(map(str, known))}')


def similar_to(name: str, others: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: similar ones, else all that there are."""
    names = [str(other) for other in others]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f'did you mean {" or ".join(close)}?' if close else f'there are: {", ".join(names)}'


def failed_import(error: BaseException) -> bool:
    """Return whether the import of a module has raised an error that was caught since.

    It may be of any type.
    """
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return isinstance(error, ImportError) or any(frame.f_code.co_name == '<module>' for frame in frames)


def shown(error: BaseException) -> str:
    """Return the type and the message of an error on one line, shortened to 300 characters."""
    message = ' '.join(str(error.args[0] if isinstance(error, KeyError) and error.args else error).split())
    message = message if len(message) <= 300 else f'{message[:297]}...'
    return f'{type(error).__name__}: {message}'.removesuffix(': ')


def listed(lines: Sequence[str], shown: int = 6) -> str:
    """Return lines as one text for a message: the first ones, and how many more there are."""
    return '; '.join([*lines[:shown], *([f'and {len(lines) - shown} more'] if len(lines) > shown else [])])
