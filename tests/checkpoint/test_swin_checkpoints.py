"""Checkpoints of Swin: every layout loads exactly and converts back, tables are resized, other joinings refused."""

import pytest
import torch
from checkpoint_helpers import assert_same, save
from model_helpers import SWIN_BOTH, meta_device, swin

from mmlape.checkpoint import load_backbone
from mmlape.checkpoint.converting import inspect
from mmlape.errors import CheckpointError
from mmlape.models import SwinTransformer
from mmlape.models.position.base import resize_absolute
from mmlape.models.position.relative_bias import INDEX, TABLE


def test_an_index_that_a_file_lacks_or_has_wrong_is_the_models_own(tmp_path):
    tensors = swin().state_dict()
    path = save(tmp_path / 'a.pth', {k: v.flip(0) if k.endswith(INDEX) else v for k, v in tensors.items()})
    load_backbone(model := swin(), path)
    assert_same(model, swin(), [name for name in tensors if not name.endswith(INDEX)])
    lacking = save(tmp_path / 'b.pth', {k: v for k, v in tensors.items() if not k.endswith(INDEX)})
    assert not load_backbone(swin(), lacking).new


@pytest.mark.parametrize('hierarchy', ['merge', 'stage'])
def test_tables_are_resized_to_other_windows_and_images(tmp_path, hierarchy):
    """Windows are as large as tables say, whatever grid is given or recorded of the images."""
    options = dict(pe_type=SWIN_BOTH, pe_hierarchy=hierarchy)
    source = swin(**options, img_size=(32, 64))
    path = save(tmp_path / 'a.pth', dict(source.state_dict()))  # without the grid that a state dict brings
    with pytest.raises(CheckpointError, match=r'no square grid.* say which by grid=\(rows, columns\)'):
        load_backbone(swin(**options), path)
    report = load_backbone(model := swin(**options, window_size=3, img_size=64), path, grid=(8, 16))
    assert torch.equal(model.absolute_pos_embed, resize_absolute(source.absolute_pos_embed, (8, 16), (16, 16), 0))
    assert report.resized['layers.0.blocks.0.attn.' + TABLE] == '4x4 -> 3x3'
    names = ['absolute_pos_embed', *(['absolute_pos_embed1'] if hierarchy == 'stage' else [])]
    assert [report.resized[name] for name in names] == ['8x16 -> 16x16', '4x8 -> 8x8'][: len(names)]
    plain = swin(**options, window_size=3, img_size=64)
    plain.load_state_dict(source.state_dict())  # which records the grid
    assert_same(plain, model)


def test_tables_of_another_hierarchy_are_refused(tmp_path):
    path = save(tmp_path / 'a.pth', swin(pe_type='learnable', pe_hierarchy='stage').state_dict())
    with pytest.raises(CheckpointError, match="that of the file is 'stage', the model has 'merge'"):
        load_backbone(swin(pe_type='learnable'), path)


def test_a_public_arch_is_named_with_the_maps_of_a_detector(tmp_path):
    with meta_device():
        tensors = SwinTransformer('tiny', out_type='featmap', out_indices=(0, 1, 2, 3)).state_dict()
    found = inspect(save(tmp_path / 'a.pth', {name: torch.zeros(value.shape) for name, value in tensors.items()}))
    assert found['model'] == 'swin-tiny' and 'out_indices=[0, 1, 2, 3]' in found['to load it']
