"""Write the backbone of a config as an ONNX graph for one image of a fixed size, and compare it with PyTorch in
onnxruntime. Heads are not exported."""

import argparse

from mmlape.engine.options import add_config, add_size, add_trust, height_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_config(parser)
    add('checkpoint', metavar='CHECKPOINT', help="weights of the trained model; 'none' keeps the initial ones")
    add_size(parser, 'the image in pixels', required=True)
    add('--out', required=True, metavar='FILE', help='the .onnx file to write')
    add('--opset', type=int, default=18, metavar='N', help='version of the operators; default: %(default)s')
    add('--tolerance', type=float, default=1e-4, metavar='T', help='largest absolute difference; default: %(default)g')
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    """Export, and print how far the graph is from PyTorch."""
    from mmlape.engine.config import load_config
    from mmlape.export.backbone import build_backbone, export_backbone

    cfg = load_config(args.config, args.cfg_options)
    backbone = build_backbone(cfg, None if args.checkpoint == 'none' else args.checkpoint)
    preprocessor = cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor') or {}
    notes = {key: str(preprocessor[key]) for key in ('mean', 'std', 'bgr_to_rgb', 'to_rgb') if key in preprocessor}
    notes.update(config=str(args.config), checkpoint=args.checkpoint)
    shape = height_width(args.size, '--size')
    assert shape is not None, 'argparse requires it'
    difference = export_backbone(backbone, shape, args.out, args.opset, args.tolerance, notes)
    size = ' x '.join(map(str, shape))
    print(f'wrote {args.out}: one image of {size}, {difference:.2g} from PyTorch at most (limit {args.tolerance:g})')
    return 0
