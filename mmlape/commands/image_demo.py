"""Draw a model's prediction on an image: boxes and masks, the segmentation with a legend, or the class."""

import argparse

from mmlape.engine.options import add_config, add_trust
from mmlape.quiet import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('image', metavar='IMAGE', help='an image')
    add_config(parser)
    add('checkpoint', metavar='CHECKPOINT', help='its weights')
    add('--out', required=True, metavar='FILE', help='the image to write (.png, .jpg, ...)')
    add('--score-thr', type=float, default=0.3, metavar='S', help='leave out objects below (%(default)s)')
    add('--device', help="such as 'cpu' or 'cuda:0'; default: a GPU if there is one")
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    """Write the image, and print what is in it."""
    from mmlape.analysis.inference import predict_and_draw

    found = predict_and_draw(
        args.image, args.config, args.checkpoint, args.out, args.score_thr, args.device, args.cfg_options
    )
    for row in found:
        say(f'{row["class"]}: {row["score"]:.3f}' if 'score' in row else f'{row["class"]}: {row["share"]:.1%}')
    if not found:
        print(f'nothing with a score of {args.score_thr} or more: try a lower --score-thr')
    print(f'wrote {args.out}')
    return 0
