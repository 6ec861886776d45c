"""Files are described by comparison: a model with a name is found by names and shapes, and nothing is guessed."""

import numpy as np
import pytest
import torch
from checkpoint_helpers import assert_same, built_of, save, to_flax
from each import each
from model_helpers import meta_device

from mmlape.checkpoint.converting import convert, inspect
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.models import SwinTransformer, VisionTransformer
from mmlape.models.model_names import get_model

SMALL = {
    'deit-tiny-lape': 'lape',
    'deit-tiny-distilled': 'timm',
    'deit-tiny-adapter': 'mmlape',
    'deit-tiny': 'AugReg',
    'augreg-small-p32': 'AugReg',
    'vit-tiny-p16': 'big_vision',
    'vit-small-p32': 'big_vision',
    'swin-tiny': 'mmpretrain',
    'vit-lite-2-4': 'compact-transformers',
    't2t-vit-7-lape': 'mmlape',
    'ceit-tiny': 'mmlape',
}
"""Models with a name, and a layout that each has a place in."""


def test_a_named_model_is_found_by_its_file(tmp_path):
    for name, to in each(SMALL.items()):
        source = get_model(name)
        if to in ('AugReg', 'big_vision'):
            pre_logits = np.zeros((source.embed_dims, source.embed_dims))
            np.savez(written := tmp_path / f'{name}.npz', **to_flax(source), **{'pre_logits/kernel': pre_logits})
            assert f'hidden_dim={source.embed_dims}' in inspect(written)['notes']
        else:
            convert(save(tmp_path / 'a.pth', source.state_dict()), written := tmp_path / f'{name}.pth', to)
        found = inspect(written)
        assert found['model'] == name
        model = built_of(found)
        assert_same(model, source)
        assert {**model.arguments, 'init_cfg': None} == {**source.arguments, 'init_cfg': None}
        assert not model.load_report.new and not model.load_report.resized


@pytest.mark.parametrize('size', [pytest.param(112, marks=pytest.mark.release), (64, 160)], ids=str)
def test_a_named_model_is_found_for_images_of_another_size(tmp_path, size):
    """Of a square table the grid follows; of another one the file has to record it."""
    source = VisionTransformer('deit-tiny', size, pe_joining='lape')
    record = metadata_of(source).plain()
    del record['backbones']['']['config']  # as older files have it
    path = save(tmp_path / 'a.pth', source.state_dict(), meta={KEY: record})
    model = built_of(inspect(path))
    assert_same(model, source)
    assert model.grid == source.grid and not model.load_report.resized
    foreign = inspect(save(tmp_path / 'b.pth', dict(source.state_dict())))
    assert ('model' in foreign) == (size == 112)
    assert inspect(save(tmp_path / 'c.pth', source.state_dict()))['model'] == 'deit-tiny-lape'


def test_what_an_older_file_records_is_compared(tmp_path):
    """It names another joining than the model of that name, and another number of heads than any."""
    source = VisionTransformer('deit-tiny', pe_joining='lape-shared')
    record = metadata_of(source).plain()
    own = record['backbones']['']
    del own['config']
    found = inspect(save(tmp_path / 'a.pth', source.state_dict(), meta={KEY: record}))
    assert 'model' not in found and built_of(found).joining.name == 'lape-shared'
    own['num_heads'] = 6
    found = inspect(save(tmp_path / 'b.pth', source.state_dict(), meta={KEY: record}))
    assert 'name the CONFIG' in found['to load it'] and found['num_heads'] == 6


def test_a_public_arch_is_named_with_the_maps_of_a_detector(tmp_path):
    with meta_device():
        tensors = SwinTransformer('tiny', out_type='featmap', out_indices=(0, 1, 2, 3)).state_dict()
    found = inspect(save(tmp_path / 'a.pth', {name: torch.zeros(value.shape) for name, value in tensors.items()}))
    assert found['model'] == 'swin-tiny' and 'out_indices=[0, 1, 2, 3]' in found['to load it']
