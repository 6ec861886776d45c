"""Probe how much position the features of plain ViTs hold, by layer: how well a ridge regression reads row and column
of a patch on images that it has not seen. Beside each model is the same one with random values, and the pixels of a
patch alone. Prints a table, and writes it (probe.csv) with a figure (probe.png). With --remove, a second table
(removed.csv) has what is read where position is taken out of the output."""

import argparse

from mmlape.lab.config.command_options import add_grid, add_more, add_size, add_trust, height_width, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        'models',
        nargs='+',
        metavar='MODEL',
        help='a config, a checkpoint of any known layout, CONFIG@CHECKPOINT, or the folder of a run',
    )
    add(
        '--images',
        default='data/mini/coco',
        metavar='DIR',
        help='a folder of images, also in folders below; default: the mini data, %(default)s',
    )
    add('--out', required=True, metavar='DIR', help='receives probe.csv and probe.png')
    add(
        '--num-images',
        type=positive,
        default=200,
        metavar='N',
        help='of the folder, spread over its sorted names; default: %(default)s',
    )
    add_size(parser, 'an image in pixels; default: as the PE, at most 16 patches a side')
    add(
        '--remove',
        type=positive,
        nargs='+',
        default=[],
        metavar='N',
        help='also read the output without N directions of a constant image, without what ridge regressions read, and '
        'without the mean of each place, of every second image',
    )
    add(
        '--fit',
        metavar='FILE',
        help="write the first model's weights with what its remove_position takes out, computed from these images",
    )
    more = add_more(parser)
    add_grid(more)
    add_trust(more)


def run(args: argparse.Namespace) -> int:
    """Probe, print the table, and write it and the figure."""
    from pathlib import Path

    from mmlape.projects.probe.probing import fit_removal, probe_models, write_probes

    grid = tuple(args.grid) if args.grid else None
    images = Path(args.images), args.num_images, height_width(args.size, '--size')
    if args.fit:
        fit_removal(args.models[0], *images, Path(args.fit), grid)
    write_probes(probe_models(args.models, *images, grid, args.remove), Path(args.out))
    return 0
