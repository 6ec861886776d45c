"""What is measured: comparisons of two or more sides that do the same work."""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from benchmarks.agreement import Rules, agreement, flat, leading, outputs_and_gradients, projection, renamed

DTYPES = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16}


@dataclass
class Side:
    """One side of a comparison.

    Attributes:
        name: Its name in the table.
        build: Prepares it and returns the function that does the work once; raises where the side is not available.
    """

    name: str
    build: Callable[[], Callable[[], object]]


@dataclass
class Comparison:
    """Sides that do the same work; ratios are against the first one.

    Attributes:
        case: What is compared, in a few words; together with suite, work, shape and dtype it is unique.
        work: 'forward', 'training step', ...
        shape: Shape of the input, as text.
        dtype: 'fp32', 'bf16', 'fp16', or '-' where there is none.
        sides: The sides, the reference first.
        items: Images (or other items) that one piece of work handles; 0 where throughput has no meaning.
        timed: Whether torch's device is what is timed; False for subprocesses and data loading on the CPU.
        counted: Whether FLOPs and bytes are counted.
        memory: Whether the memory suite measures it as well.
        reports: Whether the work returns its own seconds.
        note: What a reader must know, such as how far apart outputs and gradients are.
    """

    suite: str
    case: str
    work: str
    shape: str
    dtype: str
    sides: list[Side]
    items: int = 0
    timed: bool = True
    counted: bool = True
    memory: bool = False
    reports: bool = False
    note: str | Callable[[], str] = ''

    @property
    def key(self) -> str:
        """Return what identifies the comparison in a result file."""
        return ' | '.join((self.suite, self.case, self.work, self.shape, self.dtype))


@dataclass
class Settings:
    """What the command line asks for.

    Attributes:
        sizes: Sides of the square images.
        batch: Images in a piece of work; None takes what fits the device.
        repeats: Rounds at most.
        budget: Seconds per comparison at most, after nine rounds.
        checkouts: Folders of public code, by name ('vit-adapter', 'lape', 'dinov3', 't2t', 'ceit', 'irpe').
    """

    device: str = 'cpu'
    dtypes: tuple[str, ...] = ('fp32',)
    sizes: tuple[int, ...] = (224, 512)
    arch: str = 'deit-tiny'
    batch: int | None = None
    repeats: int = 20
    budget: float = 3.0
    quick: bool = False
    data: str | None = None
    checkouts: dict[str, str] = field(default_factory=dict)

    def images(self, size: int) -> int:
        """Return how many images of a size make one piece of work."""
        if self.batch:
            return self.batch
        pixels, most = (512**2, 16) if self.device == 'cpu' else (64 * 512**2, 256)
        return max(1, min(most, pixels // size**2))

    def inputs(self, size: int) -> Tensor:
        """Return random images (B, 3, size, size), the same in every call."""
        generator = torch.Generator().manual_seed(0)
        return torch.randn((self.images(size), 3, size, size), generator=generator).to(self.device)

    def shape(self, size: int) -> str:
        """Return the shape of the images, as text."""
        return f'{self.images(size)} x 3 x {size} x {size}'

    def autocast(self, dtype: str) -> AbstractContextManager:
        """Return mixed precision as the training tools use it; nothing in fp32."""
        return nullcontext() if dtype == 'fp32' else torch.autocast(self.device, DTYPES[dtype])


def forward_work(model: nn.Module, images: Tensor, settings: Settings, dtype: str) -> Callable[[], object]:
    """Inference: a forward pass in evaluation mode, without gradients."""
    model.eval()

    def work() -> object:
        with torch.inference_mode(), settings.autocast(dtype):
            return model(images)

    return work


def backward_work(model: nn.Module, images: Tensor, settings: Settings, dtype: str) -> Callable[[], object]:
    """Forward and backward of a random projection of all outputs, in training mode."""
    model.train()

    def work() -> None:
        model.zero_grad(set_to_none=True)
        with settings.autocast(dtype):
            loss = sum(map(projection, leading(model(images))))
        loss.backward()

    return work


def step_work(model: nn.Module, images: Tensor, settings: Settings, dtype: str) -> Callable[[], object]:
    """Forward, backward and an AdamW step."""
    run = backward_work(model, images, settings, dtype)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6)

    def work() -> None:
        run()
        optimiser.step()

    return work


WORKS = {'forward': forward_work, 'forward + backward': backward_work, 'training step': step_work}


@dataclass
class Models:
    """Models that stand side by side on the same images: the skeleton of a suite's comparisons.

    Attributes:
        case: As of a comparison.
        sides: What builds the model for images of a size, by name; the reference first.
        works: Names in `WORKS`.
        equal: Whether the models are the same function, so that outputs and gradients are compared.
        rules: How the parameters of the other sides are renamed to those of the reference.
        arrange: Brings the outputs into one layout.
        prepare: Changes the images of a side, by its name.
        settle: Changes a model before outputs and gradients are compared, and returns what to say about it.
    """

    case: str
    sides: dict[str, Callable[[int], nn.Module]]
    works: tuple[str, ...] = ('forward', 'forward + backward')
    equal: bool = False
    rules: Rules = ()
    arrange: Callable[[object], Tensor] = flat
    prepare: Callable[[str, Tensor], Tensor] = lambda name, images: images
    settle: Callable[[nn.Module], str] = lambda model: ''
    counted: bool = True
    memory: bool = False

    def comparisons(self, suite: str, settings: Settings, sizes: tuple[int, ...] = ()) -> list[Comparison]:
        """Return a comparison per size, dtype and work; memory is measured where gradients are."""
        return [
            Comparison(
                suite, self.case, work, settings.shape(size), dtype,
                [Side(name, self._side(name, size, dtype, work, settings)) for name in self.sides],
                items=settings.images(size), counted=self.counted, memory=self.memory and work != 'forward',
                note=self._note(size, settings) if self.equal else '',
            )
            for size in sizes or settings.sizes
            for dtype in settings.dtypes
            for work in self.works
        ]  # fmt: skip

    def _side(self, name: str, size: int, dtype: str, work: str, settings: Settings) -> Callable:
        def build() -> Callable[[], object]:
            images = self.prepare(name, settings.inputs(size))
            return WORKS[work](self.sides[name](size), images, settings, dtype)

        return build

    def _note(self, size: int, settings: Settings) -> Callable[[], str]:
        def note() -> str:
            found, said = [], ''
            for name, build in self.sides.items():
                model = build(size)
                said = self.settle(model)
                images = self.prepare(name, settings.inputs(size))
                found.append(outputs_and_gradients(model, images, self.arrange))
            return '; '.join(agreement((out, renamed(grads, self.rules)), found[0]) for out, grads in found[1:]) + said

        return note


def free(device: str) -> None:
    """Release the memory of sides that are no longer used."""
    gc.collect()
    if device == 'cuda':
        torch.cuda.empty_cache()
