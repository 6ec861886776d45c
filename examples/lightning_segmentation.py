#!/usr/bin/env python
"""Train a ViT-Adapter with LaPE for semantic segmentation by Lightning; this file is all of it.

    pip install . lightning pillow                                    # in a checkout, beside torch
    python examples/lightning_segmentation.py --data data/mini/ade --classes 12 --steps 250 --out work_dirs/lightning

The folder has ADE20K's layout: images/training, annotations/training, and both for validation, with PNG labels, of
which 0 is unlabelled. The same command with --resume continues from the last checkpoint. Lightning's own options, such
as several GPUs and bf16, are arguments of its Trainer, at the end.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import lightning
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import mmlape
from mmlape.errors import DataError, MMLaPEError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IGNORED = 255


class Images(Dataset):
    """Images (3, H, W) and labels (H, W), of which ``IGNORED`` is unlabelled; crops of a size for training.

    Raises:
        DataError: The folder has no images, or an image has no labels.
    """

    def __init__(self, root: str, split: str, size: int | None):
        self.images, self.labels = (Path(root, kind, split) for kind in ('images', 'annotations'))
        self.names = sorted(path.name for path in self.images.glob('*.*'))
        self.size = size
        if not self.names:
            raise DataError(f'{self.images} has no images: --data takes a folder in the layout of ADE20K')
        missing = [name for name in self.names if not self._labels(name).is_file()]
        if missing:
            raise DataError(f'{self._labels(missing[0])} is missing, as are {len(missing) - 1} more')

    def _labels(self, name: str) -> Path:
        return (self.labels / name).with_suffix('.png')

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        name = self.names[index]
        rgb = np.array(Image.open(self.images / name).convert('RGB'))
        labels = torch.from_numpy(np.array(Image.open(self._labels(name)))).long()
        image = (torch.from_numpy(rgb) / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
        image = image.permute(2, 0, 1)  # (3, H, W)
        labels = torch.where(labels == 0, IGNORED, labels - 1)
        return self._crop(image, labels) if self.size else (image, labels)

    def _crop(self, image: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return a random crop, padded where the image is smaller, and flipped every other time."""
        height, width = labels.shape
        below, right = max(0, self.size - height), max(0, self.size - width)
        image, labels = F.pad(image, (0, right, 0, below)), F.pad(labels, (0, right, 0, below), value=IGNORED)
        top, left = (int(torch.randint(side - self.size + 1, ())) for side in labels.shape)
        inside = (..., slice(top, top + self.size), slice(left, left + self.size))
        image, labels = image[inside], labels[inside]
        return (image.flip(-1), labels.flip(-1)) if torch.rand(()) < 0.5 else (image, labels)


