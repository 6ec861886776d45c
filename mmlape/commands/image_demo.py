"""Draw a model's prediction on an image, or on each image of a folder: boxes and masks, the segmentation with a
legend, or the class."""

import argparse

from mmlape.lab.engine.options import add_config, add_more, add_trust
from mmlape.quiet import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('image', metavar='IMAGE', help='an image, or a folder of images')
    add_config(parser)
    add('checkpoint', metavar='CHECKPOINT', help='its weights')
    add(
        '--out',
        required=True,
        metavar='FILE',
        help='the image to write (.png, .jpg, ...), or a folder',
    )
    more = add_more(parser)
    more.add_argument(
        '--score-thr',
        type=float,
        default=0.3,
        metavar='S',
        help='leave out objects below; default: %(default)s',
    )
    more.add_argument('--device', help="such as 'cpu' or 'cuda:0'; default: a GPU if there is one")
    add_trust(more)


def run(args: argparse.Namespace) -> int:
    """Write the drawings, and print what is in each image."""
    from mmlape.lab.analysis.inference import files_to_draw, predict_and_draw_each

    files = files_to_draw(args.image, args.out)
    found = predict_and_draw_each(
        files, args.config, args.checkpoint, args.score_thr, args.device, args.cfg_options
    )
    for (image, out), rows in zip(files, found):
        if len(files) > 1:
            say(f'{image}:')
        for row in rows:
            say(
                f'{row["class"]}: {row["score"]:.3f}'
                if 'score' in row
                else f'{row["class"]}: {row["share"]:.1%}'
            )
        if not rows:
            print(f'nothing with a score of {args.score_thr} or more: try a lower --score-thr')
        say(f'wrote {out}')
    return 0
