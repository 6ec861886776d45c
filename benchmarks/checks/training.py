"""Twenty training steps: losses stay finite, fall, begin as on the CPU, and continue bit for bit after a resume.

The adapters learn one number a channel and image, by AdamW. Mask R-CNN, Segmenter, UperNet and Mask2Former are the
mini recipes with their own optimisers, on synthetic objects, or on images of which each half is a class.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.checks import Check, Found, NotRunError, Options
from benchmarks.comparison import DTYPES, Settings
from benchmarks.models import adapter, complete_model, without_dropout
from mmlape.lab.training.seeding import prefer_deterministic_kernels

STEPS, QUICK_STEPS = 20, 6
ARMS = {
    'default PE': dict(),
    'LaPE': dict(pe_joining='lape'),
    'LaPE + Dual PatchNorm': dict(pe_joining='lape', patch_norm='dual'),
}
RECIPES = {
    'Mask R-CNN': 'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py',
    'Segmenter': 'segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py',
    'UperNet': 'upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py',
    'Mask2Former': 'mask2former/mask2former_deit-mini-adapter-lape_1xb4-200i_mini-ade.py',
}
REPEATED = ('Segmenter', 'UperNet')
"""Those that are expected to repeat to the bit."""
FIRST = 3
"""Losses that are compared with the CPU's."""
TOLERANCE = {'fp32': 1e-3, 'bf16': 0.03, 'fp16': 0.01}
"""How far each of these may be off, relative to the CPU's in fp32: rounding, and what two steps make of it."""
OF_RECIPES = 0.15
"""The same of a recipe's first loss, whose proposals or points are drawn on the device."""


def checks(options: Options) -> list[Check]:
    """Return the adapters' checks, then the recipes'."""
    dtypes = ('bf16', 'fp32') if options.quick else ('bf16', 'fp16', 'fp32')
    found = [
        Check(f'ViT-Adapter, {arm}, {dtype}', partial(_adapter, options, changes, dtype))
        for dtype in dtypes
        for arm, changes in (list(ARMS.items())[2:] if options.quick else ARMS.items())
    ]
    found.insert(len(ARMS), Check('ViT-Adapter, LaPE, resumed with deterministic kernels', partial(_resumed, options)))
    recipes = {'Segmenter': RECIPES['Segmenter']} if options.quick else RECIPES
    found += [
        Check(f'{name}, run again with deterministic kernels', partial(_repeated, options, config))
        for name, config in recipes.items()
        if name in REPEATED
    ]
    return found + [
        Check(f'{name}, {dtype}', partial(_recipe, options, config, dtype))
        for dtype in (('bf16',) if options.quick else ('bf16', 'fp16'))
        for name, config in recipes.items()
    ]  # fmt: skip


def _steps(options: Options) -> int:
    return QUICK_STEPS if options.quick else STEPS


class Trainer:
    """A model that learns fixed targets of fixed images."""

    def __init__(self, model: nn.Module, images: Tensor, device: str, dtype: str):
        self.model, self.device, self.dtype = model.to(device).train(), device, dtype
        self.images = images.to(device)
        generator = torch.Generator().manual_seed(5)
        shape = (len(images), model.embed_dims, 1, 1)  # one number a channel, at every place
        self.target = torch.randn(shape, generator=generator).to(device)
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler(device, init_scale=2.0**10, enabled=dtype == 'fp16')

    def steps(self, count: int) -> list[float]:
        """Train, and return the losses."""
        return [self._step() for _ in range(count)]

    def _step(self) -> float:
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self.device, DTYPES[self.dtype], enabled=self.dtype != 'fp32'):
            outs = self.model(self.images)
        loss = sum((out.float() - self.target).square().mean() for out in outs)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        return float(loss)

    def saved(self) -> bytes:
        """Return a checkpoint."""
        buffer = io.BytesIO()
        parts = (self.model, self.optimiser, self.scaler)
        torch.save([part.state_dict() for part in parts], buffer)
        return buffer.getvalue()

    def load(self, checkpoint: bytes) -> None:
        """Continue from a checkpoint."""
        states = torch.load(io.BytesIO(checkpoint), map_location=self.device)
        for part, state in zip((self.model, self.optimiser, self.scaler), states):
            part.load_state_dict(state)


def _trainer(options: Options, device: str, dtype: str, **changes) -> Trainer:
    size, arch, batch = (64, 'mini', 2) if options.quick else (224, 'deit-tiny', 4)
    settings = Settings('cpu', size=size, arch=arch, batch=batch)
    return Trainer(adapter(settings, deform_num_heads=3, **changes), settings.inputs(), device, dtype)


