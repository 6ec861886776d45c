"""Write a trained model as an ONNX graph for images of one size, and compare it with PyTorch in onnxruntime:
segmentors, Mask R-CNN, Faster R-CNN and classifiers, or the backbone of any model."""

import argparse

from mmlape.lab.engine.options import add_more, add_size, add_trained, add_trust, height_width, positive
from mmlape.quiet import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_trained(parser, "; CHECKPOINT 'none' keeps the initial weights")
    add_size(parser, "an image in pixels; default: the config's sliding window, tile, crop or image size")
    add(
        '--batch',
        type=_batch,
        default=1,
        metavar='N',
        help="how many images the graph takes at once, or 'dynamic' for any number; default: %(default)s",
    )
    add(
        '--precision',
        choices=('fp32', 'fp16', 'int8'),
        default='fp32',
        help='fp16 halves the file, and is fast on GPUs; int8 has a third of it, and needs --calibration; scores, '
        'softmax, norms, logits and boxes stay in fp32; default: %(default)s',
    )
    add(
        '--calibration',
        metavar='DIR',
        help='images like those of the use, at most 100 of them, whose largest values are those that int8 can hold',
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
        metavar='T',
        help='largest absolute difference from PyTorch; default: 0.0001, and 0.05 of fp16; of int8 the share of '
        'labels that differ from those of fp32, default: 0.1',
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
    from mmlape.console import file_size
    from mmlape.errors import ConfigError
    from mmlape.lab.analysis.images import files_of
    from mmlape.lab.engine.graphs import SUFFIX
    from mmlape.lab.engine.trained import open_trained
    from mmlape.lab.export.integer import calibration_files, export_integers
    from mmlape.lab.export.model import complete, export, graph_file, image_size
    from mmlape.lab.export.writing import Form

    if args.check and args.backbone:
        raise ConfigError('--check compares predictions: a backbone alone has none')
    integers = args.precision == 'int8'
    if integers and args.backbone:
        raise ConfigError('--precision int8 is for complete models: --backbone takes fp32 and fp16')
    if integers != bool(args.calibration):
        raise ConfigError('--precision int8 and --calibration DIR belong together')
    trained = open_trained(args.trained, args.cfg_options)
    trained.say_chosen()
    cfg, checkpoint = trained.config, trained.checkpoint
    if args.check:  # before the export, which may take minutes
        trained.weights()
        files_of(args.check)
    if integers:
        calibration_files(args.calibration)
    size = height_width(args.size, '--size') or image_size(cfg)
    out = graph_file(trained, args.out)
    form = Form(size, args.batch, args.precision, args.tolerance)
    with trained.limited():
        if args.backbone:
            from mmlape.backbones import export_backbone_of

            written = export_backbone_of(cfg, checkpoint, form, out)
        elif integers:
            written = export_integers(cfg, checkpoint, form, out, args.calibration, labels=args.labels)
        else:
            written = export(cfg, checkpoint, form, out, labels=args.labels)
    if not str(args.out or '').endswith(SUFFIX):
        complete(written.path)
    apart = f'{written.difference:.2g} from PyTorch at most (limit {form.limit:g})'
    if integers:
        apart = f'{written.difference:.2%} of the labels not those of fp32 (limit {form.limit:.0%})'
    say(f'wrote {written.path}: {form.images}, {form.precision}, {file_size(written.size)}; {apart}')
    if not args.check:
        return 0
    from mmlape.lab.export.check import check

    with trained.limited():
        return 0 if check(cfg, trained.weights(), written.path, args.check).passes else 1
