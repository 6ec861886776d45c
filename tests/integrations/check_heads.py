"""Run beside transformers 5 by `tests/environment/test_integrations.py`: the suite `heads`, on mini models."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the benchmarks are in no wheel
from benchmarks.comparison import Settings
from benchmarks.measure import measure
from benchmarks.suites import comparisons, heads

SETTINGS = Settings(arch='mini', sizes=(64,), batch=2, quick=True, repeats=1, budget=0.0)


@pytest.mark.parametrize('comparison', comparisons('heads', SETTINGS), ids=lambda one: one.work)
def test_every_side_runs(comparison):
    result = measure(comparison, SETTINGS, None)
    assert not result['failed'] and [side['name'] for side in result['sides']] == list(heads.SIDES)


def test_sides_share_the_heads_and_a_frozen_vit_has_no_gradients():
    models = {name: build(SETTINGS) for name, build in heads.SIDES.items()}
    sizes = [sum(one.numel() for one in model.model.transformer_module.parameters()) for model in models.values()]
    assert len(set(sizes)) == 1
    frozen = models['frozen DINOv3, read-only adapter'].model.pixel_level_module.encoder.backbone
    assert not any(one.requires_grad for one in frozen.vit.parameters())


def test_objects_are_boxes_with_a_class_each():
    truth = heads.objects(SETTINGS, 64)
    assert [mask.shape for mask in truth['mask_labels']] == [(8, 64, 64)] * 2
    for mask, classes in zip(truth['mask_labels'], truth['class_labels']):
        assert classes.shape == (8,) and classes.max() < heads.CLASSES
        for one in mask:
            ys, xs = torch.where(one > 0)
            assert len(ys) == (ys.max() - ys.min() + 1) * (xs.max() - xs.min() + 1) >= 8
