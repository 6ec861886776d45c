"""`mmlape doctor`: what is installed, what runs, and the command that fixes what does not."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the doctor checks everything."""


def run(args: argparse.Namespace) -> int:
    """Print the table and the fixes; return 1 if something is missing that this installation needs."""
    from mmlape.lab.environment.doctor import examine, show

    return show(examine())
