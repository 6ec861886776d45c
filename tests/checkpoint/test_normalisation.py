"""The mean and standard deviation that a file's weights want are shown; others in training or testing warn."""

import json
from argparse import Namespace

import numpy as np
import pytest
from checkpoint_helpers import record_in, run_file, save, to_flax
from mmengine.model import BaseModel, ImgDataPreprocessor
from model_helpers import vit
from test_metadata import warnings  # noqa: F401

from mmlape.checkpoint import load_model
from mmlape.checkpoint.converting import convert, inspect, publish
from mmlape.checkpoint.loading import warn_of_normalisation

IMAGENET = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
HALF = dict(mean=[127.5] * 3, std=[127.5] * 3)


class Classifier(BaseModel):
    def __init__(self, normalisation, **kwargs):
        super().__init__(data_preprocessor=ImgDataPreprocessor(**normalisation))
        self.backbone = vit(**kwargs)

    def forward(self, inputs):
        return self.backbone(inputs)


def augreg(path):
    np.savez(path, **to_flax(vit()))
    return str(path)


def timm_hub(folder, **pretrained_cfg):
    from safetensors.torch import save_file

    folder.mkdir()
    save_file(vit().state_dict(), folder / 'model.safetensors', {'format': 'pt'})
    (folder / 'config.json').write_text(json.dumps(dict(architecture='vit', pretrained_cfg=pretrained_cfg)))
    return str(folder / 'model.safetensors')


def timm_metadata(path):
    from safetensors.torch import save_file

    cfg = dict(mean=[0.5] * 3, std=[0.5] * 3)
    save_file(vit().state_dict(), path, {'format': 'pt', 'pretrained_cfg': json.dumps(cfg)})
    return str(path)


def config_text(path):
    """As MMEngine stores it."""
    text = f'model = dict(data_preprocessor=dict(mean={[127.5] * 3}, std={[127.5] * 3}))'
    return save(path, vit().state_dict(), 'state_dict', meta=dict(cfg=text))


FILES = {
    'AugReg and big_vision': lambda folder: augreg(folder / 'a.npz'),
    "timm's pretrained_cfg": lambda folder: timm_hub(folder / 'hub', mean=[0.5] * 3, std=[0.5] * 3),
    'pretrained_cfg of the metadata': lambda folder: timm_metadata(folder / 'a.safetensors'),
    "timm's training arguments": lambda folder: save(
        folder / 'a.pth', vit().state_dict(), args=Namespace(mean=[0.5] * 3, std=[0.5] * 3)
    ),
    'of the stored config': lambda folder: config_text(folder / 'a.pth'),
    'recorded': lambda folder: run_file(folder / 'a.pth', Classifier(HALF)),
}


@pytest.mark.parametrize('source', FILES)
def test_a_file_says_which_normalisation_it_wants_and_another_warns(tmp_path, warnings, source):  # noqa: F811
    path = FILES[source](tmp_path)
    shown = inspect(path)['images']
    assert shown.startswith('mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5]: ')
    assert source.removesuffix(' of the metadata') in shown
    for normalisation, count in ((HALF, 0), ({}, 0), (IMAGENET, 1)):
        model = Classifier(normalisation, init_cfg=dict(type='Pretrained', checkpoint=path))
        model.init_weights()
        warn_of_normalisation(model)  # as our runner does at the start of a run
        assert len(warnings) == count
    assert path in warnings[0] and 'mean=[123.675, 116.28, 103.53]' in warnings[0]


def test_a_complete_model_tested_with_another_normalisation_warns(tmp_path, warnings):  # noqa: F811
    path = run_file(tmp_path / 'a.pth', Classifier(IMAGENET))
    load_model(Classifier(dict(mean=[124, 116, 104], std=[58, 57, 57])), path)
    assert not warnings, 'rounded values are the same'
    load_model(Classifier(dict(mean=IMAGENET['mean'][::-1], std=IMAGENET['std'])), path)
    assert len(warnings) == 1 and 'recorded' in warnings[0], 'channels in the other order'


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_what_is_written_from_a_file_keeps_its_normalisation(tmp_path, suffix):
    convert(augreg(tmp_path / 'a.npz'), tmp_path / f'b{suffix}', 'mmlape')
    published = publish(tmp_path / f'b{suffix}', tmp_path / 'c.safetensors')
    for path in (tmp_path / f'b{suffix}', published):
        assert record_in(path).plain() == HALF


@pytest.mark.parametrize(
    'meta',
    [
        *(dict(cfg=text) for text in ('(', 3, 'del data_preprocessor', 'data_preprocessor = dict(mean=[x], std=[y])')),
        dict(pretrained_cfg='3'),
        *(dict(mmlape=dict(mean=mean, std=[1])) for mean in ('abc', ['a'], 1)),
    ],
)
def test_nonsense_beside_the_weights_is_ignored(tmp_path, meta):
    path = save(tmp_path / 'a.pth', vit().state_dict(), meta=meta)
    assert record_in(path).normalisation is None
