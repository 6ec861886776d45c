"""Print the script with which a shell completes `mmlape`: `mmlape completion bash >
~/.local/share/bash-completion/completions/mmlape` once, or `mmlape completion zsh > DIR/_mmlape` with a DIR of $fpath.
It knows the names of configs, such as `mmlape::segmenter/...`, and files. A new version of the package needs a new
script."""

import argparse

from mmlape.commands import COMMANDS, fill_parser
from mmlape.mim import PREFIX, mim_root

CONFIGS = ('CONFIG', 'STUDY', 'MODEL', 'OTHER')
"""How the help names arguments that are configs."""
BASH_NAMES = """
_mmlape_config_files() {
  compgen -f -- "$1"
  compgen -W '%s' -- "$1"
}
"""
ZSH_NAMES = """
_mmlape_config_files() {
  local -a names=(%s)
  _alternative 'files:file:_files' 'names:config:compadd -a names'
}
"""
BASH_COLONS = """
# bash splits words at colons, which names of configs have: join them, complete, and leave out what is typed already
_mmlape() {
  local words=() word typed
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    if ((${#words[@]})) && [[ $word == :* || ${words[-1]} == *: ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
  done
  COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1)) typed=${words[-1]}
  _shtab_mmlape
  COMPREPLY=("${COMPREPLY[@]#"${typed%"${typed##*:}"}"}")
}

complete -o bashdefault -F _mmlape mmlape
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('shell', choices=('bash', 'zsh', 'tcsh'), help='the shell that completes')


def run(args: argparse.Namespace) -> int:
    import shtab

    parser = complete_parser()
    names = ' '.join(_config_names())
    print(shtab.complete(parser, args.shell, preamble={'bash': BASH_NAMES % names, 'zsh': ZSH_NAMES % names}))
    if args.shell == 'bash':
        print(BASH_COLONS)
    return 0


def _complete_values(parser: argparse.ArgumentParser) -> None:
    """Let a shell complete the value of each option, and of those of sub-commands: the name of a config, or a file."""
    import shtab

    configs = {'bash': '_mmlape_config_files', 'zsh': '_mmlape_config_files', 'tcsh': 'f'}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _complete_values(child)
        elif isinstance(action, argparse._StoreAction) and action.choices is None and action.type is None:
            is_config = str(action.metavar).partition(' ')[0] in CONFIGS
            action.complete = configs if is_config else shtab.FILE  # type: ignore[attr-defined]


def complete_parser() -> argparse.ArgumentParser:
    """Return one parser with every sub-command and its options."""
    parser = argparse.ArgumentParser('mmlape')
    parser.add_argument('-V', '--version', action='store_true', help='print the version')
    commands = parser.add_subparsers()
    for name, command in COMMANDS.items():
        # the description is what zsh shows; the command's own is long
        below = commands.add_parser(name, help=command.text, description=command.text)
        fill_parser(below, name)
    _complete_values(parser)
    return parser


def _config_names() -> list[str]:
    """Return the names of the configs and studies that come with the package."""
    root = mim_root()
    configs = (path.relative_to(root / 'configs').with_suffix('') for path in root.glob('configs/[!_]*/**/*.py'))
    studies = (path.relative_to(root) for path in root.glob('studies/*.yml'))
    return sorted(f'{PREFIX}{path.as_posix()}' for path in (*configs, *studies))
