"""How well frozen features tell the patches of the mini ADE apart: probes of a stem's steps and of the last layer.

python docs/results/dpn_probe.py CONFIG CHECKPOINT [CONFIG CHECKPOINT ...] --data data/mini/ade/

A patch has the class of most of its labelled pixels. A probe is a ridge regression of the classes on standardised
features and their squares, which show contrast, fitted to the patches of 200 training scenes; its accuracy is on the
patches of all validation scenes: of 12 classes, and of the two photographs alone.
"""

import argparse

import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, init_default_scope
from torch import Tensor, nn
from torch.nn import functional as F

from mmlape.checkpoint.loading import load_backbone

PHOTOGRAPHS = 10  # the first class that is a photograph, not a digit
SCENES = 200


def scenes(loader: dict, pipeline: list, data_root: str, limit: int | None) -> tuple[Tensor, Tensor]:
    """Return images (B, 3, H, W) as they are read, and the label maps (B, H', W')."""
    dataset = DATASETS.build(dict(loader['dataset'], pipeline=pipeline, data_root=data_root))
    samples = [dataset[index] for index in range(min(len(dataset), limit or len(dataset)))]
    labels = [sample['data_samples'].gt_sem_seg.data[0] for sample in samples]
    return torch.stack([sample['inputs'] for sample in samples]), torch.stack(labels)


def patch_classes(labels: Tensor, grid: tuple[int, int], classes: int) -> Tensor:
    """Return the class of most labelled pixels of each patch, (B * N,); -1 where none is labelled."""
    rows, columns = (side // cells for side, cells in zip(labels.shape[1:], grid))
    cells = labels.unfold(1, rows, rows).unfold(2, columns, columns).flatten(3)  # (B, rows, columns, pixels)
    counts = torch.stack([(cells == number).sum(-1) for number in range(classes)], dim=-1)
    return torch.where(counts.sum(-1) > 0, counts.argmax(-1), -1).flatten()


@torch.no_grad()
def features(backbone: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Return what is computed of each patch, (B * N, D): up to the stem's map, the norm behind it, the last layer."""
    stem, found = backbone.patch_embed, {'last layer': backbone(images)[0].flatten(2).mT}
    if stem.norm1 is not None:
        found['norm'] = stem(images)[0]
    norm1, stem.norm1 = stem.norm1, None
    found['map'] = stem(images)[0]
    stem.norm1 = norm1
    return {name: value.flatten(0, 1) for name, value in found.items()}


def accuracy(train: tuple[Tensor, Tensor], val: tuple[Tensor, Tensor], lowest: int, classes: int) -> float:
    """Fit a probe to the patches of the classes from ``lowest`` on; return its accuracy on others, in percent."""
    (x, y), (x_val, y_val) = ((part[0][part[1] >= lowest], part[1][part[1] >= lowest]) for part in (train, val))
    mean, std = x.mean(0), x.std(0) + 1e-6
    x, x_val = ((part.double() - mean) / std for part in (x, x_val))
    x, x_val = (torch.cat((part, part**2, torch.ones_like(part[:, :1])), dim=1) for part in (x, x_val))
    ridge = 1e-3 * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    weight = torch.linalg.solve(x.mT @ x + ridge, x.mT @ F.one_hot(y - lowest, classes - lowest).to(x))
    return 100 * ((x_val @ weight).argmax(-1) == y_val - lowest).float().mean().item()


def main() -> None:
    """Print a row for each stem and step."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('pairs', nargs='+', metavar='CONFIG CHECKPOINT')
    parser.add_argument('--data', default='data/mini/ade/')
    args = parser.parse_args()
    init_default_scope('mmseg')
    for config, checkpoint in zip(args.pairs[::2], args.pairs[1::2], strict=True):
        cfg = Config.fromfile(config)
        backbone = MODELS.build(dict(cfg.model.backbone, init_cfg=None)).eval()
        load_backbone(backbone, checkpoint)
        given = cfg.model.data_preprocessor
        mean, std = (torch.tensor(given[key])[:, None, None] for key in ('mean', 'std'))
        parts = []
        for loader, limit in ((cfg.train_dataloader, SCENES), (cfg.val_dataloader, None)):
            images, labels = scenes(loader, cfg.test_pipeline, args.data, limit)
            found = features(backbone, (images.flip(1) - mean) / std)  # read as BGR
            grid = tuple(side // backbone.patch_size for side in images.shape[2:])
            parts.append((found, patch_classes(labels, grid, len(cfg.classes))))
        for name in parts[0][0]:
            train, val = ((found[name], classes) for found, classes in parts)
            scores = [accuracy(train, val, lowest, len(cfg.classes)) for lowest in (0, PHOTOGRAPHS)]
            print(f'{checkpoint}, {name}: {scores[0]:.1f} of all classes, {scores[1]:.1f} of the photographs')


if __name__ == '__main__':
    main()
