"""Look at a folder of data, and write a config that trains on it: label maps, boxes or masks in the form of COCO,
YOLO, Pascal VOC or LabelMe, a folder for each class. The data are checked first; what must be converted is written
once beside the config, and images are never copied."""

import argparse
import shlex
import sys
from pathlib import Path

from mmlape.lab.config.command_options import positive, seed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('data', metavar='DATA', help="the folder; or a JSON file in COCO's form, or YOLO's data.yaml")
    add('--out', metavar='FILE.py', help='the config; default: <name of the folder>.py')
    add(
        '--task',
        choices=('segmentation', 'boxes', 'masks', 'classes'),
        help='where a folder has data for several tasks',
    )
    add(
        '--classes',
        nargs='+',
        default=[],
        metavar='NAME',
        help='names for the values of label maps, or the numbers of YOLO: 1=scratch 2=stain, scratch=255,0,0 '
        'stain=0,255,0, names alone where that is clear, or a file with one a line',
    )
    add(
        '--background',
        choices=('class', 'ignore'),
        help='0 of label maps has no name, and is a class or not learnt; default: a class if all others have names',
    )
    add(
        '--model',
        metavar='NAME',
        help='of mmlape list-models or timm, or mini, a small ViT from initial values; default: a frozen ViT whose '
        'weights are on this machine, else mini',
    )
    add(
        '--head',
        choices=('linear', 'adapter', 'plain-detr'),
        help='over a ViT of timm: linear or adapter for segmentation, by default linear for at most 100 images; '
        'adapter (Faster R-CNN) or plain-detr for boxes',
    )
    add('--fine-tune', action='store_true', help='train a ViT of timm, too, by layer decay; default: it is frozen')
    add('--weights', metavar='FILE', help="of the model; default: timm's own for a name of timm")
    length = parser.add_mutually_exclusive_group()
    length.add_argument('--time', metavar='TIME', help='how long the run may take here, such as 30m or 2h')
    length.add_argument('--iters', type=positive, metavar='N', help='iterations of the run')
    add(
        '--patience',
        type=int,
        default=5,
        metavar='N',
        help='validations without a better value that end the run, 0 for none; default: %(default)s',
    )
    add('--balance', action='store_true', help='let rare classes count more: weights in the loss, or repeated images')
    add(
        '--split',
        choices=('clips', 'random'),
        default='clips',
        help='where the data have none: images whose names differ by a running number alone are frames of one clip, '
        'and stay together, or each image is drawn; default: %(default)s',
    )
    add('--seed', type=seed, default=0, help='of the split, where the data have none; default: %(default)s')


def run(args: argparse.Namespace) -> int:
    """Write the config."""
    import signal

    from mmlape.errors import ConfigError
    from mmlape.files import naming
    from mmlape.new.choices import parse_time, stem_of
    from mmlape.new.command import write_config

    seconds = None
    if args.time:
        try:
            seconds = parse_time(args.time)
        except ValueError as error:
            raise ConfigError(f'--time: {error}') from error
    data = Path(args.data)
    out = Path(args.out or f'{stem_of(data)}.py')
    if out.suffix != '.py':
        raise ConfigError(f'--out {out}: a config ends with .py')
    # an exit, so that nothing is left behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with naming(out):
        write_config(
            data,
            out,
            'mmlape ' + shlex.join(sys.argv[1:] if sys.argv[1:2] == ['new'] else ['new', args.data]),
            task=args.task,
            names=tuple(args.classes),
            background=None if args.background is None else args.background == 'class',
            model=args.model,
            weights=args.weights,
            seconds=seconds,
            iterations=args.iters,
            patience=args.patience,
            balance=args.balance,
            seed=args.seed,
            split=args.split,
            head=args.head,
            fine_tune=args.fine_tune,
        )
    return 0
