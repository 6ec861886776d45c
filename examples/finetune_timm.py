#!/usr/bin/env python
"""LaPE in a small ViT of timm, from scratch and after pretraining: `python examples/finetune_timm.py --out DIR`.

The question: what does `mmlape.add_lape` do to a model that was pretrained with the default joining? Five arms a seed,
on the first 10,000 images of Fashion-MNIST, all evaluated on its 10,000 test images:

    default, lape          trained from scratch for all epochs
    tuned                  pretrained with the default joining, then fine-tuned as it was
    tuned lape             the same weights, then add_lape, then fine-tuned in the same way
    changed lape           the same weights after add_lape, without any fine-tuning

Nothing but timm and torch trains here, as in a training script of one's own. About an hour on one CPU core; the table
and every accuracy are printed and written after each seed. The same command continues after an interruption.
"""

import argparse
import copy
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from timm.optim import param_groups_weight_decay
from torch import Tensor, nn

import mmlape
from mmlape.files import write_json
from mmlape.projects.fashion_mnist import idx_files, read_pair

DATA = '/usr/share/datasets/fashion-mnist'
MEAN, STD = 0.286, 0.353
"""Of the training images, in [0, 1]."""
ARMS = ('default', 'lape', 'tuned', 'tuned lape', 'changed lape')

Split = tuple[Tensor, Tensor]


def read(root: str, split: str, count: int | None) -> Split:
    """Return the first ``count`` images (N, 1, 28, 28), normalised, and their labels (N,)."""
    images, labels = read_pair(*idx_files(root, split))
    values = torch.tensor(images[:count], dtype=torch.float32)[:, None] / 255
    return (values - MEAN) / STD, torch.tensor(labels[:count], dtype=torch.long)


def build(args: argparse.Namespace) -> nn.Module:
    return VisionTransformer(
        img_size=28, patch_size=4, in_chans=1, num_classes=10, embed_dim=args.width, depth=args.depth,
        num_heads=args.width // 16, mlp_ratio=2, drop_path_rate=0.05,
    )  # fmt: skip


def batches(data: Split, size: int, generator: torch.Generator) -> Iterator[Split]:
    """Yield an epoch in random order; half of the images are flipped."""
    images, labels = data
    for chosen in torch.randperm(len(images), generator=generator).split(size):
        flipped = torch.rand(len(chosen), 1, 1, 1, generator=generator) < 0.5
        batch = images[chosen]
        yield torch.where(flipped, batch.flip(-1), batch), labels[chosen]


def train(model: nn.Module, data: Split, epochs: int, lr: float, batch: int, seed: int) -> nn.Module:
    """Train with AdamW: a tenth of the steps of warm-up, then a cosine to zero. Returns the model."""
    generator = torch.Generator().manual_seed(seed)
    groups = param_groups_weight_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay())
    optimizer = torch.optim.AdamW(groups, lr=lr)
    steps = epochs * math.ceil(len(data[0]) / batch)
    warm = max(1, steps // 10)

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    model.train()
    for _ in range(epochs):
        for images, labels in batches(data, batch, generator):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels, label_smoothing=0.1).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, data: Split) -> float:
    """Return the share of right answers, in percent."""
    model.eval()
    right = sum(
        (model(images).argmax(1) == labels).sum().item()
        for images, labels in zip(data[0].split(500), data[1].split(500), strict=True)
    )
    return 100 * right / len(data[0])


def run_seed(seed: int, training: Split, test: Split, args: argparse.Namespace) -> dict[str, float]:
    """Return the accuracy of each arm; all start from the same initial values and see the same batches."""

    def fit(model: nn.Module, epochs: int, lr: float) -> nn.Module:
        torch.manual_seed(seed)  # of the stochastic depth
        return train(model, training, epochs, lr, args.batch, seed)

    torch.manual_seed(seed)
    initial = build(args)
    complete = args.pretrain + args.tune
    found = {
        'default': accuracy(fit(copy.deepcopy(initial), complete, args.lr), test),
        'lape': accuracy(fit(mmlape.add_lape(copy.deepcopy(initial)), complete, args.lr), test),
    }
    pretrained = fit(initial, args.pretrain, args.lr)
    changed = mmlape.add_lape(copy.deepcopy(pretrained))
    found['changed lape'] = accuracy(changed, test)
    found['tuned lape'] = accuracy(fit(changed, args.tune, args.tune_lr), test)
    found['tuned'] = accuracy(fit(pretrained, args.tune, args.tune_lr), test)
    return {arm: found[arm] for arm in ARMS}


def table(results: dict[int, dict[str, float]]) -> str:
    """Return mean and standard deviation of the arms over the seeds, and of the differences of pairs, as Markdown."""
    rows = ['| arm | top-1 | seeds |', '| --- | --- | --- |']
    rows += [f'| {arm} | {summary([one[arm] for one in results.values()])} | {len(results)} |' for arm in ARMS]
    for arm, other in (('lape', 'default'), ('tuned lape', 'tuned'), ('tuned lape', 'lape')):
        pairs = [one[arm] - one[other] for one in results.values()]
        rows.append(f'| {arm} - {other} | {summary(pairs)} | {len(results)} |')
    return '\n'.join(rows)


def summary(values: Sequence[float]) -> str:
    spread = f' ± {statistics.stdev(values):.2f}' if len(values) > 1 else ''
    return f'{statistics.mean(values):.2f}{spread}'


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add('--data', default=DATA, help='the folder of the four files; default: %(default)s')
    add('--out', default='work_dirs/finetune-timm', help='default: %(default)s')
    add('--seeds', type=int, nargs='+', default=[121, 122, 123])
    add('--images', type=int, default=10000, help='of the 60,000 that there are to train; default: %(default)s')
    add('--pretrain', type=int, default=15, help='epochs; default: %(default)s')
    add('--tune', type=int, default=5, help='epochs; default: %(default)s')
    add('--lr', type=float, default=1e-3)
    add('--tune-lr', type=float, default=5e-4)
    add('--batch', type=int, default=128)
    add('--width', type=int, default=64)
    add('--depth', type=int, default=6)
    args = parser.parse_args(argv)
    training, test = read(args.data, 'train', args.images), read(args.data, 'test', None)
    file = Path(args.out, 'results.json')
    file.parent.mkdir(parents=True, exist_ok=True)
    arguments = {name: value for name, value in vars(args).items() if name not in ('data', 'out', 'seeds')}
    earlier = json.loads(file.read_text()) if file.exists() else {'arguments': arguments, 'top-1': {}}
    if earlier['arguments'] != arguments:
        parser.error(f'{file} has results of other arguments, {earlier["arguments"]}: choose another --out')
    results = {int(seed): found for seed, found in earlier['top-1'].items()}
    for seed in args.seeds:
        started = time.monotonic()
        if seed not in results:
            results[seed] = run_seed(seed, training, test, args)
        text = table(results)
        write_json(file, {'arguments': arguments, 'top-1': results})
        file.with_suffix('.md').write_text(f'{text}\n', encoding='utf-8')
        print(f'seed {seed}, {time.monotonic() - started:.0f} s: {results[seed]}\n{text}', flush=True)


if __name__ == '__main__':
    main()
