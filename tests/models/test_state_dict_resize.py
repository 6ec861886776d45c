"""Plain state dicts of another image size: the PE is resized on loading, as mmpretrain's hook does it."""

import pytest
import torch
from checkpoint_helpers import save
from each import each
from mmengine.runner.checkpoint import load_checkpoint, save_checkpoint
from model_helpers import ARCH, randomise, vit
from torch import nn

from mmlape.checkpoint import load_backbone
from mmlape.models import ViTAdapter
from mmlape.models.position import AttentionPosition, kinds

KINDS = [
    *(dict(pe_joining=name) for name in ('default', 'shared', 'unshared', 'lape', 'lape-shared')),
    dict(pe_joining='mpvg', with_cls_token=False),
    dict(pe_type='sincos1d', pe_joining='lape'),
    dict(pe_type='sincos2d'),
    *(dict(pe_type=kind.name) for kind in kinds(AttentionPosition) if kind.has_grid and kind.name != 'beit'),
    dict(pe_type='rpe', pe_joining='lape'),
    dict(pe_type=['learnable', 'rpe'], pe_joining='lape', interpolate_mode='bilinear'),
]


@pytest.fixture
def log(monkeypatch) -> list[str]:
    found = []
    monkeypatch.setattr('mmlape.models.base.checkpoint.log', found.append)
    return found


@torch.no_grad()
def assert_same_features(model, source, size, apart):
    images = torch.randn(1, 3, *size)
    torch.testing.assert_close(model(images)[0], source(images)[0], rtol=0, atol=apart)


@pytest.mark.parametrize('way', ['torch', 'mmengine', 'init_cfg'])
def test_the_stored_pe_becomes_what_the_model_makes_of_it_for_such_images(tmp_path, log, way):
    """Oracle: the source itself, which resizes its PE in its forward pass; to the bit, but for SASA's sums."""
    for kwargs in each(KINDS):
        log.clear()
        source, model = vit(**kwargs), vit(img_size=(48, 24), **kwargs)
        if way == 'torch':
            model.load_state_dict(source.state_dict())
        elif way == 'mmengine':
            save_checkpoint({'state_dict': nn.ModuleDict(dict(backbone=source)).state_dict()}, str(tmp_path / 'a.pth'))
            load_checkpoint(nn.ModuleDict(dict(backbone=model)), str(tmp_path / 'a.pth'), strict=True)
        else:
            report = load_backbone(model, save(tmp_path / 'a.pth', source.state_dict()))
            assert set(report.resized.values()) == {'4x4 -> 6x3'}
        assert_same_features(model, source, (48, 24), 1e-6 * (kwargs.get('pe_type') == 'sasa'))
        assert ['4x4 -> 6x3' in line for line in log] == [True] * (way != 'init_cfg')


def test_agrees_with_mmpretrains_hook():
    from mmpretrain.models.backbones import VisionTransformer as Peer

    shape = {**ARCH, 'num_layers': 1}
    make = lambda size: Peer(shape, size, 8, out_type='raw')  # noqa: E731
    (peer := make(48)).load_state_dict((stored := make(32)).state_dict())
    model, source = vit(img_size=48), vit()
    source.pos_embed.data.copy_(stored.pos_embed)
    model.load_state_dict(source.state_dict())
    assert torch.equal(model.pos_embed, peer.pos_embed)


def test_a_vits_table_fits_an_adapter_and_what_else_differs_is_an_error():
    source = vit()
    adapter = randomise(ViTAdapter(ARCH, 48, conv_inplane=8, deform_num_heads=3))
    table = {'pos_embed': source.pos_embed.detach()}
    missing = adapter.load_state_dict(table, strict=False).missing_keys
    assert 'pos_embed' not in missing and adapter.pos_embed.shape == (1, 10, 24)
    with pytest.raises(RuntimeError, match='Missing key'):
        adapter.load_state_dict(table)
    wider = dict(source.state_dict(), pos_embed=torch.zeros(1, 16, 24))  # no class row
    with pytest.raises(RuntimeError, match='size mismatch for pos_embed'):
        vit(img_size=48).load_state_dict(wider)
