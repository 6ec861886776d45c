"""One module per sub-command, whose docstring is its help; ``add_arguments(parser)`` and ``run(args) -> status``.

Heavy imports are inside ``run``.
"""

import argparse
from importlib import import_module
from types import ModuleType

# name -> one line of help; the module is mmlape.commands.NAME, or of a folder of mmlape.projects
COMMANDS = {
    'train': 'train a config',
    'test': 'evaluate a checkpoint: box and mask AP, mIoU, accuracy',
    'multi-seed': 'train a study or configs with several seeds, here or as Slurm jobs, and average',
    'status': 'show the runs below a work dir: state, time left, last metric, host',
    'report': 'average and compare arms: a page, Markdown, LaTeX, CSV, JSON',
    'sample-size': 'compute how many seeds a difference needs, from the spread of a pilot',
    'predict': 'write what a trained model predicts on a folder of images: overlays, label maps, COCO JSON',
    'image-demo': "draw a model's prediction on an image",
    'visualize-pe': 'draw the position embedding of each layer, its correlation, and the patch embedding',
    'plot-grad-norms': 'plot gradient norms by depth, of runs trained with --log-grad-norm',
    'check-data': "check every file and annotation of a config's data before training",
    'make-mini-data': 'write the mini data: handwritten digits, or photographed objects, as COCO, ADE20K and ImageNet',
    'checkpoint': 'inspect, convert, publish, push or pull a checkpoint; average the weights of several',
    'export-onnx': 'write a trained model, or its backbone, as an ONNX graph, checked against PyTorch',
    'print-config': 'print what a config resolves to, how it differs from another, where its values come from',
    'list-studies': 'print the studies, with the data, processes and time that each needs',
    'list-models': 'print the names of the models that mmlape.get_model builds',
    'print-params': "print the parameter groups of a config's optimiser",
    'model-cost': 'count parameters and FLOPs of a config, by part',
    'demo': 'run the full pipeline on the mini data, in five minutes on two cores',
    'completion': 'print the script with which a shell completes this command',
    'doctor': 'check the installation, and print the command that fixes each problem',
    'install-ops': "let MM's own tools do without a compiled mmcv",
}
OF_PROJECTS: dict[str, tuple[str, str]] = import_module('mmlape.projects').COMMANDS
COMMANDS |= {name: text for name, (_, text) in OF_PROJECTS.items()}


def module_of(name: str) -> ModuleType:
    """Return the module of a sub-command."""
    own = f'mmlape.commands.{name.replace("-", "_")}'
    return import_module(OF_PROJECTS.get(name, (own, ''))[0])


def fill_parser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """Add the arguments of a sub-command, and what all take, to a parser, and return it."""
    module_of(name).add_arguments(parser)
    _add_quiet(parser, default=False)
    return parser


def _add_quiet(parser: argparse.ArgumentParser, default: object) -> None:
    parser.add_argument(
        '--quiet', action='store_true', default=default, help='print warnings and errors only'
    )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _add_quiet(child, argparse.SUPPRESS)  # which would replace the parent's value
