"""Run in an environment with Lightning alone by `tests/environment/test_integrations.py`: the recipe of one file."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

sys.path.append(str(Path(__file__).resolve().parents[2] / 'examples'))
import lightning_segmentation as recipe

OPTIONS = dict(
    arch=dict(embed_dims=32, num_layers=4, num_heads=2, feedforward_channels=64), conv_inplane=8, deform_num_heads=2
)
SIDES = ((70, 93), (48, 40), (64, 64), (33, 90))


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Images whose left part is dark, class 1, and whose right part is bright, class 2; a border is unlabelled."""
    root, random = tmp_path_factory.mktemp('data'), np.random.default_rng(0)
    for split in ('training', 'validation'):
        for kind in ('images', 'annotations'):
            (root / kind / split).mkdir(parents=True)
        for number, (height, width) in enumerate(SIDES):
            labels = np.ones((height, width), np.uint8)
            labels[:, width // 2 :] = 2
            image = (100 * labels[..., None] + random.integers(-50, 50, (height, width, 3))).astype(np.uint8)
            labels[:2] = 0
            Image.fromarray(image).save(root / 'images' / split / f'{number}.jpg')
            Image.fromarray(labels).save(root / 'annotations' / split / f'{number}.png')
    return root


def train(data, out, steps, *more):
    words = f'--data {data} --out {out} --steps {steps} --classes 2 --size 64 --batch 2 --lr 3e-3 --workers 0'
    return recipe.main([*words.split(), *more], OPTIONS)


@pytest.fixture(scope='module')
def trained(data, tmp_path_factory):
    out = tmp_path_factory.mktemp('out')
    return out, train(data, out, 30)


def test_it_learns_and_its_metric_is_mean_iou(trained, data):
    _, model = trained
    found = []
    validation = recipe.Images(data, 'validation', None)
    ious = [[0, 0], [0, 0]]
    with torch.no_grad():
        for image, labels in validation:
            predicted = model.eval()(image[None])[0].argmax(0)
            for number, entry in enumerate(ious):
                ours, theirs = (predicted == number) & (labels != 255), labels == number
                entry[0] += int((ours & theirs).sum())
                entry[1] += int((ours | theirs).sum())
    found = 100 * sum(hits / union for hits, union in ious) / 2
    assert float(model.trainer.callback_metrics['mIoU']) == pytest.approx(found, abs=1e-3)
    assert found > 60


def test_a_checkpoint_has_the_model_and_a_run_resumes(trained, data):
    out, model = trained
    loaded = recipe.Segmentation.load_from_checkpoint(out / 'last.ckpt')
    image = torch.randn(1, 3, 50, 71)
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval().cpu()(image), model.eval().cpu()(image))
    resumed = train(data, out, 32, '--resume')
    assert resumed.trainer.global_step == 32
    apart = [(one - other).abs().max() for one, other in zip(resumed.parameters(), model.parameters())]
    assert max(apart) == 0  # the schedule had ended, with a rate of 0; a run that starts anew has other weights


def test_rates_and_decays_are_those_of_the_groups():
    model = recipe.Segmentation(2, options=OPTIONS, size=64, lr=0.1, layer_decay=0.5, steps=10)
    groups = model.configure_optimizers()['optimizer'].param_groups
    by_parameter = {id(parameter): group for group in groups for parameter in group['params']}
    named = {name: by_parameter[id(value)] for name, value in model.named_parameters() if value.requires_grad}
    assert named['classify.2.weight']['lr'] == 0.1 and named['classify.2.weight']['weight_decay'] == 0.05
    layers = [named[f'backbone.blocks.{number}.attn.qkv.weight']['lr'] for number in range(4)]
    assert layers == pytest.approx([0.1 * 0.5**power for power in (4, 3, 2, 1)])
