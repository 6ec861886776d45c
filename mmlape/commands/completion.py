"""Print the script with which a shell completes `mmlape`: `mmlape completion bash >
~/.local/share/bash-completion/completions/mmlape` once, or `mmlape completion zsh > DIR/_mmlape` with a DIR of $fpath.
A new version of the package needs a new script."""

import argparse

from mmlape.commands import COMMANDS, command_module


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('shell', choices=('bash', 'zsh', 'tcsh'), help='the shell that completes')


def run(args: argparse.Namespace) -> int:
    import shtab

    parser = complete_parser()
    _complete_files(parser)
    print(shtab.complete(parser, args.shell))
    return 0


def complete_parser() -> argparse.ArgumentParser:
    """Return one parser with every sub-command and its options."""
    parser = argparse.ArgumentParser('mmlape')
    parser.add_argument('-V', '--version', action='store_true', help='print the version')
    commands = parser.add_subparsers()
    for name, text in COMMANDS.items():
        module = command_module(name)
        command = commands.add_parser(name, help=text)
        module.add_arguments(command)
        command.description = text  # which zsh shows; the command's own is long
    return parser


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Have files completed wherever a text is expected, in sub-parsers too."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _complete_files(child)
        elif action.choices is None and action.type is None and action.nargs != 0:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