def _adapter(options: Options, changes: dict, dtype: str) -> Found:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    expected = _trainer(options, 'cpu', 'fp32', **changes).steps(FIRST)
    losses = _trainer(options, options.device, dtype, **changes).steps(_steps(options))
    return judged(losses, expected, TOLERANCE[dtype])


def judged(losses: list[float], expected: list[float], tolerance: float) -> Found:
    """Judge losses: finite, fallen at the end, and first ones that are near those of the CPU."""
    apart = max(abs(loss - exact) / abs(exact) for loss, exact in zip(losses, expected))
    last = sum(losses[-3:]) / 3
    finite = all(loss - loss == 0 for loss in losses)
    wrong = [] if finite else ['not finite']
    wrong += [] if last < 0.95 * losses[0] else ['does not fall']
    wrong += [] if apart <= tolerance else [f'more than {tolerance:g} off']
    count = len(expected)
    first = 'the first loss' if count == 1 else f'the first {count}'
    figure = f'loss {losses[0]:.3f} -> {last:.3f} in {len(losses)} steps; {first} {apart:.0e} off the CPU'
    return Found(not wrong, '; '.join([*wrong, figure]), dict(losses=losses, expected=expected))


def _resumed(options: Options) -> Found:
    """Compare a run with one that continues from a checkpoint in a new model, as `--deterministic` sets kernels."""
    with _deterministic():
        runs = [_trainer(options, options.device, 'bf16', pe_joining='lape') for _ in range(3)]
        half = _steps(options) // 2
        first = runs[0].steps(half)
        checkpoint = runs[0].saved()
        losses = [first + runs[0].steps(half), runs[1].steps(2 * half)]
        runs[2].load(checkpoint)
        losses.append(first + runs[2].steps(half))
    again, resumed = (_differing(runs[0].model, other.model) for other in runs[1:])
    figure = f'tensors that differ after {2 * half} steps: {resumed} resumed in the middle, {again} run again'
    return Found(resumed == again == 0, figure, dict(losses=losses))


def _repeated(options: Options, config: str) -> Found:
    """Train a recipe twice, as `--deterministic` sets kernels."""
    size = 64 if options.quick else 128
    with _deterministic():
        losses = [_recipe_steps(config, size, options.device, 'bf16', _steps(options)) for _ in range(2)]
    differ = sum(one != other for one, other in zip(*losses))
    figure = f'losses of {len(losses[0])} steps that differ when run again: {differ}'
    return Found(differ == 0, figure, dict(losses=losses))


@contextmanager
def _deterministic() -> Iterator[None]:
    """Prefer deterministic kernels, and undo that after."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), sdpa_kernel(SDPBackend.MATH):
        prefer_deterministic_kernels()
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)


def _differing(one: nn.Module, other: nn.Module) -> int:
    """Return how many tensors of two models differ in a bit."""
    states = one.state_dict(), other.state_dict()
    return sum(not torch.equal(value, states[1][name]) for name, value in states[0].items())


def _recipe(options: Options, config: str, dtype: str) -> Found:
    if dtype == 'fp16' and options.device == 'cpu':
        raise NotRunError('MMEngine trains in fp16 on a GPU only')
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    size = 64 if options.quick else 128
    expected = _recipe_steps(config, size, 'cpu', 'fp32', 1)
    losses = _recipe_steps(config, size, options.device, dtype, _steps(options))
    return judged(losses, expected, OF_RECIPES)


def _recipe_steps(config: str, size: int, device: str, dtype: str, count: int) -> list[float]:
    """Train the model of a recipe, and return the sums of its losses."""
    from mmengine.optim import AmpOptimWrapper

    from mmlape.lab.training.optim import BFloat16OptimWrapper

    model, batch, wrapper = complete_model(config, 'lape', Settings(device, size=size, arch='mini', batch=2))
    without_dropout(model).train()
    for sample in batch['data_samples']:
        if 'gt_sem_seg' in sample:  # random labels of pixels cannot be learnt
            labels = sample.gt_sem_seg.data
            labels[..., : size // 2], labels[..., size // 2 :] = 0, 1
    optimiser = wrapper.optimizer
    for group in optimiser.param_groups:
        group['lr'] = 1e-3
    wrappers: dict[str, Callable] = {
        'fp32': lambda: wrapper,
        'bf16': lambda: BFloat16OptimWrapper(optimizer=optimiser),
        'fp16': lambda: AmpOptimWrapper(optimizer=optimiser, dtype='float16', loss_scale='dynamic'),
    }
    chosen = wrappers[dtype]()
    torch.manual_seed(0)
    return [float(model.train_step(batch, chosen)['loss']) for _ in range(count)]