class Segmentation(lightning.LightningModule):
    """The pyramid of a backbone under the sum of its maps.

    Args:
        backbone: A name of ``mmlape.list_models('*-adapter*')``.
        options: More arguments of the backbone.
        classes: Number of classes.
        size: Side of the crops.
        lr: Learning rate, which falls to 0 over ``steps``.
        weight_decay: As in ``mmlape.param_groups``.
        layer_decay: Rate from one layer of the ViT to the one before it.
        steps: Steps of training.
    """

    def __init__(
        self,
        classes: int,
        backbone: str = 'deit-tiny-adapter-lape',
        options: dict | None = None,
        size: int = 512,
        lr: float = 1e-4,
        weight_decay: float = 0.05,
        layer_decay: float | None = None,
        steps: int = 80_000,
    ):
        super().__init__()
        self.save_hyperparameters()
        self.backbone = mmlape.get_model(backbone, **{'img_size': size, **(options or {})})
        width = self.backbone.embed_dims
        self.lateral = nn.ModuleList(nn.Conv2d(width, 128, 1) for _ in range(4))
        self.classify = nn.Sequential(nn.GroupNorm(8, 128), nn.ReLU(), nn.Conv2d(128, classes, 1))
        self.counts = torch.zeros(classes, classes, dtype=torch.long)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, classes, H, W) of images (B, 3, H, W)."""
        maps = [lateral(one) for lateral, one in zip(self.lateral, self.backbone(images))]
        side = maps[0].shape[-2:]
        total = sum(F.interpolate(one, side, mode='bilinear') for one in maps)
        return F.interpolate(self.classify(total), images.shape[-2:], mode='bilinear')

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self(images), labels, ignore_index=IGNORED)
        self.log('loss', loss, prog_bar=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        images, labels = batch
        classes = self.hparams.classes
        kept = labels != IGNORED
        pairs = labels[kept] * classes + self(images).argmax(1)[kept]
        self.counts += torch.bincount(pairs, minlength=classes**2).view(classes, classes).cpu()

    def on_validation_epoch_start(self) -> None:
        self.counts.zero_()

    def on_validation_epoch_end(self) -> None:
        counts = self.all_gather(self.counts.to(self.device)).view(-1, *self.counts.shape).sum(0).double()
        hits, union = counts.diagonal(), counts.sum(0) + counts.sum(1) - counts.diagonal()
        self.log('mIoU', 100 * (hits / union)[union > 0].mean(), prog_bar=True, rank_zero_only=True)

    def configure_optimizers(self) -> dict:
        chosen = self.hparams
        groups = mmlape.param_groups(self, chosen.lr, chosen.weight_decay, chosen.layer_decay)
        optimizer = torch.optim.AdamW(groups)
        schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, chosen.steps)
        return dict(optimizer=optimizer, lr_scheduler=dict(scheduler=schedule, interval='step'))


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    add = command.add_argument
    add('--data', required=True, metavar='DIR', help='a folder in the layout of ADE20K')
    add('--classes', required=True, type=int, metavar='N', help='number of classes')
    add('--backbone', default='deit-tiny-adapter-lape', metavar='NAME', help='default: %(default)s')
    add('--weights', metavar='FILE', help='of the ViT, in any known layout')
    add('--size', type=int, default=512, metavar='S', help='side of the crops; default: %(default)s')
    add('--batch', type=int, default=8, metavar='B', help='images a step; default: %(default)s')
    add('--steps', type=int, default=80_000, metavar='N', help='default: %(default)s')
    add('--lr', type=float, default=1e-4, help='default: %(default)s')
    add('--layer-decay', type=float, metavar='RATE', help='such as 0.75; default: none')
    add('--workers', type=int, default=2, metavar='N', help='processes that load data; default: %(default)s')
    add('--out', default='work_dirs/lightning', metavar='DIR', help='default: %(default)s')
    add('--resume', action='store_true', help='continue from the last checkpoint in --out')
    return command


def main(argv: Sequence[str], options: dict | None = None) -> Segmentation:
    """Train, and return the model; ``options`` are more arguments of the backbone."""
    args = parser().parse_args(argv)
    training = Images(args.data, 'training', args.size)
    validation = Images(args.data, 'validation', None)
    lightning.seed_everything(0, workers=True, verbose=False)
    model = Segmentation(
        args.classes, args.backbone, options, args.size, args.lr, layer_decay=args.layer_decay, steps=args.steps
    )
    if args.weights:
        print(mmlape.load_weights(model.backbone, args.weights))
    keep = ModelCheckpoint(args.out, filename='best', monitor='mIoU', mode='max', save_last=True)
    trainer = lightning.Trainer(
        max_steps=args.steps, callbacks=[keep], default_root_dir=args.out, enable_model_summary=False
    )
    trainer.fit(
        model,
        DataLoader(training, args.batch, shuffle=True, drop_last=True, num_workers=args.workers),
        DataLoader(validation, 1, num_workers=args.workers),
        ckpt_path='last' if args.resume else None,
    )
    return model


if __name__ == '__main__':
    try:
        main(sys.argv[1:])
    except MMLaPEError as error:
        sys.exit(f'lightning_segmentation: error: {error}')
