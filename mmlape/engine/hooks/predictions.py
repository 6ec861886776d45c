"""Save a model's predictions on the test images in the format of the task's annotations."""

import json
from pathlib import Path

import numpy as np
from mmengine.dist import barrier, get_rank, get_world_size
from mmengine.hooks import Hook
from PIL import Image

from mmlape.files import atomic_path
from mmlape.registry import HOOKS


@HOOKS.register_module()
class SavePredictionsHook(Hook):
    """Write segmentations as palette PNGs, detections as one COCO JSON, classifications as one JSON.

    - Segmentation: ``<image name>.png`` under the path that the image has in its folder, with the values of the
      annotation files (classes from 1 where 0 means unlabelled).
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
        self.rows: list[dict] = []
        self.has_list = False

    def before_test(self, runner) -> None:
        """Make the folder; start with no predictions."""
        self.out_dir.mkdir(parents=True, exist_ok=True)
        self.rows = []

    def after_test_iter(self, runner, batch_idx: int, data_batch=None, outputs=()) -> None:
        """Save the predictions of one batch."""
        dataset = runner.test_loop.dataloader.dataset
        for sample in outputs:
            if 'pred_sem_seg' in sample:
                self._save_map(sample, dataset)
                continue
            self.has_list = True
            self.rows += _instances(sample, dataset) if 'pred_instances' in sample else [_label(sample, dataset)]

    def after_test(self, runner) -> None:
        """Join the processes' lists into ``predictions.json``, each image once."""
        target = self.out_dir / 'predictions.json'
        if self.has_list and get_world_size() > 1:
            self._part(get_rank()).write_text(json.dumps(self.rows), encoding='utf-8')
            barrier()
            if get_rank() == 0:
                self.rows = self._joined()
        if self.has_list and get_rank() == 0:
            _write_rows(target, self.rows)

    def _part(self, rank: int) -> Path:
        return self.out_dir / f'.predictions.{rank}.json'

    def _joined(self) -> list[dict]:
        rows, seen = [], set()
        for rank in range(get_world_size()):
            part = json.loads(self._part(rank).read_text(encoding='utf-8'))
            self._part(rank).unlink()
            rows += [row for row in part if _image(row) not in seen]
            seen |= {_image(row) for row in part}
        return sorted(rows, key=lambda row: str(_image(row)).zfill(16))

    def _save_map(self, sample, dataset) -> None:
        labels = sample.pred_sem_seg.data.squeeze(0).cpu().numpy().astype(np.uint8)  # (H, W)
        palette = list(dataset.metainfo.get('palette') or [])
        if getattr(dataset, 'reduce_zero_label', False):
            labels, palette = labels + 1, [(0, 0, 0), *palette]
        image = Image.fromarray(labels).convert('P')
        image.putpalette(np.asarray(palette, np.uint8).ravel().tolist())
        root = (getattr(dataset, 'data_prefix', None) or {}).get('img_path', '')
        source = Path(sample.img_path)
        name = source.relative_to(root) if root and source.is_relative_to(root) else Path(source.name)
        path = (self.out_dir / name).with_suffix('.png')
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)


def _image(row: dict) -> object:
    return row.get('image_id', row.get('image'))


def _write_rows(path: Path, rows: list[dict]) -> None:
    lines = ',\n'.join(json.dumps(row, ensure_ascii=False) for row in rows)
    with atomic_path(path) as partial:
        partial.write_text(f'[\n{lines}\n]\n', encoding='utf-8')


def _instances(sample, dataset) -> list[dict]:
    from pycocotools import mask as coco_mask

    found = sample.pred_instances
    rows = []
    for i, (box, score, label) in enumerate(zip(found.bboxes.tolist(), found.scores.tolist(), found.labels.tolist())):
        left, top, right, bottom = box
        row = dict(
            image_id=sample.img_id,
            category_id=dataset.cat_ids[label] if hasattr(dataset, 'cat_ids') else label,
            bbox=[round(value, 3) for value in (left, top, right - left, bottom - top)],
            score=score,
        )
        if 'masks' in found:
            mask = found.masks[i]
            rle = mask if isinstance(mask, dict) else coco_mask.encode(np.asfortranarray(_uint8(mask)))
            counts = rle['counts']
            text = counts.decode() if isinstance(counts, bytes) else counts
            row['segmentation'] = dict(size=[int(side) for side in rle['size']], counts=text)
        rows.append(row)
    return rows


def _uint8(mask) -> np.ndarray:
    return (mask.cpu().numpy() if hasattr(mask, 'cpu') else np.asarray(mask)).astype(np.uint8)


def _label(sample, dataset) -> dict:
    scores = sample.pred_score.cpu()
    label = int(scores.argmax())
    classes = dataset.metainfo.get('classes') or []
    name = classes[label] if label < len(classes) else str(label)
    return dict(image=str(sample.img_path), label=label, score=float(scores[label]), **{'class': name})
