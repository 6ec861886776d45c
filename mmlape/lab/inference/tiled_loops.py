"""Validation and test of large images in tiles: ``val_cfg = dict(type='mmlape.TiledValLoop', tile=384, overlap=96)``.

The model gets batches of tiles, cut of each image as its pipeline loads it; metrics and hooks get the
merged prediction on the complete image. `mmlape.lab.inference.tiling` says how tiles are merged.
"""

from collections.abc import Sequence

import torch
from mmengine.evaluator import Evaluator
from mmengine.model import is_model_wrapper
from mmengine.runner import TestLoop, ValLoop, autocast
from mmengine.runner.base_loop import BaseLoop
from mmengine.structures import BaseDataElement
from torch import Tensor
from torch.utils.data import DataLoader

from mmlape.errors import ConfigError
from mmlape.lab.datasets.transforms import patch_size
from mmlape.lab.inference import TASKS
from mmlape.lab.inference.tiling import Window, predict_tiles, tiling_of
from mmlape.lab.registry import LOOPS


class _Tiled(BaseLoop):
    """What both loops have in common; the other base is MMEngine's loop of ``split``.

    Args:
        runner: Of the loop.
        dataloader: Its images are not resized.
        evaluator: Of the complete images.
        tile: The side of square tiles, in pixels.
        overlap: Pixels that neighbouring tiles share, as large as an object; by default an eighth of
            ``tile``.
        batch_size: Tiles that the model gets at once.
        max_per_img: So many of an image's objects are kept, the most certain ones; by default all.
        fp16: As MMEngine's.

    Raises:
        ConfigError: There are no such tiles, the model cannot predict on them, or the pipeline
            changes the size of an image.
    """

    split: str

    def __init__(
        self,
        runner,
        dataloader: DataLoader | dict,
        evaluator: Evaluator | dict | list,
        tile: int,
        overlap: int | None = None,
        batch_size: int = 4,
        max_per_img: int | None = None,
        fp16: bool = False,
    ) -> None:
        super().__init__(runner, dataloader, evaluator, fp16)
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        task = TASKS.get(runner.cfg.get('default_scope'), 'other models')
        self.tiling = tiling_of(tile, overlap, task, patch_size(runner.cfg), getattr(model, 'test_cfg', None))
        self.model, self.batch_size, self.max_per_img = model, batch_size, max_per_img

    @torch.no_grad()
    def run_iter(self, idx: int, data_batch: dict) -> None:
        """Predict on the images of a batch one after the other."""
        self.runner.call_hook(f'before_{self.split}_iter', batch_idx=idx, data_batch=data_batch)
        with autocast(enabled=self.fp16):
            pairs = zip(data_batch['inputs'], data_batch['data_samples'], strict=True)
            outputs = [self.predict(image, sample) for image, sample in pairs]
        self.evaluator.process(data_samples=outputs, data_batch=data_batch)
        self.runner.call_hook(f'after_{self.split}_iter', batch_idx=idx, data_batch=data_batch, outputs=outputs)

    def predict(self, image: Tensor, sample: BaseDataElement) -> BaseDataElement:
        """Add to a data sample what the model predicts on its image (C, H, W)."""
        size = tuple(image.shape[1:])
        if size != tuple(sample.ori_shape[:2]):
            raise ConfigError(
                f'{self.split}_dataloader.dataset.pipeline changes the size of images, and {self.split}_cfg.tile is '
                'in pixels of the file: remove Resize, Pad and the like'
            )

        def predict(windows: Sequence[Window]) -> list[BaseDataElement]:
            tiles = [image[:, rows, columns] for rows, columns in windows]
            shape = tuple(tiles[0].shape[1:])
            meta = dict(sample.metainfo, ori_shape=shape, img_shape=shape, scale_factor=(1.0, 1.0))
            data = dict(inputs=tiles, data_samples=[type(sample)(metainfo=meta) for _ in tiles])
            return getattr(self.runner.model, f'{self.split}_step')(data)

        merged = predict_tiles(self.model, predict, self.tiling, size, self.batch_size, self.max_per_img)
        sample.set_data(dict(merged.items()))
        if 'gt_instances' in sample:  # as the data preprocessor of a complete image does
            from mmdet.models.utils import samplelist_boxtype2tensor

            samplelist_boxtype2tensor([sample])
        return sample


@LOOPS.register_module()
class TiledValLoop(_Tiled, ValLoop):
    """MMEngine's loop of a validation, by tiles."""

    split = 'val'


@LOOPS.register_module()
class TiledTestLoop(_Tiled, TestLoop):
    """MMEngine's loop of a test, by tiles."""

    split = 'test'
