"""Evaluate trained models at several sizes of the test images, of classification, segmentation or detection: how a
position encoding bears sizes that it was not trained at. --sizes resizes the images; --scales draws the scenes of mini
data on larger and smaller canvases, with objects of the same size. Writes a table and a figure of the metric by side,
with intervals over the seeds of an arm, and the numbers. Sizes that were evaluated are not evaluated again."""

import argparse

from mmlape.lab.config.command_options import add_cfg_options, add_more, add_trust

SCALES = (0.75, 1.0, 1.5, 2.0, 4.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        'models',
        nargs='+',
        metavar='MODELS',
        help='a study, whose runs are in work_dirs/NAME; a work dir of `mmlape multi-seed` or `mmlape train`; or '
        'CONFIG CHECKPOINT, a config and the full model; any number of each',
    )
    add(
        '--arms',
        nargs='+',
        metavar='ARM',
        help="which of a study or work dir, or patterns such as 'rope*'; default: all",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument('--sizes', type=int, nargs='+', metavar='S', help='shorter sides in pixels')
    shown = ' '.join(f'{scale:g}' for scale in SCALES)
    which.add_argument(
        '--scales',
        type=float,
        nargs='+',
        metavar='F',
        help=f'sides of the canvas, in those of the trained size, which is added; default: {shown}',
    )
    add(
        '--out',
        required=True,
        metavar='DIR',
        help='receives table, figure and numbers, metrics of each size, and drawn scenes',
    )
    add_cfg_options(parser)
    add_trust(add_more(parser))


def run(args: argparse.Namespace) -> int:
    """Evaluate, write table and figure; return 1 if a run does not count."""
    import math

    from mmlape.console.quiet import say
    from mmlape.console.tables import print_table
    from mmlape.errors import ConfigError
    from mmlape.projects.size_sweep.sweep import read_models, sweep_models

    if args.sizes and min(args.sizes) < 1:
        raise ConfigError(f'--sizes are in pixels, from 1 on, not {min(args.sizes)}')
    wrong = [scale for scale in args.scales or () if not (math.isfinite(scale) and scale > 0)]
    if wrong:
        raise ConfigError(f'--scales are factors above 0, such as 0.75 1.5 2, not {wrong[0]:g}')
    models, skipped = read_models(args.models, args.cfg_options, args.arms)
    sizes = args.sizes or [1.0, *(args.scales or SCALES)]
    report, table, files = sweep_models(models, sorted(set(sizes)), args.out, not args.sizes)
    print_table(table, report.title)
    for line in skipped:
        say(f'not counted: {line}')
    print(f'wrote {files[0]}, and beside it {", ".join(file.name for file in files[1:])}')
    return 1 if skipped else 0
