#!/usr/bin/env python
"""The papers' tables of cost with ours beside them, as Markdown: `python docs/results/paper_costs.py [--rounds 0]`.

They are LaPE's Tables 5 and 6, iRPE's multiply-adds, and Figure 10 of its supplement.
Parameters and multiply-adds are counted; time is measured on the machine at hand, so that only its ratios compare with
the papers' V100. Memory is what a GPU allocates; on the CPU what backward keeps, with weights, gradients and moments.
"""

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from mmengine.logging import MMLogger
from torch import nn

from mmlape.lab.analysis.cost import model_cost
from mmlape.lab.config.config_file import load_config
from mmlape.lab.training.optim import build_model

SIDE = 224
SIZES = ('tiny', 'small', 'base')
PARAMETERS = {'tiny': (5.717, 5.722, 0.08), 'small': (22.051, 22.060, 0.04), 'base': (86.568, 86.586, 0.02)}
"""LaPE's Table 5: millions with the default joining and with LaPE, and the change in percent that it prints."""
MEMORY = {'tiny': (10799, 10822, 0.21), 'small': (18051, 18073, 0.12), 'base': (19489, 19537, 0.25)}
SECONDS = {'tiny': (410, 412, 0.48), 'small': (511, 516, 0.98), 'base': (588, 590, 0.51)}
"""LaPE's Table 6: MB, and seconds an epoch, in the same order."""
MACS = (
    ('tiny', 'without', 1261), ('tiny', 'irpe', 1284), ('small', 'without', 4613), ('small', 'irpe', 4659),
    ('small', 'irpe on qk', 4706), ('small', 'irpe on qkv', 4885), ('small', 'shaw', 4659),
    ('small', 'transformer-xl', 4828), ('small', 'huang', 4706), ('small', 'sasa', 4639),
    ('base', 'without', 17592), ('base', 'irpe', 17684),
)  # fmt: skip
"""iRPE's figures, in millions; its supplement's text gives only the reference of Figure 10, for DeiT-S."""
IMAGES_A_SECOND, MEGABYTES = 1096, 8930
ARMS = ('without', 'irpe bias', 'irpe', 'irpe on qk', 'irpe on qkv', 'shaw', 'transformer-xl', 'huang', 'sasa')
"""Of Figure 10."""


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper with our figures beside its own."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return it as Markdown."""
        rows = (self.columns, ['---'] * len(self.columns), *self.rows)
        return '\n'.join([f'{self.title}', '', *(f'| {" | ".join(row)} |' for row in rows)])


def paper_tables(device: str = 'cpu', batch: int = 4, rounds: int = 3) -> Iterator[PaperTable]:
    """Yield the tables.

    Args:
        device: Where time and memory are measured.
        batch: Images in a step.
        rounds: Steps of each arm, in turns; 0 leaves time and memory out.
    """
    yield _parameters()
    yield _macs()
    if rounds:
        yield _training(device, batch, rounds)
        yield _inference(device, batch, rounds)


def deit(size: str, arm: str = 'without', pe_joining: str = 'default') -> nn.Module:
    """Build DeiT with 1000 classes, its learnable PE, and an encoding inside attention.

    Args:
        size: One of ``SIZES``.
        arm: One of ``ARMS``.
        pe_joining: How the learnable PE is joined.
    """
    cfg = load_config(f'mmlape::deit/deit-{size}_4xb256-300e_in1k')
    name, _, option = arm.partition(' ')
    options = {'': {}, 'bias': dict(mode='bias')}.get(option, dict(on=option.removeprefix('on ')))
    inside = [] if arm == 'without' else [dict(type=name, **options)]
    cfg.model.backbone.update(pe_type=['learnable', *inside], pe_joining=pe_joining)
    return build_model(cfg)


def _change(before: float, after: float) -> str:
    return f'{100 * (after / before - 1):+.2f} %'


def _printed(before: float, after: float, percent: float) -> str:
    """Return the change that a paper prints, and beside it that of the figures it prints, if it is another."""
    printed, again = f'{percent:+.2f} %', _change(before, after)
    return printed if again == printed else f'{printed} (recomputed: {again})'


def _parameters() -> PaperTable:
    rows = []
    for size in SIZES:
        counts = [
            sum(p.numel() for p in deit(size, pe_joining=joining).parameters()) for joining in ('default', 'lape')
        ]
        ours = ' / '.join(f'{count / 1e6:.3f}' for count in counts)
        theirs = PARAMETERS[size]
        rows.append([f'DeiT-{size}', f'{theirs[0]:.3f} / {theirs[1]:.3f}', _printed(*theirs), ours, _change(*counts)])
    return PaperTable(
        'Parameters in millions, default / LaPE (LaPE, Table 5)',
        ('model', 'paper', "paper's change", 'ours', 'our change'), rows,
    )  # fmt: skip


