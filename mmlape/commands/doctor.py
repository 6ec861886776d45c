"""`mmlape doctor`: what is installed, what runs, and the line that mends what does not."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the doctor looks at everything."""


def run(args: argparse.Namespace) -> int:
    """Print the table and the lines; 1 if something that training needs is missing."""
    from mmlape.environment.doctor import examine, show

    return show(examine())
