"""Run by test_distributed.py in two processes of the real launcher: a command that fails as its argument says."""

import argparse
import os
import sys
import time

from mmlape import cli
from mmlape.commands import Command
from mmlape.errors import ConfigError

KINDS = ('before', 'one', 'main', 'every', 'last', 'late', 'bug')
LATE = float(os.environ.get('LATE', 0))
"""Seconds by which the process is late that knows the reason."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('kind', choices=KINDS, metavar='REASON')


def refuse() -> None:
    time.sleep(LATE)
    raise ConfigError('REASON')


def run(args: argparse.Namespace) -> int:
    rank = int(os.environ['RANK'])
    if args.kind == 'before':  # each process by itself
        time.sleep(LATE * rank)
        raise ConfigError('REASON')
    if args.kind == 'one' and rank == 1:  # while the other one waits
        refuse()
    from mmlape.lab.distributed import init_processes, on_every_process, on_main_process

    init_processes('pytorch')
    if args.kind == 'main':
        on_main_process(refuse)
    if args.kind == 'every':
        on_every_process(refuse)
    if args.kind == 'last':
        on_every_process(lambda: refuse() if rank == 1 else None)
    if args.kind == 'late':  # with what it prints and records
        cli.say_error = lambda text, say=cli.say_error: (time.sleep(LATE), say(text))
        on_main_process(refuse)
    if args.kind == 'bug' and rank == 1:
        reason = 'REASON'
        raise LookupError(reason)
    time.sleep(600)
    return 0


if __name__ == '__main__':
    cli.COMMANDS['fails'] = Command('use', 'fail', '__main__')
    sys.exit(cli.main(['fails', *sys.argv[1:]]))
