"""Count parameters and FLOPs for one image, a multiply-add being one. RoI heads are counted on 1000 boxes and 100
masks; norms, activations and post-processing are not counted. No checkpoint is read."""

import argparse

from mmlape.lab.config.command_options import CONFIG_HELP, OR_RUN, add_cfg_options, add_size, height_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('configs', metavar='CONFIG', nargs='+', help=CONFIG_HELP + OR_RUN)
    add_size(parser, "the image in pixels; default: the config's crop")
    parser.add_argument('--json', action='store_true', help='exact numbers as JSON instead of a table')
    add_cfg_options(parser)


def run(args: argparse.Namespace) -> int:
    import json
    import logging
    import warnings

    from mmlape.console.tables import print_table, text_table
    from mmlape.lab.analysis.cost import input_shape, model_cost
    from mmlape.lab.config.config_file import config_name
    from mmlape.lab.inference.trained_model import opened_config
    from mmlape.lab.training.optim import build_model, quiet_logger

    shape = height_width(args.size, '--size')
    results = []
    for path in args.configs:
        with opened_config(path, args.cfg_options) as cfg, quiet_logger(logging.ERROR), warnings.catch_warnings():
            warnings.simplefilter('ignore')  # they are about training
            size = shape or input_shape(cfg)
            parts = [vars(part) for part in model_cost(build_model(cfg), size)]
        total = {key: sum(part[key] for part in parts) for key in ('params', 'flops')}
        results.append(dict(config=config_name(cfg), shape=list(size), **total, parts=parts))
    if args.json:
        print(json.dumps(results, indent=2))
        return 0
    for result in results:
        height, width = result['shape']
        rows = [
            (part['name'], f'{part["params"]:,}', _giga(part['flops']))
            for part in (*result['parts'], dict(result, name='total'))
        ]
        title = f'{result["config"]}, one image of {height} x {width}'
        print_table(text_table(('part', 'parameters', 'GFLOPs'), rows), title)
    return 0


def _giga(flops: int) -> str:
    """Return a number in units of 1e9, small ones with three digits that count."""
    return f'{flops / 1e9:.1f}' if flops >= 1e10 else f'{flops / 1e9:.3g}'
