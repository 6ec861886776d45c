"""What is measured: comparisons of two or more sides that do the same work."""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

DTYPES = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16}


@dataclass
class Side:
    """One side of a comparison.

    Attributes:
        name: what it is called in the table.
        build: makes it ready and returns the function that does the work once; a side that cannot be had raises.
    """

    name: str
    build: Callable[[], Callable[[], object]]


@dataclass
class Comparison:
    """Sides that do the same work; ratios are against the first one.

    Attributes:
        case: what is compared, in a few words; together with suite, work, shape and dtype it is unique.
        work: 'forward', 'training step', ...
        shape: of the input, as text.
        dtype: 'fp32', 'bf16', 'fp16', or '-' where there is none.
        sides: the reference first.
        items: images (or other items) that one piece of work handles; 0 where throughput means nothing.
        timed: whether torch's device is what is timed; False for subprocesses and data loading on the CPU.
        counted: whether FLOPs and bytes are counted.
        memory: whether the memory suite measures it as well.
        note: what a reader must know, such as how well the outputs agree.
        rounds: at most that many rounds, for work that takes seconds.
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
    note: str | Callable[[], str] = ''
    rounds: int | None = None

    @property
    def key(self) -> str:
        return ' | '.join((self.suite, self.case, self.work, self.shape, self.dtype))


@dataclass
class Settings:
    """What the command line asks for.

    Attributes:
        sizes: sides of the square images.
        batch: images of a piece of work; None takes what fits the device.
        repeats: rounds at most.
        budget: seconds a comparison at most, after three rounds.
        checkouts: folders of public code, by name ('vit-adapter', 'lape').
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
        """How many images of a side make one piece of work."""
        if self.batch:
            return self.batch
        pixels, most = (512**2, 16) if self.device == 'cpu' else (64 * 512**2, 256)
        return max(1, min(most, pixels // size**2))

    def picture(self, size: int, count: int | None = None) -> Tensor:
        """Random images (B, 3, size, size), the same in every call."""
        generator = torch.Generator().manual_seed(0)
        shape = (count or self.images(size), 3, size, size)
        return torch.randn(shape, generator=generator).to(self.device)

    def shape(self, size: int) -> str:
        """That of the images, as text."""
        return f'{self.images(size)} x 3 x {size} x {size}'

    def autocast(self, dtype: str) -> AbstractContextManager:
        """Mixed precision as the training tools have it; nothing in fp32."""
        return nullcontext() if dtype == 'fp32' else torch.autocast(self.device, DTYPES[dtype])


def leading(out: object) -> list[Tensor]:
    """The tensors of a backbone's output, whatever holds them."""
    return [out] if isinstance(out, Tensor) else [tensor for part in out for tensor in leading(part)]


def forward_work(model: nn.Module, images: Tensor, settings: Settings, dtype: str) -> Callable[[], object]:
    """Inference: a forward pass in evaluation mode, without gradients."""
    model.eval()

    def work() -> object:
        with torch.inference_mode(), settings.autocast(dtype):
            return model(images)

    return work


def backward_work(model: nn.Module, images: Tensor, settings: Settings, dtype: str) -> Callable[[], object]:
    """Forward and backward of the mean of all outputs, in training mode."""
    model.train()

    def work() -> None:
        model.zero_grad(set_to_none=True)
        with settings.autocast(dtype):
            loss = sum(out.float().mean() for out in leading(model(images)))
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


def free(device: str) -> None:
    """Give the memory of sides that are gone back."""
    gc.collect()
    if device == 'cuda':
        torch.cuda.empty_cache()
