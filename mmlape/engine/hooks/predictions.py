"""Save a model's predictions on the test images in the format of the task's annotations."""

import json
from pathlib import Path

import numpy as np
import torch
from mmengine.dist import collect_results, is_main_process
from mmengine.hooks import Hook

from mmlape.evaluation.label_maps import save_label_map
from mmlape.files import atomic_path
from mmlape.registry import HOOKS


@HOOKS.register_module()
class SavePredictionsHook(Hook):
    """Write segmentations as PNGs, detections as one COCO JSON, classifications as one JSON.

    - Segmentation: ``<image name>.png`` under the path that the image has in its folder, with the values of the
      annotation files (classes from 1 where 0 means unlabelled); with a palette, or in 16 bits if 8 are too few.
    - Detection: ``predictions.json``, a list of ``image_id, category_id, bbox`` (x, y, width, height), ``score`` and,
      for models with masks, ``segmentation`` (RLE).
    - Classification: ``predictions.json``, a list of ``image, label, class, score``.

    Args:
        out_dir: The folder; made if it does not exist.
    """

    changes_results = False
    priority = 'LOW'

    def __init__(self, out_dir: str) -> None:
        self.out_dir = Path(out_dir)
        self.rows: list[list[dict]] = []  # by image

    def before_test(self, runner) -> None:
        """Make the folder; start with no predictions."""
        self.out_dir.mkdir(parents=True, exist_ok=True)
        self.rows = []

    def after_test_iter(self, runner, batch_idx: int, data_batch=None, outputs=()) -> None:
        """Save the segmentations of one batch; keep the other predictions."""
        dataset = runner.test_loop.dataloader.dataset
        for sample in outputs:
            if 'pred_sem_seg' in sample:
                self._save_map(sample, dataset)
            else:
                rows = _instances(sample, dataset) if 'pred_instances' in sample else [_label(sample, dataset)]
                self.rows.append(rows)

    def after_test(self, runner) -> None:
        """Write ``predictions.json``, in the order of the dataset and with each image once."""
        if not self.rows:
            return
        size = len(runner.test_loop.dataloader.dataset)
        gathered = collect_results(self.rows, size, 'cpu', str(self.out_dir / '.gather'))
        if is_main_process():
            _write_rows(self.out_dir / 'predictions.json', [row for rows in gathered for row in rows])

    def _save_map(self, sample, dataset) -> None:
        root = (getattr(dataset, 'data_prefix', None) or {}).get('img_path', '')
        source = Path(sample.img_path)
        name = source.relative_to(root) if root and source.is_relative_to(root) else Path(source.name)
        save_label_map(
            (self.out_dir / name).with_suffix('.png'),
            sample.pred_sem_seg.data.squeeze(0),
            len(dataset.metainfo.get('classes') or []),
            bool(getattr(dataset, 'reduce_zero_label', False)),
            dataset.metainfo.get('palette'),
        )


def _write_rows(path: Path, rows: list[dict]) -> None:
    lines = ',\n'.join(json.dumps(row, ensure_ascii=False) for row in rows)
    with atomic_path(path) as partial:
        partial.write_text(f'[\n{lines}\n]\n', encoding='utf-8')


def _instances(sample, dataset) -> list[dict]:
    from pycocotools import mask as coco_mask

    instances = sample.pred_instances
    rows = []
    for i, (box, score, label) in enumerate(
        zip(instances.bboxes.tolist(), instances.scores.tolist(), instances.labels.tolist())
    ):
        left, top, right, bottom = box
        row = dict(
            image_id=sample.img_id,
            category_id=dataset.cat_ids[label] if hasattr(dataset, 'cat_ids') else label,
            bbox=[round(value, 3) for value in (left, top, right - left, bottom - top)],
            score=score,
        )
        if 'masks' in instances:
            mask = instances.masks[i]
            if not isinstance(mask, dict):
                mask = coco_mask.encode(np.asfortranarray(torch.as_tensor(mask).cpu(), np.uint8))
            counts = mask['counts']
            text = counts.decode() if isinstance(counts, bytes) else counts
            row['segmentation'] = dict(size=[int(side) for side in mask['size']], counts=text)
        rows.append(row)
    return rows


def _label(sample, dataset) -> dict:
    scores = sample.pred_score.cpu()
    label = int(scores.argmax())
    classes = dataset.metainfo.get('classes') or []
    name = classes[label] if label < len(classes) else str(label)
    return dict(image=str(sample.img_path), label=label, score=float(scores[label]), **{'class': name})
