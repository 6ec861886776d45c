"""One module per sub-command, whose docstring is its help; ``add_arguments(parser)`` and ``run(args) -> status``.

Heavy imports are inside ``run``.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from mmlape.lab.config.command_options import add_quiet
from mmlape.lab.extension import extensions

GROUPS: dict[str, dict[str, str]] = {
    'start': {
        'demo': 'run the full pipeline on the mini data, in five to eleven minutes on two cores',
        'new': 'look at a folder of data, and write a config that trains on it',
        'doctor': 'print why packages cannot be imported, and the command that fixes it',
        'make-mini-data': 'write the mini data: handwritten digits, or photographed objects, as '
        'COCO, ADE20K and ImageNet',
        'install-ops': "let MM's own tools do without a compiled mmcv",
    },
    'train': {
        'train': 'train a config',
        'check-data': "check every file and annotation of a config's data before training",
        'print-config': 'print what a config resolves to, how it differs from another, where its values come from',
        'print-params': "print the parameter groups of a config's optimiser",
        'status': 'show the runs below a work dir: state, time left, last metric, host',
    },
    'compare': {
        'multi-seed': 'train a study or configs with several seeds, here or as Slurm jobs, and average',
        'report': 'average and compare arms: a page, Markdown, LaTeX, CSV, JSON',
        'list-studies': 'print the studies, with the data, processes and time that each needs',
        'sample-size': 'compute how many seeds a difference needs, from the spread of a pilot',
    },
    'use': {
        'test': 'evaluate a checkpoint: box and mask AP, mIoU, accuracy',
        'predict': 'write what a trained model predicts on images: overlays, label maps, COCO JSON',
        'export-onnx': 'write a trained model, or its backbone, as an ONNX graph, checked against PyTorch',
        'checkpoint': 'inspect, convert or publish a checkpoint; average the weights of several',
    },
    'papers': {
        'plot-grad-norms': 'plot gradient norms by depth, of runs trained with --log-grad-norm',
        'model-cost': 'count parameters and FLOPs of a config, by part',
        'list-models': 'print the names of the models that mmlape.get_model builds',
    },
}
"""The sub-commands by what they are for, each with its line of help; those of extensions are for papers."""


@dataclass(frozen=True)
class Command:
    """A sub-command."""

    group: str
    text: str  # its line of help
    path: str  # of its module

    @property
    def module(self) -> ModuleType:
        """Its module, imported."""
        return import_module(self.path)


COMMANDS = {
    name: Command(group, text, f'mmlape.commands.{name.replace("-", "_")}')
    for group, commands in GROUPS.items()
    for name, text in commands.items()
} | {name: Command('papers', text, path) for one in extensions() for name, (path, text) in one.commands.items()}


def fill_parser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """Add the arguments of a sub-command, and what all take, to a parser, and return it."""
    COMMANDS[name].module.add_arguments(parser)
    add_quiet(parser)
    parser.set_defaults(quiet=False)
    return parser


def parse_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse the words behind a sub-command.

    What follows ``--`` is ``extra``, of commands that pass it on to training; argparse has no such argument that is
    also optional.
    """
    passes_on = parser.get_default('extra') is not None
    end = words.index('--') if passes_on and '--' in words else len(words)
    # the words of an argument that takes several may stand before and behind an option
    is_mixed = parser.get_default('words_between_options')
    args = (parser.parse_intermixed_args if is_mixed else parser.parse_args)(words[:end])
    if passes_on:
        args.extra = list(words[end + 1 :])
    return args
