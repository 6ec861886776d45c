"""Hooks of evaluations: per-class values, a second pass with a changed pipeline, predictions in files."""

import copy
import os
from pathlib import Path

import torch
from mmengine.dist import collect_results, get_world_size, is_main_process
from mmengine.hooks import EarlyStoppingHook as MMEngineEarlyStoppingHook
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop, autocast
from mmengine.runner.base_loop import BaseLoop

from mmlape.errors import ConfigError
from mmlape.lab.datasets.transforms import guard_loading
from mmlape.lab.evaluation.metric_names import split_per_class
from mmlape.lab.evaluation.saved import object_rows, save_label_map, write_rows
from mmlape.lab.registry import HOOKS, class_of, resolve_class


@HOOKS.register_module()
class PerClassHook(Hook):
    """Keep the last evaluation's per-class values in :attr:`values`, hidden from other hooks."""

    changes_results = False
    priority = 'HIGHEST'

    def __init__(self) -> None:
        self.values: dict[str, dict[str, float]] = {}

    def after_val_epoch(self, runner, metrics: dict | None = None) -> None:
        """Take them out of an evaluation during training, or of a test."""
        self.values = split_per_class(metrics or {})

    after_test_epoch = after_val_epoch


@HOOKS.register_module()
class EarlyStoppingHook(MMEngineEarlyStoppingHook):
    """MMEngine's hook, whose patience begins when the score has first left zero: a detector's AP stays there at first.

    Arguments are MMEngine's.
    """

    def _check_stop_condition(self, current_score: float) -> tuple[bool, str]:
        if current_score == 0 and self.best_score <= 0:  # -inf before any score; of a rule 'less' inf
            return False, ''
        return super()._check_stop_condition(current_score)


@HOOKS.register_module()
class SecondEvaluationHook(Hook):
    """Add the metrics of a second pass over the images to those of every test and of the last validation.

    The validations before the last one cost a pass each and choose the best checkpoint, by the
    config's own pipeline. The second pass sees the same weights, averaged ones too.

    Args:
        name: Put in front of the metrics: 'accuracy/top1' becomes '<name>/accuracy/top1'.
        changes: The arguments of transforms that change, ``{type: {argument: value}}``.
    """

    changes_results = False
    counts = {}  # the sizes in `changes` are of images
    # before the hooks that log and record the metrics, and before averaged weights are put back
    priority = 'HIGHEST'

    def __init__(self, name: str, changes: dict[str, dict]) -> None:
        self.name, self.changes = name, changes

    def before_run(self, runner) -> None:
        """Check that the pipelines have the transforms to change, or raise ConfigError."""
        for key in ('val_dataloader', 'test_dataloader'):
            if runner.cfg.get(key):
                self._changed(runner.cfg, key)

    def after_val_epoch(self, runner, metrics: dict | None = None) -> None:
        """Add the metrics at the end of training."""
        loop = runner.train_loop
        if isinstance(loop, IterBasedTrainLoop):
            last = loop.iter >= loop.max_iters
        else:
            last = loop.epoch >= loop.max_epochs
        if last and metrics is not None:
            metrics.update(self._evaluate(runner, runner.val_loop, 'val'))

    def after_test_epoch(self, runner, metrics: dict | None = None) -> None:
        """Add the metrics of a test."""
        if metrics is not None:
            metrics.update(self._evaluate(runner, runner.test_loop, 'test'))

    def _changed(self, cfg: dict, key: str) -> dict:
        """Return a data loader's configuration with the changed pipeline.

        Its workers end with the pass.
        """
        loader = copy.deepcopy(cfg[key])
        steps = loader['dataset'].get('pipeline') or []
        for name, arguments in self.changes.items():
            scope = cfg.get('default_scope')
            wanted = resolve_class(name, scope, 'TRANSFORMS')
            matching = [step for step in steps if wanted and class_of(step, scope, 'TRANSFORMS') is wanted]
            if not matching:
                raise ConfigError(
                    f"SecondEvaluationHook '{self.name}': {key} has no transform {name}; change "
                    'the hook in custom_hooks together with the pipeline, or remove it'
                )
            for step in matching:
                step.update(arguments)
        loader['persistent_workers'] = False
        return loader

    @torch.no_grad()
    def _evaluate(self, runner, loop: BaseLoop, split: str) -> dict[str, float]:
        cfg = copy.deepcopy(runner.cfg)
        guard_loading(cfg)
        loader = runner.build_dataloader(self._changed(cfg, f'{split}_dataloader'), seed=runner.seed)
        evaluator = runner.build_evaluator(copy.deepcopy(runner.cfg[f'{split}_evaluator']))
        evaluator.dataset_meta = getattr(loader.dataset, 'metainfo', None)
        runner.logger.info(f'evaluating again: {self.name}, {len(loader)} batches x {get_world_size()}')
        runner.model.eval()
        step = getattr(runner.model, f'{split}_step')
        for batch in loader:
            with autocast(enabled=loop.fp16):
                outputs = step(batch)
            evaluator.process(data_samples=outputs, data_batch=batch)
        return {f'{self.name}/{key}': value for key, value in evaluator.evaluate(len(loader.dataset)).items()}


@HOOKS.register_module()
class SavePredictionsHook(Hook):
    """Write segmentations as PNGs, detections as one COCO JSON, classifications as one JSON.

    - Segmentation: ``<image name>.png`` under the path that the image has in its folder, with the
      values of the annotation files (classes from 1 where 0 means unlabelled); with a palette, or
      in 16 bits if 8 are too few.
    - Detection: ``predictions.json``, a list of ``image_id, category_id, bbox`` (x, y, width,
      height), ``score`` and, for models with masks, ``segmentation`` (RLE).
    - Classification: ``predictions.json``, a list of ``image, label, class, score``.
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
            elif 'pred_instances' in sample:
                self.rows.append(_instances(sample, dataset))
            else:
                self.rows.append([_label(sample, dataset)])

    def after_test(self, runner) -> None:
        """Write ``predictions.json``, in the order of the dataset and with each image once."""
        if not self.rows:
            return
        size = len(runner.test_loop.dataloader.dataset)
        gathered = collect_results(self.rows, size, 'cpu', str(self.out_dir / '.gather'))
        if is_main_process():
            write_rows(self.out_dir / 'predictions.json', [row for rows in gathered for row in rows])

    def _save_map(self, sample, dataset) -> None:
        save_label_map(
            (self.out_dir / name_in(dataset, sample.img_path)).with_suffix('.png'),
            sample.pred_sem_seg.data.squeeze(0),
            len(dataset.metainfo.get('classes') or []),
            bool(getattr(dataset, 'reduce_zero_label', False)),
            dataset.metainfo.get('palette'),
        )


def name_in(dataset, path: str) -> Path:
    """Return the path that an image has in its dataset's folder; its name, if it is elsewhere."""
    source = Path(os.path.abspath(path))
    for root in (getattr(dataset, 'data_prefix', None) or {}).values():
        if root and source.is_relative_to(os.path.abspath(root)):
            return source.relative_to(os.path.abspath(root))
    return Path(source.name)


def _instances(sample, dataset) -> list[dict]:
    return object_rows(sample.pred_instances, sample.img_id, getattr(dataset, 'cat_ids', None))


def _label(sample, dataset) -> dict:
    scores = sample.pred_score.cpu()
    label = int(scores.argmax())
    classes = dataset.metainfo.get('classes') or []
    name = classes[label] if label < len(classes) else str(label)
    return dict(image=str(sample.img_path), label=label, score=float(scores[label]), **{'class': name})
