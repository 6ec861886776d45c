"""`mmlape explain-pe`: figures on why a ViT needs a position encoding, and the proof on live models."""

import argparse

from mmlape.engine.options import add_cfg_options, add_trust, apply_trust

IMAGES = ('.png', '.jpg', '.jpeg', '.bmp', '.webp', '.tif', '.tiff')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        'Draw the eleven figures of "Position Embeddings for Vision Transformers, Explained" (S. J. Callis, 2024) for '
        "any image, and print how far a model's output moves when patches of the image change places: attention is "
        'equivariant, so without a position encoding the mean of its outputs does not move.'
    )
    add = parser.add_argument
    add(
        'subjects',
        nargs='*',
        metavar='IMAGE|MODEL',
        help='an image; models as in visualize-pe. Default: a photograph, and four small untrained ViTs',
    )
    add('--patch', type=int, default=20, metavar='P', help='side of a patch of the figures (default: 20)')
    add('--seed', type=int, default=21, metavar='S', help='of the order of the patches (default: 21)')
    add('--out', required=True, metavar='DIR', help='receives the figures')
    add_trust(parser)
    add_cfg_options(parser)


def run(args: argparse.Namespace) -> int:
    """Write the figures, and print the table."""
    from pathlib import Path

    from rich.table import Table

    from mmlape.analysis.explain_pe import permutation_change, read_image, small_models, write_figures
    from mmlape.analysis.subjects import OpenOptions, open_models
    from mmlape.console import console
    from mmlape.errors import ConfigError

    apply_trust(args)
    images = [text for text in args.subjects if text.lower().endswith(IMAGES)]
    models = [text for text in args.subjects if text not in images]
    if len(images) > 1 or args.patch < 1:
        raise ConfigError(f'explain-pe takes one image and --patch of 1 or more, not {images} and {args.patch}')
    image = read_image(images[0] if images else None, args.patch)
    subjects = open_models(models, OpenOptions(args.cfg_options)) if models else small_models(args.seed)
    for file in write_figures(image, args.patch, args.seed, Path(args.out)):
        print(f'wrote {file}')
    table = Table('model', title='largest relative change of the output when patches change places')
    table.add_column('change', justify='right')
    for subject in subjects:
        table.add_row(subject.name, f'{permutation_change(subject.model, image, args.seed):.1e}')
    console().print(table)
    return 0
