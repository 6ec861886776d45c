"""What is measured: comparisons of two or more sides that do the same work."""

import copy
import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from benchmarks.agreement import agreement, distances, leading, outputs_and_gradients, projection

DTYPES = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16}
BACKWARD, STEP = 'forward + backward', 'training step'


@dataclass
class Settings:
    """What is measured, on what and for how long.

    Attributes:
        size: Side of the square images.
        batch: Images in a piece of work; None takes what fits the device.
        repeats: Rounds at most.
        budget: Seconds per comparison at most, after nine rounds.
        public: A checkout of the public ViT-Adapter code.
    """

    device: str = 'cpu'
    dtype: str = 'fp32'
    size: int = 224
    arch: str = 'deit-tiny'
    batch: int | None = None
    repeats: int = 20
    budget: float = 3.0
    public: str | None = None

    @property
    def images(self) -> int:
        """How many images make one piece of work."""
        if self.batch:
            return self.batch
        pixels, most = (512**2, 16) if self.device == 'cpu' else (64 * 512**2, 256)
        return max(1, min(most, pixels // self.size**2))

    def inputs(self) -> Tensor:
        """Return random images (B, 3, size, size), the same in every call."""
        shape = (self.images, 3, self.size, self.size)
        return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(self.device)

    def title(self, model: str) -> str:
        """Return a model's name with arch, shape of the images and dtype."""
        return f'{model}, {self.arch}, {self.images} x 3 x {self.size} x {self.size}, {self.dtype}'

    def autocast(self) -> AbstractContextManager:
        """Return mixed precision as the training tools use it; nothing in fp32."""
        return nullcontext() if self.dtype == 'fp32' else torch.autocast(self.device, DTYPES[self.dtype])


@dataclass
class Comparison:
    """Sides that do the same piece of work; ratios are over the first one.

    Attributes:
        name: What is compared, and in which work; unique among the comparisons of a suite.
        sides: What prepares each side and returns the function that does the work once; raises where it cannot run.
        goals: The ratios in time and in memory that a side should not pass.
        memory: Whether the suite `memory` measures it as well.
        note: Says how far apart outputs and gradients of the sides are.
    """

    name: str
    sides: dict[str, Callable[[], Callable[[], object]]]
    goals: dict[str, tuple[float, float]] = field(default_factory=dict)
    memory: bool = False
    note: Callable[[], str] | None = None


def of_models(
    settings: Settings,
    title: str,
    models: dict[str, Callable[[], nn.Module]],
    works: tuple[str, ...],
    goals: dict[str, tuple[float, float]] | None = None,
    memory: bool = False,
    note: Callable[[], str] | None = None,
) -> list[Comparison]:
    """Return a comparison of models, which functions build, for each piece of work.

    Args:
        settings: The images and the dtype.
        title: What is compared.
        models: What builds each side's model.
        works: Names in `WORKS`.
        goals: As of a comparison.
        memory: Whether the suite `memory` measures what has gradients as well.
        note: As of a comparison.
    """
    return [
        Comparison(
            f'{title}, {work}', {name: doing(settings, work, build) for name, build in models.items()}, goals or {},
            memory and work != 'forward', note,
        )
        for work in works
    ]  # fmt: skip


def doing(settings: Settings, work: str, build: Callable[[], nn.Module]) -> Callable[[], Callable[[], object]]:
    """Return what prepares a piece of work of the model that a function builds."""
    return lambda: WORKS[work](build(), settings.inputs(), settings)


def forward_work(model: nn.Module, images: Tensor, settings: Settings) -> Callable[[], object]:
    """Inference: a forward pass in evaluation mode, without gradients."""
    model.eval()

    def work() -> object:
        with torch.inference_mode(), settings.autocast():
            return model(images)

    return work


def backward_work(model: nn.Module, images: Tensor, settings: Settings) -> Callable[[], object]:
    """Forward and backward of a random projection of all outputs, in training mode."""
    model.train()

    def work() -> None:
        model.zero_grad(set_to_none=True)
        with settings.autocast():
            loss = sum(map(projection, leading(model(images))))
        loss.backward()

    return work


def step_work(model: nn.Module, images: Tensor, settings: Settings, **options) -> Callable[[], object]:
    """Forward, backward and a step of AdamW, with its options."""
    run = backward_work(model, images, settings)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, **options)

    def work() -> None:
        run()
        optimiser.step()

    return work


WORKS = {'forward': forward_work, BACKWARD: backward_work, STEP: step_work}


def same_function(
    settings: Settings, models: dict[str, Callable[[], nn.Module]], settle: Callable[[nn.Module], str]
) -> str:
    """Return how far apart the outputs and the gradients of two models are, in fp32 and in float64.

    Args:
        settings: The images.
        models: What builds each model; the reference first.
        settle: Changes a model before, and returns what to say about it.
    """
    single, double, change, images = [], [], '', settings.inputs()
    for build in models.values():
        model = build()
        change = settle(model)
        exact = copy.deepcopy(model).double()  # first: a forward in training changes the statistics of BatchNorm
        single.append(outputs_and_gradients(model, images))
        double.append(outputs_and_gradients(exact, images.double()))
    off = ', '.join(f'{name} {distances(*sides)[1]:.0e}' for name, *sides in zip(models, single, double))
    return (
        f'{agreement(single[1], single[0])}{change}; in float64 {agreement(double[1], double[0])}; '
        f'gradients in fp32 off those in float64: {off}'
    )


def free(device: str) -> None:
    """Release the memory of sides that are no longer used."""
    gc.collect()
    if device == 'cuda':
        torch.cuda.empty_cache()
