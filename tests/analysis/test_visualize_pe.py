"""What layers see of the PE, against what attention received in a forward pass; the numbers, against NumPy."""

from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_helpers import run_file
from each import each
from model_helpers import cvt, randomise, vit
from scipy.stats import spearmanr

from mmlape.backbones import open_model
from mmlape.errors import CheckpointError
from mmlape.models import DistilledVisionTransformer, SwinTransformer, VisionTransformer
from mmlape.projects.pe_figures.position import (
    cosines,
    describe_map,
    layer_positions,
    pe_table,
    view_positions,
    write_figures,
)

GRID = (4, 4)


def test_relative_bias_is_shown_as_it_is(tiny_arch):
    model = vit(arch=tiny_arch, pe_type='rpe')
    view = view_positions(model, 'rpe', layers=[2], token=(1, 3))
    assert 'bias' in view.measure and [layer.label for layer in view.layers] == ['layer 2']
    table = model.blocks[2].attn.relative_position_bias_table.detach().mean(1).numpy()
    offset = (1 - np.arange(4)[:, None] + 3) * 7 + 3 - np.arange(4)[None] + 3
    np.testing.assert_allclose(view.layers[0].row, table[offset], atol=1e-6)


def test_numbers_of_a_map():
    values = np.random.default_rng(0).normal(size=(15, 15))
    values += values.T
    found = describe_map(values, (3, 5))
    cells = [(row, column) for row in range(3) for column in range(5)]
    pairs = [(i, j) for i in range(15) for j in range(15) if i != j]
    offsets = [(cells[j][0] - cells[i][0], cells[j][1] - cells[i][1]) for i, j in pairs]
    chosen = np.array([values[pair] for pair in pairs])
    assert found['mean'] == pytest.approx(chosen.mean())
    assert found['beside'] == pytest.approx(chosen[[offset == (0, 1) for offset in offsets]].mean())
    assert found['above'] == pytest.approx(chosen[[offset == (1, 0) for offset in offsets]].mean())
    assert found['locality'] == pytest.approx(spearmanr(chosen, -np.hypot(*np.array(offsets).T)).statistic)
    near = -np.linalg.norm(np.array(cells)[:, None] - np.array(cells)[None], axis=2)
    assert describe_map(near, (3, 5))['locality'] == pytest.approx(1)


# ---------------------------------------------------------------- checkpoints alone


@pytest.mark.parametrize(
    'cls, options',
    [
        (VisionTransformer, dict(pe_joining='lape')),
        (VisionTransformer, dict(pe_joining='unshared', patch_norm='dual')),
        (VisionTransformer, dict(pe_type='sincos2d')),
        (VisionTransformer, dict(pe_type='rpe', pe_joining='lape')),
        (DistilledVisionTransformer, dict(pe_joining='lape')),
        (VisionTransformer, dict(with_cls_token=False)),
        (cvt, dict(pe_joining='lape', patch_norm='dual')),
        (cvt, dict()),
    ],
)
def test_a_checkpoint_alone_shows_the_same(tiny_arch, tmp_path, cls, options):
    model = vit(cls, tiny_arch, **options)
    run_file(tmp_path / 'm.pth', torch.nn.ModuleDict(dict(backbone=model)))
    name, opened, _ = open_model(str(tmp_path / 'm.pth'))
    assert name == 'm' and opened.grid == GRID
    for mine, theirs in zip(view_positions(model, 'a').layers, view_positions(opened, 'b').layers, strict=True):
        assert mine.label == theirs.label
        np.testing.assert_allclose(mine.row, theirs.row, atol=1e-6)


def test_a_foreign_checkpoint_of_a_model_with_a_name(tmp_path):
    """Of another image size, which is no square."""
    model = randomise(VisionTransformer('deit-tiny', (32, 96)))
    torch.save(dict(model.state_dict()), path := tmp_path / 'm.pth')  # without the grid that a state dict brings
    with pytest.raises(CheckpointError, match='no model that has a name'):
        open_model(str(path))
    opened = open_model(str(path), grid=(2, 6))[1]
    torch.testing.assert_close(pe_table(opened, (2, 6)), pe_table(model, (2, 6)))


def test_a_name_says_untrained_of_initial_values_alone(tiny_arch, tmp_path, monkeypatch):
    """``none`` is no checkpoint beside what the config names itself."""
    monkeypatch.chdir(tmp_path)
    torch.save(dict(state_dict=(source := vit(arch=tiny_arch)).state_dict()), 'w.pth')
    fields = f"type='mmlape.VisionTransformer', arch={tiny_arch}, img_size=32, patch_size=8"
    for name, more in (('plain', ''), ('named', ", init_cfg=dict(type='Pretrained', checkpoint='w.pth')")):
        Path(f'{name}.py').write_text(f'model = dict(backbone=dict({fields}{more}))\n')
    for text, untrained, name in each((
        ('plain.py', False, 'plain, untrained'), ('plain.py@none', False, 'plain, untrained'),
        ('plain.py@w.pth', False, 'plain, w'), ('named.py', False, 'named'), ('named.py@none', False, 'named'),
        ('named.py', True, 'named, untrained'), ('named.py@none', True, 'named, untrained'),
        ('named.py@w.pth', True, 'named, w'),
    )):  # fmt: skip
        opened = open_model(text, untrained=untrained)
        assert opened.name == name
        is_loaded = torch.equal(opened.model.pos_embed, source.pos_embed)
        assert is_loaded == ('untrained' not in name)


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ('options', 'grids'),
    [
        (dict(pe_type='learnable', pe_joining='lape'), [(8, 8), (8, 8), (4, 4), (4, 4)]),
        (dict(pe_type='rpe'), [(4, 4)] * 4),
    ],
    ids=['stages', 'windows'],
)
def test_stages_and_windows_are_drawn_on_their_own_grids(tmp_path, options, grids):
    arch = dict(embed_dims=12, depths=(2, 2), num_heads=(2, 4))
    model = randomise(SwinTransformer(arch, 32, window_size=4, **options))
    views, files = write_figures({'swin': model}, tmp_path, token=(2, 6))
    assert files[0].stat().st_size > 10_000
    layers = [layer for layer in views[0].layers if layer.label != 'PE']
    assert [layer.row.shape for layer in layers] == grids
    assert layers[-1].token == (1, 3) and views[0].token == (2, 6)
    if options['pe_type'] == 'learnable':
        expected = cosines(list(layer_positions(model, (8, 8)))[2])[1 * 4 + 3]
        np.testing.assert_allclose(layers[2].row.flatten(), expected, atol=1e-6)
    with np.load(tmp_path / 'position.npz') as arrays:
        assert ('0/maps/4' in arrays) == (options['pe_type'] == 'learnable')
