"""Figure, table and file of what the layers do with the position embedding (MPVG, AAAI 2025, Figure 4)."""

import math
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from mmlape.console.figures import look, save_figure, tidy, wrapped
from mmlape.console.tables import print_table, text_table
from mmlape.files import write_json
from mmlape.models.base.backbone import BaseBackbone
from mmlape.projects.pe_figures.balance_hook import Balance, measure_balance
from mmlape.projects.pe_figures.bias_maps import read_images

LAST = {
    'last_cosine': 'patches before and after the last norm, cosine',
    'prefix_cosine': 'class token, cosine',
    'last_beta': "variance of the last norm's shift",
}
"""What the numbers of the last norm are, for a reader."""


def measure_models(models: Mapping[str, BaseBackbone], files: list[str]) -> dict[str, Balance]:
    """Measure models by name on images, each resized to the grid of the model's PE.

    Raises:
        ConfigError: If a file is no image, or a model takes no colour images.
    """
    return {name: measure_balance(model, read_images(files, model)) for name, model in models.items()}


def write_balance(balances: Mapping[str, Balance], folder: Path) -> list[Path]:
    """Print the numbers of models by name.

    Write ``pe_balance.png`` and ``pe_balance.json``, and return the files.
    """
    _print_numbers(balances)
    numbers = folder / 'pe_balance.json'
    write_json(numbers, {name: balance.scalars() for name, balance in balances.items()})
    return [draw_balance(balances, folder / 'pe_balance.png'), numbers]


def draw_balance(balances: Mapping[str, Balance], path: Path) -> Path:
    """Draw the correlation of tokens and PE by layer, and beside it the numbers of the last norm.

    Each model has a colour.
    """
    figure = Figure((11, 3.6 + 0.25 * len(balances)), layout='constrained')
    layers, cosine, beta = figure.subplots(1, 3, width_ratios=(2.4, 1, 1))
    for number, (name, balance) in enumerate(balances.items()):
        drawn = look(number)
        layers.plot(range(len(balance.correlations)), balance.correlations, **drawn, label=wrapped(name, 60))
        cosine.bar(number, balance.last_cosine, color=drawn['color'])
        beta.bar(number, balance.last_beta, color=drawn['color'])
    layers.set(title='correlation of the normed tokens and the PE', xlabel='layer')
    cosine.set_title('cosine before and after the last norm', fontsize=9)
    beta.set_title(LAST['last_beta'], fontsize=9)
    for axes in (cosine, beta):
        axes.set_xticks([])
    layers.axhline(0, color='grey', lw=0.6)
    tidy(layers, cosine, beta)
    figure.legend(*layers.get_legend_handles_labels(), loc='outside lower center', frameon=False, fontsize=8)
    return save_figure(figure, path)


def _print_numbers(balances: Mapping[str, Balance]) -> None:
    depth = max(len(balance.correlations) for balance in balances.values())
    rows: list[tuple[str, ...]] = []
    for number in range(depth):
        layers = [balance.correlations[number : number + 1] or [math.nan] for balance in balances.values()]
        rows.append((f'layer {number}', *(_text(layer[0]) for layer in layers)))
    rows += [(title, *(_text(getattr(balance, key)) for balance in balances.values())) for key, title in LAST.items()]
    heads = ('correlation of tokens and PE; last norm', *balances)
    print_table(text_table(heads, rows))


def _text(value: float) -> str:
    return '–' if math.isnan(value) else f'{value:.4f}'
