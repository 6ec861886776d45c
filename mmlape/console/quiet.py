"""Leave out of a command's output what no user can act on, and what would act on the user's terminal.

What the stack prints is left out, except with `MMLAPE_DEBUG=1`. Only commands do this, never an
import: in an interpreter of their own, users see what the stack prints. With `--quiet`, a command
prints warnings and errors only.
"""

import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator

WARNINGS = (
    # mmseg's transform, of what its datasets pass
    (UserWarning, r'`reduce_zero_label` will be deprecated'),
    (UserWarning, r'Default ``avg_non_ignore`` is False'),  # mmseg's loss, of its own default
    # of mmdet's files, where they have not been compiled before
    (SyntaxWarning, r'invalid escape sequence'),
    # mmdet's optional metric, which no config here uses
    (UserWarning, r'faster_coco_eval is not installed'),
    (FutureWarning, r'Importing from timm\.models\.'),
    # MMEngine's mixed precision
    (FutureWarning, r'`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated'),
)
"""Category and beginning of each warning."""

MESSAGES = (
    'Could not import OneDL',
    'The prefix is not set in metric class',
    '"FileClient" will be deprecated in future',
    '"HardDiskBackend" is the alias of "LocalBackend"',
)
"""Beginnings of what MMEngine's logger, or its plain print without a logger, shows."""


_CODES = re.compile(r'[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]')


def printable(text: str) -> str:
    r"""Return text from files and names with its control codes written out, an escape as ``\x1b``.

    Those of a terminal move the cursor or write to the clipboard, those of Unicode turn the
    direction of what follows. Tabs and ends of lines stay.
    """
    return _CODES.sub(lambda code: code[0].encode('unicode_escape').decode(), text)


def say(text: str, **options) -> None:
    """Print text that has values from files; options are those of ``print``."""
    print(printable(text), **options)


def say_error(text: str) -> None:
    """Print the text that ends a command, on stderr, behind what is left of its output."""
    with contextlib.suppress(OSError):  # a full disk
        sys.stdout.flush()
    say(text, file=sys.stderr, flush=True)


def debugging() -> bool:
    """Return whether `MMLAPE_DEBUG` asks for tracebacks and for everything that the stack prints."""
    return os.environ.get('MMLAPE_DEBUG', '0') not in ('', '0')


@contextlib.contextmanager
def quiet_stack(warnings_only: bool = False) -> Iterator[None]:
    """Leave out `WARNINGS` and `MESSAGES`, unless `MMLAPE_DEBUG` is set.

    Args:
        warnings_only: Print warnings and errors, to stderr, and nothing else; log files stay
            complete.
    """
    with _warnings_only() if warnings_only else contextlib.nullcontext(), _without_noise():
        yield


@contextlib.contextmanager
def _warnings_only() -> Iterator[None]:
    """Print nothing to stdout, and of loggers only warnings and errors, to stderr."""

    def emit(handler: logging.StreamHandler, record: logging.LogRecord) -> None:
        if not isinstance(handler, logging.FileHandler):
            if record.levelno < logging.WARNING:
                return
            handler.stream = sys.stderr
        original(handler, record)

    original = logging.StreamHandler.emit
    logging.StreamHandler.emit = emit  # type: ignore[assignment,method-assign]
    try:
        with open(os.devnull, 'w') as nowhere, contextlib.redirect_stdout(nowhere):
            yield
    finally:
        logging.StreamHandler.emit = original  # type: ignore[method-assign]


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Leave out `WARNINGS` and `MESSAGES`, unless `MMLAPE_DEBUG` is set."""
    try:
        from mmengine.logging import MMLogger
        from mmengine.logging import logger as module
    except Exception:  # missing or broken, which the doctor is to report
        module = None
    if debugging() or module is None:
        yield
        return

    def passes(logger: logging.Logger, record: logging.LogRecord) -> bool | logging.LogRecord:
        return not str(record.msg).startswith(MESSAGES) and logging.Logger.filter(logger, record)

    def show(message: object) -> None:
        if not str(message).startswith(MESSAGES):
            print(message)

    # a log that cannot be written, on a full disk, would print a traceback for each line
    logging.raiseExceptions = False
    with warnings.catch_warnings():
        for category, message in WARNINGS:
            warnings.filterwarnings('ignore', message, category)
        # `print_log` prints by its module's `print` if it gets no logger, and is already imported
        # by name everywhere
        MMLogger.filter, module.print = passes, show
        try:
            yield
        finally:
            logging.raiseExceptions = True
            del MMLogger.filter, module.print
