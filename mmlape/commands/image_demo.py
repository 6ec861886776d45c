"""`mmlape image-demo`: draws what a trained model finds in a picture."""

import argparse

from mmlape.commands import add_trust_option, apply_trust


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        "Draw a model's prediction on a picture: boxes and masks, the segmentation with a legend, or the class."
    )
    parser.add_argument('image', metavar='IMAGE', help='a picture')
    parser.add_argument('config', metavar='CONFIG', help='a configuration file, or mmlape::folder/name')
    parser.add_argument('checkpoint', metavar='CHECKPOINT', help='weights for it')
    parser.add_argument('--out', required=True, metavar='PICTURE', help='the picture to write (.png, .jpg, ...)')
    parser.add_argument(
        '--score-thr', type=float, default=0.3, metavar='S', help='leave out objects below (%(default)s)'
    )
    parser.add_argument('--device', help="such as 'cpu' or 'cuda:0'; a GPU if there is one")
    add_trust_option(parser)
    parser.add_argument('--cfg-options', nargs='+', metavar='KEY=VALUE', help='changes of the configuration')


def run(args: argparse.Namespace) -> int:
    """Writes the picture and says what is in it."""
    from mmlape.analysis.predictions import predict_and_draw

    apply_trust(args)
    found = predict_and_draw(
        args.image, args.config, args.checkpoint, args.out, args.score_thr, args.device, args.cfg_options
    )
    for row in found:
        print(f'{row["class"]}: {row["score"]:.3f}' if 'score' in row else f'{row["class"]}: {row["share"]:.1%}')
    if not found:
        print(f'nothing with a score of {args.score_thr} or more: try a lower --score-thr')
    print(f'wrote {args.out}')
    return 0
