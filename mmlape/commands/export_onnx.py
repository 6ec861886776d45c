"""Write a trained model as an ONNX graph for images of one size, and compare it with PyTorch in onnxruntime:
segmentors, Mask R-CNN, Faster R-CNN and classifiers, or the backbone of any model."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mmlape.console.quiet import say
from mmlape.lab.config.command_options import (
    SEVERAL,
    add_more,
    add_size,
    add_trained,
    add_trust,
    height_width,
    positive,
)

if TYPE_CHECKING:
    from mmlape.lab.inference.trained_model import Trained


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_trained(parser, f"; CHECKPOINT 'none' keeps the initial weights{SEVERAL}")
    add_size(parser, "an image in pixels; default: the config's sliding window, tile, crop or image size")
    add(
        '--batch',
        type=_batch,
        default=1,
        metavar='N',
        help="how many images the graph takes at once, or 'dynamic' for any number; default: %(default)s",
    )
    add(
        '--out',
        metavar='PATH',
        help='the folder for model.onnx, labels.txt, model.json and example.py, or a file for the graph alone, '
        'PATH.onnx; default: onnx in the folder of the run',
    )
    add(
        '--check',
        metavar='DIR',
        help='run images of yours through PyTorch and the graph, and print how many labels are equal, AP or mIoU '
        "if DIR has the config's test set, and the time of an image",
    )
    add(
        '--graph',
        metavar='FILE',
        help='with --check: check this graph, which another tool has written or made smaller, and export nothing',
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        '--labels', action='store_true', help="a segmentor's class of each pixel instead of the scores of all classes"
    )
    what.add_argument(
        '--backbone', action='store_true', help='the maps or tokens of the backbone, of an image that is normalised'
    )
    more = add_more(parser)
    more.add_argument(
        '--tolerance',
        type=float,
        default=1e-4,
        metavar='T',
        help='largest absolute difference from PyTorch; default: %(default)s',
    )
    add_trust(more)


def _batch(text: str) -> int | None:
    """Parse a number of images; None for any."""
    if text == 'dynamic':
        return None
    try:
        return positive(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor 'dynamic'") from None


def run(args: argparse.Namespace) -> int:
    """Export, and print how far the graph is from PyTorch; return 1 if it fails the check of images."""
    from mmlape.console.terminal import file_size
    from mmlape.errors import ConfigError
    from mmlape.lab.export.graphs import SUFFIX
    from mmlape.lab.export.writing import Form, size_on_disk
    from mmlape.lab.inference.images import files_of
    from mmlape.lab.inference.trained_graph import complete, export, graph_file, image_size
    from mmlape.lab.inference.trained_model import open_trained, trained_words

    if args.check and args.backbone:
        raise ConfigError('--check compares predictions: a backbone alone has none')
    if args.graph and not args.check:
        raise ConfigError('--graph names what --check DIR compares: give DIR, too')
    models = {name: open_trained(words, args.cfg_options) for name, words in trained_words(args.trained).items()}
    trained = next(iter(models.values()))
    if len(models) > 1 and (args.backbone or not (args.out or args.graph)):
        raise ConfigError(f'{len(models)} models make one graph: give --out{" without --backbone" * args.backbone}')
    for one in models.values():
        one.say_chosen()
        if args.check:  # before the export, which may take minutes
            one.weights()
            files_of(args.check)
    if args.graph:
        return _check(models, Path(args.graph), args.check)
    size = height_width(args.size, '--size') or image_size(trained.config)
    out = graph_file(trained, args.out)
    form = Form(size, args.batch, args.tolerance)
    if args.backbone:
        from mmlape.backbones import export_backbone

        difference = export_backbone(trained, form, out)
    else:
        difference = export(models if len(models) > 1 else trained, form, out, labels=args.labels)
    if not str(args.out or '').endswith(SUFFIX):
        complete(out)
    apart = f'{difference:.2g} from PyTorch at most (limit {form.tolerance:g})'
    say(f'wrote {out}: {form.images}, {file_size(size_on_disk(out))}; {apart}')
    return _check(models, out, args.check) if args.check else 0


def _check(models: 'dict[str, Trained]', graph: Path, images: str) -> int:
    """Compare the models of a graph on images; return 1 if one fails."""
    from mmlape.lab.inference.trained_graph import check

    status = 0
    for name, trained in models.items():
        if name:
            say(f'{name}:')
        with trained.limited():
            status |= not check(trained, graph, images, name).passes
    return status
