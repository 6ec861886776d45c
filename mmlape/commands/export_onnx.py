"""Write a trained model as an ONNX graph for one image of a fixed size, and compare it with PyTorch in onnxruntime:
segmentors, Mask R-CNN, Faster R-CNN and classifiers, or the backbone of any model."""

import argparse

from mmlape.lab.engine.options import add_more, add_size, add_trained, add_trust, height_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_trained(parser, "; CHECKPOINT 'none' keeps the initial weights")
    add_size(
        parser, "the image in pixels; default: the config's sliding window, crop or image size"
    )
    add(
        '--out',
        metavar='PATH',
        help='the .onnx file to write, or a folder for model.onnx; default: onnx in the folder of the run',
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        '--labels',
        action='store_true',
        help="a segmentor's class of each pixel instead of the scores of all classes",
    )
    what.add_argument(
        '--backbone',
        action='store_true',
        help='the maps or tokens of the backbone, of an image that is normalised',
    )
    more = add_more(parser)
    more.add_argument(
        '--opset',
        type=int,
        default=18,
        metavar='N',
        help='version of the operators; default: %(default)s',
    )
    more.add_argument(
        '--tolerance',
        type=float,
        default=1e-4,
        metavar='T',
        help='largest absolute difference; default: %(default)g',
    )
    add_trust(more)


def run(args: argparse.Namespace) -> int:
    """Export, and print how far the graph is from PyTorch."""
    from mmlape.lab.engine.trained import open_trained
    from mmlape.lab.export.model import export, graph_file, image_size

    trained = open_trained(args.trained, args.cfg_options)
    trained.say_chosen()
    cfg, checkpoint = trained.config, trained.checkpoint
    size = height_width(args.size, '--size') or image_size(cfg)
    out = graph_file(trained, args.out)
    options = dict(opset=args.opset, tolerance=args.tolerance)
    with trained.limited():
        if args.backbone:
            from mmlape.export.backbone import export_backbone_of

            difference = export_backbone_of(cfg, checkpoint, size, out, **options)
        else:
            difference = export(cfg, checkpoint, size, out, labels=args.labels, **options)
    shape = ' x '.join(map(str, size))
    print(
        f'wrote {out}: one image of {shape}, {difference:.2g} from PyTorch at most (limit '
        f'{args.tolerance:g})'
    )
    return 0
