"""What the layers do with the PE (MPVG, AAAI 2025, Figure 4), measured in a forward of the live model, and a hook.

correlation of layer l    Pearson's, of LN(x) and w_l over tokens and channels; mean over the images
last cosine               of each token before and after the last norm; mean over tokens and images
last beta                 variance of the last norm's shift over its channels
"""

import contextlib
import copy
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.position import Joining
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
