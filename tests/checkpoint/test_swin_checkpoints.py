"""Checkpoints of Swin: every layout loads exactly and converts back, tables are resized, other joinings refused."""

import sys

import pytest
import torch
from checkpoint_helpers import assert_same, save
from model_helpers import SWIN_BOTH, meta_device, randomise, swin

from mmlape.checkpoint import load_backbone
from mmlape.checkpoint.converting import convert, inspect
from mmlape.errors import CheckpointError
from mmlape.models import SwinTransformer
from mmlape.models.position.base import resize_absolute
from mmlape.models.position.relative_bias import INDEX, TABLE

FOUR = dict(embed_dims=12, depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8))


def theirs(**options):
    from mmpretrain.models import SwinTransformer as TheirSwin

    arch = dict(embed_dims=12, depths=[2, 2], num_heads=[2, 4])
    return randomise(TheirSwin(arch, 32, window_size=4, **{'out_indices': (1,), **options}))


@pytest.mark.parametrize('pe_type', ['rpe', SWIN_BOTH])
def test_mmpretrains_files_compute_the_same(tmp_path, pe_type):
    source = theirs(use_abs_pos_embed=pe_type == SWIN_BOTH)
    tensors = {f'backbone.{name}': value for name, value in source.state_dict().items()}
    path = save(tmp_path / 'a.pth', {**tensors, 'head.fc.weight': torch.randn(10, 24)}, 'state_dict')
    report = load_backbone(model := swin(pe_type=pe_type, out_type='featmap'), path)
    assert report.layout == 'mmpretrain' and len(report.loaded) == report.total
    image = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(model(image)[0], source(image)[0], atol=2e-5, rtol=0)
    convert(save(tmp_path / 'ours.pth', model.state_dict()), tmp_path / 'b.pth', 'mmpretrain')
    written = torch.load(tmp_path / 'b.pth', weights_only=True)['state_dict']
    assert written.keys() == tensors.keys() and all(torch.equal(written[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize('cls', ['mmdet.models.backbones', 'mmseg.models.backbones'])
def test_files_of_detectors_and_segmentors_load(tmp_path, cls):
    __import__(cls)
    options = dict(embed_dims=12, depths=(2, 2), num_heads=(2, 4), strides=(4, 2), out_indices=(0, 1), window_size=4)
    source = randomise(sys.modules[cls].SwinTransformer(pretrain_img_size=32, **options))
    tensors = {f'backbone.{name}': value for name, value in source.state_dict().items()}
    path = save(tmp_path / 'a.pth', {**tensors, 'neck.x': torch.zeros(1)}, 'state_dict')
    load_backbone(model := swin(out_type='featmap', out_indices=(0, 1)), path)
    image = torch.randn(1, 3, 44, 70)
    for mine, other in zip(model(image), source(image), strict=True):
        torch.testing.assert_close(mine, other, atol=2e-5, rtol=0)


def test_timm_loads_what_is_written_for_it_and_computes_the_same(tmp_path):
    from timm.models.swin_transformer import SwinTransformer as TimmSwin

    source = randomise(SwinTransformer(FOUR, 64, window_size=2))
    convert(save(tmp_path / 'a.pth', source.state_dict()), tmp_path / 'b.pth', 'timm')
    options = dict(embed_dim=12, depths=FOUR['depths'], num_heads=FOUR['num_heads'], window_size=2)
    peer = TimmSwin(64, 4, num_classes=0, **options).eval()
    peer.load_state_dict(torch.load(tmp_path / 'b.pth', weights_only=True))
    image = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(source(image)[0], peer(image), atol=2e-5, rtol=0)
    report = load_backbone(model := SwinTransformer(FOUR, 64, window_size=2), str(tmp_path / 'b.pth'))
    assert report.layout == 'timm' and len(report.loaded) == report.total
    assert_same(model, source)


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
