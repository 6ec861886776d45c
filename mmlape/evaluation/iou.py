"""Mean IoU and accuracy of segmentation at full precision, overall and class by class."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.logging import print_log
from mmseg.evaluation.metrics import IoUMetric as MMSegIoUMetric

from ..errors import DataError
from ..registry import METRICS
from .per_class import flatten


@METRICS.register_module()
class IoUMetric(MMSegIoUMetric):
    """MMSegmentation's IoU metric, counted in integers, unrounded, with the values of each class.

    MMSegmentation adds pixels up in float32, which is exact to 16.7 million only; here they are int64. Keys are
    MMSegmentation's (``aAcc``, ``mIoU``, ``mAcc``, ...), in percent, and ``per_class/IoU/<class>``,
    ``per_class/Acc/<class>``. A class that is neither in the ground truth nor predicted has an IoU of NaN and is left
    out of the mean; the accuracy of a class without ground truth is NaN.

    Args:
        per_class: Whether to return the values of single classes too.
        **kwargs: As in MMSegmentation.

    Raises:
        DataError: A ground truth map holds a label outside the classes (named with its file), or nothing was
            evaluated.
    """

    def __init__(self, *args, per_class: bool = True, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.per_class = per_class

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Counts the pixels of a batch, and writes the predicted maps where ``output_dir`` asks for them."""
        for sample in data_samples:
            try:
                super().process(data_batch, [sample])
            except DataError as error:
                raise DataError(
                    f'{sample.get("seg_map_path") or sample.get("img_path") or "an image"}: {error}'
                ) from error

    @staticmethod
    def intersect_and_union(
        pred_label: torch.Tensor, label: torch.Tensor, num_classes: int, ignore_index: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Counts the pixels of each class in one image.

        Args:
            pred_label: (H, W), predicted labels.
            label: (H, W), true labels.
            num_classes: Number of classes K.
            ignore_index: The label of pixels that don't count.

        Returns:
            Pixels in both maps, in either, in the prediction, in the ground truth; each (K,) int64, on the CPU.

        Raises:
            DataError: A label is outside 0 .. K-1 and not ``ignore_index``.
        """
        counted = label != ignore_index
        truth, predicted = label[counted].long().cpu(), pred_label[counted].long().cpu()
        outside = truth[(truth < 0) | (truth >= num_classes)].unique().tolist()
        if outside:
            raise DataError(
                f'labels {outside[:10]} in the ground truth, but the {num_classes} classes are 0..{num_classes - 1} '
                f'and {ignore_index} is ignored: check num_classes, the class list and reduce_zero_label'
            )
        both, of_prediction, of_truth = (
            torch.bincount(values, minlength=num_classes)[:num_classes]
            for values in (truth[truth == predicted], predicted, truth)
        )
        return both, of_prediction + of_truth - both, of_prediction, of_truth

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Computes the values of all images.

        Args:
            results: What `intersect_and_union` gave for each image.

        Returns:
            Value by key, without a prefix.
        """
        if self.format_only:
            print_log(f'predictions are in {self.output_dir}', 'current')
            return {}
        if not results:
            raise DataError('nothing to evaluate: no image was processed')
        totals = (torch.stack(counts).sum(dim=0).double() for counts in zip(*results))
        measures = self.total_area_to_metrics(*totals, self.metrics, self.nan_to_num, self.beta)
        values = {'aAcc': float(measures.pop('aAcc')) * 100}
        for measure, row in measures.items():
            # A mean over no class at all (every pixel ignored) is NaN, without NumPy's warning.
            values[f'm{measure}'] = float(np.nanmean(row)) * 100 if np.isfinite(row).any() else float('nan')
        names = self.dataset_meta['classes']
        single = {measure: dict(zip(names, (row * 100).tolist(), strict=True)) for measure, row in measures.items()}
        return values | flatten(single) if self.per_class else values
