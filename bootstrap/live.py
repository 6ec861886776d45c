"""Run a long command with its output in a log file and one live line of progress: on a terminal it is rewritten,
elsewhere a line is printed every 20 seconds."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

PERIOD = 20.0
_NINJA = re.compile(r'\[(\d+)/(\d+)\]')
_PIP = re.compile(r'(Collecting|Downloading|Building wheels?|Installing collected packages|Preparing metadata)\b.*')


class StepFailed(RuntimeError):
    """A command of the set-up ended with an error; its log says why."""

    def __init__(self, title: str, log: Path):
        super().__init__(title)
        self.title = title
        self.log = log


def minutes(seconds: float) -> str:
    """Write a duration as m:ss."""
    return f'{int(seconds) // 60}:{int(seconds) % 60:02d}'


class Progress:
    """What a command is doing, read from the lines that it prints.

    Args:
        title: Name of the step, printed in front.
        clock: Returns the seconds since the start of the step.
    """

    def __init__(self, title: str, clock):
        self.title = title
        self.clock = clock
        self.doing = ''
        self.done = self.total = 0
        self.first: tuple[float, int] | None = None  # when the compiler's first file was ready, and how many were

    def feed(self, line: str) -> None:
        """Take one line of output: the compiler's `[k/n]`, or what pip is busy with."""
        if match := _NINJA.match(line.strip()):
            self.done, self.total = int(match[1]), int(match[2])
            if self.first is None:
                self.first = (self.clock(), self.done)
        elif match := _PIP.match(line.strip()):
            self.doing = re.sub(r'https?://\S*/', '', match[0]).removesuffix(': started')[:70]

    def text(self) -> str:
        """Return the line to show."""
        now = self.clock()
        if not self.total:
            return f'{self.title}: {minutes(now)} {self.doing}'
        line = f'{self.title}: compiled {self.done} of {self.total} files ({100 * self.done // self.total} %), '
        since, count = self.first
        if self.done == self.total:
            return f'{line}{minutes(now)} gone, linking'
        if self.done == count:
            return f'{line}{minutes(now)} gone'
        left = (now - since) / (self.done - count) * (self.total - self.done)
        return f'{line}{minutes(now)} gone, about {minutes(left)} left'


def run(title: str, command: Sequence[str | Path], log: Path, env: dict[str, str] | None = None) -> None:
    """Run a command to its end.

    Args:
        title: Name of the step.
        command: Program and arguments.
        log: File that keeps everything that the command prints.
        env: Variables to add to the environment.

    Raises:
        StepFailed: The command returned an error.
    """
    start = time.monotonic()
    progress = Progress(title, lambda: time.monotonic() - start)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open('w', encoding='utf-8') as file:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {}), 'PYTHONUNBUFFERED': '1'},
            text=True,
            errors='replace',
        )
        ended = threading.Event()
        shower = threading.Thread(target=_show, args=(progress, ended), daemon=True)
        shower.start()
        try:
            for line in process.stdout:
                file.write(line)
                file.flush()
                progress.feed(line)
            status = process.wait()
        except BaseException:
            process.terminate()
            raise
        finally:
            ended.set()
            shower.join()
    if status:
        raise StepFailed(title, log)
    print(f'{title}: done in {minutes(time.monotonic() - start)}', flush=True)


def _show(progress: Progress, ended: threading.Event) -> None:
    """Show the progress until the command has ended."""
    terminal = sys.stdout.isatty()
    width = os.get_terminal_size().columns - 1 if terminal else 0
    while not ended.wait(1.0 if terminal else PERIOD):
        if terminal:
            print('\r' + progress.text()[:width].ljust(width), end='', flush=True)
        else:
            print(progress.text(), flush=True)
    if terminal:
        print('\r' + ' ' * width + '\r', end='', flush=True)
