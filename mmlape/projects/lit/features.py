"""Features of a frozen image tower, computed once for each training image and kept in a file."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from mmengine.dist import barrier, broadcast_object_list, is_main_process
from mmengine.hooks import Hook
from torch import Tensor

from mmlape.errors import ConfigError
from mmlape.files import atomic_path, file_version
from mmlape.lab.engine.distributed.sharding import full_tensor
from mmlape.lab.runs.identity import precision
from mmlape.projects.lit.shards import PREFIX, split_name
from mmlape.registry import HOOKS

FIXED = (
    'LoadImageFromFile',
    'LoadImageFromTar',
    'Resize',
    'ResizeEdge',
    'CenterCrop',
    'Pad',
    'RandomCaption',
    'PackInputs',
)
"""Transforms that give the same image each time."""


class FeatureCache:
    """A file of one row of features for each image; a row that is not computed yet has NaN."""

    def __init__(self, file: Path, images: Sequence[str]) -> None:
        self.rows = {image: row for row, image in enumerate(images)}
        self.values = np.load(file, mmap_mode='r+')

    def __call__(self, samples: Sequence, compute: Callable[[], Tensor]) -> Tensor:
        """Return the features (B, width) of samples.

        Compute, and keep, those of the whole batch if one is missing.
        """
        rows = [self.rows[sample.img_path] for sample in samples]
        features = torch.from_numpy(self.values[rows])
        if features.isnan().any():
            features = compute()
            self.values[rows] = features.float().cpu().numpy()
        return features


def _version(image: str) -> tuple[int, int] | None:
    """Return size and time of an image's file, or of its archive.

    None where it is on no disk of this machine.
    """
    try:
        return file_version(split_name(image)[0] if image.startswith(PREFIX) else image)
    except OSError:
        return None


@HOOKS.register_module()
class ImageFeatureHook(Hook):
    """Have `mmlape.LiT` compute the frozen features of each training image once, in float32.

    The file's name is a hash of the tower, its weights, the transforms and the images (path, size
    and time of their files), so that a resumed run and other runs of the same tower continue with
    it, and nothing else does.

    Args:
        folder: Where the file is; 4 bytes times width times images.

    Raises:
        ConfigError: Before the first step, if the model has no frozen tower, or a transform could
            be random.
    """

    changes_results = False

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).expanduser()

    def before_train(self, runner) -> None:
        """Check model and transforms, and open the file."""
        model, cfg, dataset = runner.bare_model, runner.cfg, runner.train_dataloader.dataset
        if not hasattr(model, 'image_features'):
            raise ConfigError('ImageFeatureHook: only mmlape.LiT has a frozen image tower')
        steps = getattr(getattr(dataset, 'pipeline', None), 'transforms', ())
        transforms = [type(step).__name__ for step in steps]
        refused = [name for name in transforms if name not in FIXED]
        if refused or not transforms:
            raise ConfigError(
                'ImageFeatureHook: features of images that change cannot be kept, and '
                f'{", ".join(refused) or "this dataset"} may change them: remove the transform or '
                f'the hook; these change none: {", ".join(FIXED)}'
            )
        images = [dataset.get_data_info(index)['img_path'] for index in range(len(dataset))]
        parts = [
            [_version(image) for image in images],
            cfg.model.backbone,
            cfg.model.data_preprocessor,
            cfg.train_dataloader.dataset.pipeline,
            precision(cfg),
        ]
        digest = hashlib.sha256(json.dumps([parts, images], default=str).encode())
        for name, value in sorted(model.backbone.state_dict().items()):
            digest.update(name.encode())
            digest.update(full_tensor(value).contiguous().cpu().view(-1).view(torch.uint8).numpy())
        names = [digest.hexdigest()[:16]]
        broadcast_object_list(names)  # a copy of the images on another machine has other times
        file = self.folder / f'{names[0]}.npy'
        if is_main_process() and not file.exists():
            with atomic_path(file) as partial:
                np.save(partial, np.full((len(images), model.width), np.nan, np.float32))
        barrier()
        model.image_features = FeatureCache(file, images)
