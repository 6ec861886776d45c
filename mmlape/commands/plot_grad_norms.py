"""Plot the gradient norm of each layer, and the patch embedding's over the iterations (Dual PatchNorm, Figures 2 and
4), of runs that were trained with --log-grad-norm. Runs in folders named seed_* are averaged; several sizes stand side
by side."""

import argparse

from mmlape.lab.config.command_options import positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('work_dirs', nargs='+', metavar='WORK_DIR', help='a run, or a folder of runs')
    parser.add_argument('--out', required=True, metavar='FILE', help='the figure to write (.png, .pdf, ...)')
    parser.add_argument(
        '--last',
        type=positive,
        default=1000,
        metavar='N',
        help='the norm by depth is the mean over the last N iterations; default: %(default)s',
    )


def run(args: argparse.Namespace) -> int:
    """Write the figure, and print the norms by depth."""
    from pathlib import Path

    from matplotlib.figure import Figure

    from mmlape.console.tables import print_table, text_table
    from mmlape.errors import ConfigError
    from mmlape.lab.analysis.gradient_norms import plot_norms, read_norms

    file_types = Figure().canvas.get_supported_filetypes()
    if Path(args.out).suffix[1:].lower() not in file_types:
        raise ConfigError(f'--out {args.out}: unknown file type; supported endings: {", ".join(file_types)}')
    arms = read_norms(args.work_dirs)
    plot_norms(arms, args.out, args.last)
    norms = [dict(zip(arm.parts, arm.by_depth(args.last).mean(0))) for arm in arms]
    rows = [
        (part, *(f'{by_part[part]:.4g}' if part in by_part else '-' for by_part in norms))
        for part in dict.fromkeys(part for arm in arms for part in arm.parts)
    ]
    table = text_table(('part', *(f'{arm.name} (n={len(arm.runs)})' for arm in arms)), rows)
    print_table(table, f'gradient norm, mean of the last {args.last} iterations')
    print(f'wrote {args.out}')
    return 0
