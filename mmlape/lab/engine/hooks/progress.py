"""A line on the terminal that shows how far training is; the log has the same in full."""

import logging
import shutil
import sys
import time

from mmengine.dist import is_main_process
from mmengine.hooks import Hook

from mmlape.console import clock
from mmlape.lab.registry import HOOKS

_CLEAR = '\r\x1b[K'


@HOOKS.register_module()
class ProgressHook(Hook):
    """Show iteration, loss, speed and time left on one line of a terminal.

    The log continues above it. Where the output is no terminal, nothing is shown.
    """

    changes_results = False
    priority = 'LOWEST'
    interval = 0.5
    """Seconds between two changes of the line."""

    def __init__(self) -> None:
        self.shows = False

    def before_train(self, runner) -> None:
        """Start the clock, and have what is logged clear the line first."""
        self.shows = is_main_process() and sys.stdout.isatty()
        self.started, self.first, self.shown = time.monotonic(), runner.iter, 0.0
        self.clearing = _ClearingHandler()
        if self.shows:
            runner.logger.handlers.insert(0, self.clearing)

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs: dict | None = None) -> None:
        """Replace the line."""
        now, done = time.monotonic(), runner.iter + 1
        if not self.shows or now - self.shown < self.interval:
            return
        self.shown = now
        speed = (done - self.first) / max(now - self.started, 1e-9)
        loss = f', loss {float(outputs["loss"].detach()):.4g}' if outputs and 'loss' in outputs else ''
        left = clock((runner.max_iters - done) / speed)
        line = f'iteration {done} of {runner.max_iters}{loss}, {speed:.3g} a second, {left} left'
        # the cursor goes back, so that whatever is printed next covers the line
        print(f'{_CLEAR}{line[: shutil.get_terminal_size().columns - 1]}', end='\r', flush=True)

    def before_val(self, runner) -> None:
        """Clear the line."""
        self._clear()

    def after_train(self, runner) -> None:
        """Clear the line for good."""
        self._clear()
        if self.shows:
            runner.logger.handlers.remove(self.clearing)

    def _clear(self) -> None:
        if self.shows:
            print(_CLEAR, end='', flush=True)


class _ClearingHandler(logging.Handler):
    """Clears the line before other handlers print; it stands in front of them."""

    def emit(self, record: logging.LogRecord) -> None:
        print(_CLEAR, end='', flush=True)
