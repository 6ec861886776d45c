"""Evaluate a trained model on the test set of its config: overall metrics and those of every class. Every tensor of
the checkpoint must belong to the model."""

import argparse

from mmlape.lab.config.command_options import add_launcher, add_more, add_trained, add_trust


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_trained(parser, '; CHECKPOINT may be a graph of the model: FILE.onnx')
    add('--work-dir', metavar='DIR', help="default: the checkpoint's run, else work_dirs/<name of the config>")
    add('--out', metavar='FILE', help='file for the metrics; default: metrics.json in the work dir')
    add(
        '--save-pred',
        nargs='?',
        const=True,
        metavar='DIR',
        help='save predictions: label PNGs, COCO JSON, or labels; default: predictions in the work dir',
    )
    add(
        '--page',
        nargs='?',
        const=True,
        metavar='FILE',
        help='write a page with confusion matrix, classes, and the twenty worst images; default: metrics.html beside '
        'the metrics',
    )
    add('--show-dir', metavar='DIR', help='draw every image, the ground truth at the left of the prediction')
    add(
        '--tta',
        nargs='*',
        type=float,
        metavar='RATIO',
        help="test-time augmentation: images at these ratios of the config's size, as they are and flipped, or the "
        "config's tta_pipeline and tta_model; default: 0.5 to 1.75 in steps of 0.25",
    )
    add('--compile', choices=('layers',), help='compile the layers of the backbone; default: not')
    add(
        '--backend',
        choices=('pytorch', 'onnx'),
        default='pytorch',
        help='onnx evaluates the graph that export-onnx has written into the folder of the run; default: %(default)s',
    )
    more = add_more(parser)
    add_launcher(more)
    add_trust(more)


def run(args: argparse.Namespace) -> int:
    from mmlape.lab.inference.evaluator import test
    from mmlape.lab.inference.trained_model import open_trained

    trained = open_trained(args.trained, args.cfg_options)
    trained.say_chosen()
    weights, work_dir, name = trained.weights(), args.work_dir, 'metrics'
    if args.backend == 'onnx':
        from mmlape.lab.inference.trained_graph import graph_of

        graph = graph_of(trained)
        weights, work_dir, name = str(graph), work_dir or graph.parent.parent, 'metrics-onnx'
    with trained.limited():
        test(
            trained.config,
            weights,
            work_dir,
            out=args.out,
            save_pred=args.save_pred,
            page=args.page,
            show_dir=args.show_dir,
            launcher=args.launcher,
            name=f'{name}.json' if args.tta is None else f'{name}-tta.json',
            tta=args.tta,
            compile=args.compile,
        )
    return 0
