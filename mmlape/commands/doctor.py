"""Print the versions of the installed packages, and what keeps them from being imported, with the command that fixes
it; status 1 if there is something."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the doctor imports everything."""


def run(args: argparse.Namespace) -> int:
    from mmlape.lab.environment import PACKAGES, installed, stack_problems

    print(*(' '.join(found) for module in PACKAGES if (found := installed(module))), sep='\n')
    problems = stack_problems()
    print('\n'.join(problems) or 'the packages of this installation can be imported')
    return int(bool(problems))
