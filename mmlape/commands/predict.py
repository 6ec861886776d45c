"""Write what a trained model predicts on an image, or on a folder of images: overlays; PNG label maps of a segmentor,
COCO JSON of a detector, classes of a classifier. Images that cannot be read are listed at the end, and the status is
1. Of a video it writes a line of JSON a frame and a video with drawings, and the same command resumes after a kill.
--tile is for large images."""

import argparse
from pathlib import Path

from mmlape.console.quiet import say
from mmlape.errors import ConfigError, listed
from mmlape.lab.config.command_options import SEVERAL, add_more, add_trained, add_trust, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_trained(parser, SEVERAL)
    add('images', metavar='IMAGES', help='a folder of images, also in folders below; or one image, or a video')
    add(
        '--out',
        metavar='DIR',
        help='the folder to write, with one for each of several models; default: predicted in the folder of the run',
    )
    add('--score-thr', type=float, default=0.3, metavar='S', help='draw no objects below; default: %(default)s')
    add(
        '--tile',
        type=positive,
        metavar='N',
        help="predict large images in square tiles of N pixels, and merge what is found; default: the config's",
    )
    more = add_more(parser)
    more.add_argument(
        '--overlap',
        type=int,
        metavar='N',
        help="pixels that tiles share, as large as an object; default: the config's, of --tile an eighth",
    )
    more.add_argument(
        '--batch-size', type=positive, default=1, metavar='N', help='images, or tiles, at once; default: %(default)s'
    )
    more.add_argument('--no-overlays', action='store_true', help='write no drawings')
    more.add_argument('--no-labels', action='store_true', help='draw without names of classes, and without a legend')
    more.add_argument('--overwrite', action='store_true', help='replace the files in DIR')
    more.add_argument('--device', help="such as 'cpu' or 'cuda:0'; default: a GPU if there is one")
    add_trust(more)


def run(args: argparse.Namespace) -> int:
    """Write the predictions; return 1 if images were skipped."""
    from mmlape.lab.inference.predicted_files import images_to_predict, is_clip, predict_clip, predict_files
    from mmlape.lab.inference.prediction import model_of
    from mmlape.lab.inference.trained_model import open_trained, trained_words

    clip, words = is_clip(args.images), trained_words(args.trained)
    if clip and len(words) > 1:
        raise ConfigError(f'{args.images}: several models predict on images; give one for a video')
    outs = {name: Path(args.out, name) for name in words} if args.out else {}
    for out in () if clip else outs.values():  # before a model is downloaded
        images_to_predict(args.images, out, args.overwrite)
    trained = {name: open_trained(named, args.cfg_options) for name, named in words.items()}
    if not outs:
        outs = {name: one.work_dir() / 'predicted' for name, one in trained.items()}
        if len({out.resolve() for out in outs.values()}) < len(outs):
            raise ConfigError(f'{listed([*outs])} are of no folders of their own: give --out')
        for out in () if clip else outs.values():
            images_to_predict(args.images, out, args.overwrite)
    models = {}
    for name, one in trained.items():
        one.say_chosen()
        models[name] = model = model_of(one, args.device)
        say(f'{model.checkpoint}: {model.task}, {len(model.classes)} classes')
    options = dict(
        batch_size=args.batch_size,
        score_thr=args.score_thr,
        overlays=not args.no_overlays,
        labels=not args.no_labels,
        overwrite=args.overwrite,
        tile=args.tile,
        overlap=args.overlap,
    )
    if clip:
        done, skipped = predict_clip(models[''], args.images, outs[''], **options), []
    else:
        done, skipped = predict_files(models, args.images, list(outs.values()), **options)
    what = 'frames' if clip else 'images'
    places = listed([str(out) for out in outs.values()])
    say(f'predicted on {done} {what}' + (f'; the files are in {places}' if done else ''))
    for _, reason in skipped:
        say(f'skipped: {reason}')
    return 1 if skipped else 0
