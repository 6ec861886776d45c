"""What the layers do with the PE (MPVG, AAAI 2025, Figure 4): measured in a forward, in a hook, as table and figure.

correlation of layer l    Pearson's, of LN(x) and w_l over tokens and channels; mean over the images
last cosine               of each token before and after the last norm; mean over tokens and images
last beta                 variance of the last norm's shift over its channels
"""

import contextlib
import copy
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from torch import Tensor, nn

from mmlape.console.figures import look, save_figure, tidy, wrapped
from mmlape.console.tables import print_table, text_table
from mmlape.errors import ConfigError
from mmlape.files import write_json
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.position import Joining
from mmlape.projects.pe_figures.bias_maps import read_images
from mmlape.registry import HOOKS

TAG = 'pe_balance/'


class Balance(NamedTuple):
    """What the layers of a model do with the PE; NaN where there is nothing to measure."""

    correlations: list[float]  # of the normed tokens with the PE that each layer joins
    # of the patch tokens before and after the last norm, with the PE that it joins
    last_cosine: float
    prefix_cosine: float  # the same of the class token and other tokens before the patches
    last_beta: float  # the variance of the last norm's shift

    def scalars(self) -> dict[str, float]:
        """Return the numbers that there are by name."""
        layers = {f'correlation.{number}': value for number, value in enumerate(self.correlations)}
        last = {key: getattr(self, key) for key in ('last_cosine', 'prefix_cosine', 'last_beta')}
        return {name: value for name, value in {**layers, **last}.items() if not math.isnan(value)}


@torch.no_grad()
def measure_balance(model: BaseBackbone, images: Tensor) -> Balance:
    """Run a model on images (B, C, H, W) and measure what its layers and its last norm do with the PE.

    The model is in evaluation mode for that time, so that batch statistics and random numbers stay
    as they are.
    """
    correlations: list[float] = []
    last: list[tuple[Tensor, Tensor]] = []  # tokens before and after the last norm
    joining, norm = model.joining, model.last_norm

    def combine(x: Tensor, pe: Tensor | None, layer_norm) -> tuple:
        correlations.append(math.nan if pe is None else _correlation(layer_norm(x), pe))
        return type(joining).combine(joining, x, pe, layer_norm)

    def finish(x: Tensor, *args) -> Tensor:
        out = type(joining).finish(joining, x, *args)
        last.append((x, out))
        return out

    def note(module: nn.Module, args: tuple, out: Tensor) -> None:
        last.append((args[0], out))

    with contextlib.ExitStack() as stack:
        stack.enter_context(_evaluating(model))
        stack.enter_context(_replaced(joining, combine=combine, finish=finish))
        if norm is not None:  # layers and norms of timm's own run without a joining
            stack.callback(norm.register_forward_hook(note).remove)
        model(images)
    correlations += [math.nan] * (model.num_layers - len(correlations))
    patches = prefix = math.nan
    if last:
        before, after = last[-1]
        cosines = F.cosine_similarity(before.double(), after.double(), dim=-1)  # (B, N)
        count = model.num_prefix
        patches = float(cosines[:, count:].mean())
        prefix = float(cosines[:, :count].mean()) if count else math.nan
    bias = getattr(norm, 'bias', None)
    return Balance(correlations, patches, prefix, math.nan if bias is None else float(bias.double().var(correction=0)))


def _correlation(tokens: Tensor, pe: Tensor) -> float:
    """Return the mean over images of the correlation of tokens (B, N, D) with a PE (1 or B, R, D) of the last R."""
    tokens = tokens[:, tokens.shape[1] - pe.shape[1] :].double().flatten(1)
    pe = pe.double().expand(len(tokens), -1, -1).flatten(1)
    centred = tokens - tokens.mean(1, keepdim=True), pe - pe.mean(1, keepdim=True)
    return float(F.cosine_similarity(*centred, dim=1).mean())


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextlib.contextmanager
def _replaced(joining: Joining, **methods) -> Iterator[None]:
    vars(joining).update(methods)
    try:
        yield
    finally:
        for name in methods:
            vars(joining).pop(name, None)


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


@HOOKS.register_module()
class PEBalanceHook(Hook):
    """Write ``pe_balance/<number>`` to the visualiser's back ends, see ``Balance``.

    Before an iteration, the first process runs the backbone once more, on the first images of its
    batch as they would be tested: without mixing, in evaluation mode, without gradients. Weights,
    batch statistics and random numbers stay as they are.

    Args:
        interval: Iterations between two measurements; the first iteration is measured too.
        images: How many images of the batch.

    Raises:
        ConfigError: If a number is not positive, or the backbone is not of mmlape.
    """

    changes_results = False
    priority = 'NORMAL'
    counts = {'interval': 'log'}

    def __init__(self, interval: int = 50, images: int = 4) -> None:
        if min(interval, images) < 1:
            raise ConfigError(f'PEBalanceHook: interval and images must be 1 or more, not {interval} and {images}')
        self.interval, self.images = interval, images

    def before_train(self, runner) -> None:
        """Check that there is something to measure."""
        self.model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        self.backbone = getattr(self.model, 'backbone', None)
        if not isinstance(self.backbone, BaseBackbone):
            raise ConfigError(f'PEBalanceHook measures a backbone of mmlape, not {type(self.backbone).__name__}')

    def before_train_iter(self, runner, batch_idx: int, data_batch=None) -> None:
        """Measure the model that the iteration starts from."""
        if runner.rank or runner.iter % self.interval:
            return
        # copies, since preprocessors write into what they get
        few = {key: copy.deepcopy(data_batch[key][: self.images]) for key in ('inputs', 'data_samples')}
        images = self.model.data_preprocessor(few, False)['inputs']
        numbers = measure_balance(self.backbone, images).scalars()
        runner.visualizer.add_scalars({f'{TAG}{name}': value for name, value in numbers.items()}, step=runner.iter + 1)
