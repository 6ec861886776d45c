"""Mean IoU and accuracy of segmentation at full precision, overall and class by class."""

import inspect
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from mmseg.evaluation.metrics import IoUMetric as MMSegIoUMetric

from mmlape.console.log import log
from mmlape.errors import DataError
from mmlape.lab.evaluation.metric_names import flatten_per_class
from mmlape.lab.evaluation.saved import save_label_map
from mmlape.lab.registry import METRICS

MUCH_IGNORED = 0.5
"""Share of pixels without a label above which the evaluation warns."""
PIXELS = 2**24
"""Counted at once, so that memory does not grow with the image."""


@METRICS.register_module()
class IoUMetric(MMSegIoUMetric):
    """MMSegmentation's IoU metric, counted in integers, unrounded, with the values of each class.

    MMSegmentation sums pixels in float32, exact up to 16.7 million only; here the sums are int64.
    Keys are MMSegmentation's (``aAcc``, ``mIoU``, ``mAcc``, ...), in percent, and
    ``per_class/IoU/<class>``, ``per_class/Acc/<class>``. A class that is neither in the ground
    truth nor predicted has an IoU of NaN and is left out of the mean; the accuracy of a class
    without ground truth is NaN.

    Args:
        *args: As in MMSegmentation.
        per_class: Whether to return the values of single classes too.
        **kwargs: As in MMSegmentation.

    Raises:
        DataError: A label map has a label outside the classes (the message names it), or nothing
            was evaluated.
    """

    def __init__(self, *args, per_class: bool = True, **kwargs) -> None:
        # MMSegmentation leaves those alone that it does not know
        for name in kwargs.keys() - inspect.signature(MMSegIoUMetric.__init__).parameters:
            raise TypeError(f"IoUMetric got an unexpected keyword argument '{name}'")
        super().__init__(*args, **kwargs)
        self.per_class = per_class

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Count the pixels of a batch; write the predicted maps if ``output_dir`` is set."""
        num_classes = len(self.dataset_meta['classes'])
        for sample in data_samples:
            predicted = sample['pred_sem_seg']['data'].squeeze()
            if self.output_dir is not None:
                path = Path(self.output_dir, f'{Path(sample["img_path"]).stem}.png')
                save_label_map(path, predicted, num_classes, bool(sample.get('reduce_zero_label')))
            if self.format_only:
                continue
            label = sample['gt_sem_seg']['data'].squeeze().to(predicted)
            areas = self.intersect_and_union(predicted, label, num_classes, self.ignore_index)
            if int(areas[-1].sum()) < int((label != self.ignore_index).sum()):
                path = sample.get('seg_map_path') or sample.get('img_path')
                raise DataError(
                    f'{path} has labels above {num_classes - 1}: check num_classes, the classes and reduce_zero_label'
                )
            self.results.append((*areas, (label == self.ignore_index).sum().cpu()))

    @staticmethod
    def intersect_and_union(
        pred_label: torch.Tensor, label: torch.Tensor, num_classes: int, ignore_index: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Count the pixels of each class in one image.

        Args:
            pred_label: (H, W), predicted labels.
            label: (H, W), true labels.
            num_classes: Number of classes K.
            ignore_index: The label of pixels that are left out.

        Returns:
            Pixels in both maps, in either, in the prediction, in the ground truth; each (K,) int64,
            on the CPU.
        """
        counts = torch.zeros(3, num_classes, dtype=torch.long)
        for truth, predicted in zip(label.flatten().split(PIXELS), pred_label.flatten().split(PIXELS)):
            valid = truth != ignore_index
            truth, predicted = truth[valid].long().cpu(), predicted[valid].long().cpu()
            for count, values in zip(counts, (truth[truth == predicted], predicted, truth)):
                count += torch.bincount(values, minlength=num_classes)[:num_classes]
        intersection, of_prediction, of_truth = counts
        return intersection, of_prediction + of_truth - intersection, of_prediction, of_truth

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Compute the values by key over all images, from the counts of `intersect_and_union` for each."""
        if self.format_only:
            log(f'predictions are in {self.output_dir}')
            return {}
        if not results:
            raise DataError('nothing to evaluate: no image was processed')
        *totals, ignored = (torch.stack(counts).sum(dim=0).double() for counts in zip(*results))
        share = float(ignored / (ignored + totals[-1].sum()))
        if share > MUCH_IGNORED:
            message = f'{share:.1%} of the pixels have no label: no score counts what is predicted there'
            log(message, logging.WARNING)
        measures = self.total_area_to_metrics(*totals, self.metrics, self.nan_to_num, self.beta)
        values = {'aAcc': float(measures.pop('aAcc')) * 100}
        for measure, row in measures.items():
            # NaN, without NumPy's warning, where every pixel is ignored
            values[f'm{measure}'] = float(np.nanmean(row)) * 100 if np.isfinite(row).any() else float('nan')
        names = self.dataset_meta['classes']
        single = {measure: dict(zip(names, (row * 100).tolist(), strict=True)) for measure, row in measures.items()}
        return values | flatten_per_class(single) if self.per_class else values