def _macs() -> PaperTable:
    rows, references = [], {}
    for size, arm, paper in MACS:
        ours = sum(part.flops for part in model_cost(deit(size, arm), (SIDE, SIDE))) / 1e6
        base = references.setdefault(size, (paper, ours))
        rows.append([f'DeiT-{size}', arm, str(paper), _change(base[0], paper), f'{ours:.0f}', _change(base[1], ours)])
    return PaperTable(
        'Multiply-adds of an image in millions (iRPE, main text and supplement, section 4)',
        ('model', 'encoding', 'paper', 'its change (recomputed)', 'ours', 'our change'), rows,
    )  # fmt: skip


def _training(device: str, batch: int, rounds: int) -> PaperTable:
    rows = []
    for size in SIZES:
        arms = {joining: deit(size, pe_joining=joining).to(device).train() for joining in ('default', 'lape')}
        seconds, memory = _measure(arms, _step, device, batch, rounds)
        megabytes = [memory[joining] / 2**20 for joining in arms]
        rows.append([
            f'DeiT-{size}', '{} / {}'.format(*MEMORY[size][:2]), _printed(*MEMORY[size]),
            f'{megabytes[0]:.0f} / {megabytes[1]:.0f}', _change(*megabytes),
            '{} / {}'.format(*SECONDS[size][:2]), _printed(*SECONDS[size]),
            f'{seconds["default"]:.3f} / {seconds["lape"]:.3f}', _change(seconds['default'], seconds['lape']),
        ])  # fmt: skip
    columns = (
        'model', 'paper: MB', "paper's change", 'ours: MB', 'our change',
        'paper: s an epoch', "paper's change", 'ours: s a step', 'our change',
    )  # fmt: skip
    return PaperTable(
        f'Training, default / LaPE (LaPE, Table 6: batch 1024 on V100); ours: {device}, batch {batch}', columns, rows
    )


def _inference(device: str, batch: int, rounds: int) -> PaperTable:
    arms = {arm: deit('small', arm).to(device).eval() for arm in ARMS}
    seconds, memory = _measure(arms, _forward, device, batch, rounds)
    rows = []
    for arm in ARMS:
        paper = [str(IMAGES_A_SECOND), str(MEGABYTES)] if arm == 'without' else ['bars only', 'bars only']
        used = f'{memory[arm] / memory["without"]:.3f}' if memory[arm] else 'not measured'
        speed = [f'{batch / seconds[arm]:.1f}', f'{seconds["without"] / seconds[arm]:.3f}']
        rows.append([arm, *paper, *speed, used])
    columns = (
        'DeiT-S',
        'paper: images/s',
        'paper: MB',
        'ours: images/s',
        'of the reference',
        'memory of the reference',
    )
    return PaperTable(
        f"Inference (iRPE's supplement, Figure 10: batch 128 on V100); ours: {device}, batch {batch}", columns, rows
    )


def _step(model: nn.Module, images: torch.Tensor) -> int:
    """Run forward and backward; return the bytes of what backward kept."""
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model.zero_grad(set_to_none=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(images, mode='tensor').square().mean()
    loss.backward()
    parameters = list(model.parameters())
    held = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    # weights, gradients and AdamW's two moments
    weights = 4 * sum(parameter.untyped_storage().nbytes() for parameter in parameters)
    return weights + sum(size for pointer, size in kept.items() if pointer not in held)


@torch.inference_mode()
def _forward(model: nn.Module, images: torch.Tensor) -> int:
    model(images, mode='tensor')
    return 0


def _measure(
    arms: dict[str, nn.Module], work: Callable, device: str, batch: int, rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the median seconds and the bytes of each arm, which run in turns after a step that is not timed."""
    images = torch.randn(batch, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)).to(device)
    times, memory = {name: [] for name in arms}, {}
    for number in range(rounds + 1):
        for name, model in arms.items():
            if device == 'cuda':
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                torch.cuda.synchronize()
            start = time.perf_counter()
            counted = work(model, images)
            if device == 'cuda':
                torch.cuda.synchronize()
                counted = torch.cuda.max_memory_allocated() - before
            if number:
                times[name].append(time.perf_counter() - start)
            memory[name] = counted
    return {name: statistics.median(values) for name, values in times.items()}, memory


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n\n')[2])
    parser.add_argument('--device', choices=('cpu', 'cuda'), default='cpu', help='default: cpu')
    parser.add_argument('--rounds', type=int, default=3, metavar='N', help='timed steps; 0 only counts; default: 3')
    args = parser.parse_args(argv)
    MMLogger.get_instance('mmengine').setLevel(logging.ERROR)
    warnings.simplefilter('ignore')  # they are about training
    for table in paper_tables(args.device, rounds=args.rounds):
        print(table.markdown(), end='\n\n', flush=True)


if __name__ == '__main__':
    main()
