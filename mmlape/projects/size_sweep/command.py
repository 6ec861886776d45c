"""Evaluate trained models at several sizes of the test images, of classification, segmentation or detection: how a
position encoding bears sizes that it was not trained at. Writes a table and a figure. Several checkpoints of one
config are averaged, as its seeds. Sizes that were evaluated are not evaluated again."""

import argparse

from mmlape.engine.options import add_cfg_options, add_trust


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        'models',
        nargs='+',
        metavar='CONFIG CHECKPOINT',
        help='pairs of a config and a checkpoint of the full model',
    )
    add('--sizes', type=int, nargs='+', required=True, metavar='S', help='shorter sides in pixels')
    add(
        '--out',
        required=True,
        metavar='DIR',
        help='receives metrics, size_sweep.json and size_sweep.png',
    )
    add_trust(parser)
    add_cfg_options(parser)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from mmlape.console import console
    from mmlape.engine.config import config_name, load_config
    from mmlape.errors import CheckpointError, ConfigError
    from mmlape.evaluation.names import label
    from mmlape.files import write_json
    from mmlape.projects.size_sweep.sweep import (
        collect,
        draw_sweep,
        main_metric,
        sweep,
        sweep_table,
    )
    from mmlape.tables import console_table

    pairs = list(zip(args.models[::2], args.models[1::2]))
    if len(args.models) % 2:
        raise ConfigError(
            f'size-sweep takes pairs of CONFIG and CHECKPOINT: {args.models[-1]} has no second'
        )
    if min(args.sizes) < 1:
        raise ConfigError(f'--sizes are in pixels, from 1 on, not {min(args.sizes)}')
    missing = [checkpoint for _, checkpoint in pairs if not Path(checkpoint).is_file()]
    if missing:
        raise CheckpointError(f'checkpoint {missing[0]}: no such file')
    configs = [load_config(config, args.cfg_options) for config, _ in pairs]
    arms = [config_name(cfg) for cfg in configs]
    names = [f'{arm} ({i})' if arms.count(arm) > 1 else arm for i, arm in enumerate(arms, 1)]
    out, results = Path(args.out), {}
    for name, cfg, (_, checkpoint) in zip(names, configs, pairs):
        results[name] = sweep(cfg, checkpoint, sorted(set(args.sizes)), out / name)
        write_json(out / 'size_sweep.json', results)
    metric = main_metric(results)
    values = collect(results, metric, arms)
    draw_sweep(values, metric, out / 'size_sweep.png')
    console().print(
        console_table(
            sweep_table(values), f'{label(metric)} by the shorter side of the test images'
        )
    )
    print(f'wrote {out / "size_sweep.json"} and {out / "size_sweep.png"}')
    return 0
