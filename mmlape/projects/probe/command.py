"""Probe how much position the features of a plain ViT hold, by layer: how well row and column of a patch are read by a
linear probe on held-out images, how much of the features' variance the place explains, how much they change when the
image moves by whole patches, and what a canvas of 1.5 and 2 times the side keeps. Beside each model are its controls:
the same architecture with random values, and the pixels of a patch alone. Writes a page (index.html), figures and
probe.json. Killed, the same command continues: a model that DIR has measured is not measured again."""

import argparse

from mmlape.lab.engine.options import add_grid, add_more, add_size, add_trust, height_width, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        'model',
        metavar='MODEL',
        help='a config, a checkpoint of any known layout, CONFIG@CHECKPOINT, the folder of a run; NAME or '
        'NAME@CHECKPOINT of `mmlape list-models`',
    )
    add('--compare', nargs='+', default=[], metavar='MODEL', help='further models, in the figures beside it')
    add(
        '--images',
        default='data/mini/coco',
        metavar='DIR',
        help='a folder of images, also in folders below; default: the mini data, %(default)s',
    )
    add('--out', required=True, metavar='DIR', help='receives the page, figures and probe.json')
    add(
        '--num-images',
        type=positive,
        default=200,
        metavar='N',
        help='of the folder, spread over its sorted names; default: %(default)s',
    )
    add_size(parser, 'an image in pixels; default: as the PE, at most 16 patches a side')
    more = add_more(parser)
    more.add_argument(
        '--shifts',
        type=positive,
        nargs='+',
        default=[1, 4],
        metavar='N',
        help='by which images move, in patches; default: 1 4',
    )
    more.add_argument('--no-canvas', action='store_true', help='leave larger canvases out')
    more.add_argument('--no-control', action='store_true', help='leave random values out, which take half of the time')
    add_grid(more)
    add_trust(more)


def run(args: argparse.Namespace) -> int:
    """Probe, print the table, and write the page."""
    from pathlib import Path

    from mmlape.console import console
    from mmlape.projects.probe.page import summary_table, write_probe_page
    from mmlape.projects.probe.probing import CANVASES, Settings, probe_models
    from mmlape.tables import console_table

    settings = Settings(
        Path(args.images),
        args.num_images,
        height_width(args.size, '--size'),
        sorted(set(args.shifts)),
        () if args.no_canvas else CANVASES,
        not args.no_control,
    )
    out = Path(args.out)
    grid = tuple(args.grid) if args.grid else None
    probes = probe_models([args.model, *args.compare], settings, out, grid)
    console().print(console_table(summary_table(probes), 'Position in the features'))
    files = write_probe_page(probes, out)
    names = ', '.join(file.name for file in files[1:])
    print(f'wrote {files[0]}, and beside it {names} and probe.json')
    return 0
