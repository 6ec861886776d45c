"""The ViTs of the Dual PatchNorm paper: a PE without rows for prefix tokens, big_vision's sinusoids."""

import math

import pytest
import torch
from model_helpers import ARCH, randomise, vit
from timm.models.vision_transformer import VisionTransformer as TimmViT

from mmlape.checkpoint import load_backbone
from mmlape.errors import CheckpointError, ConfigError
from mmlape.models import VisionTransformer, ViTAdapter
from mmlape.models.position.absolute import Sincos2dMoco
from mmlape.models.vit.layouts import to_timm

TANH_GELU = dict(type='GELU', approximate='tanh')


def test_the_papers_form_agrees_with_timm():
    """The class token without a row of the PE, and the tanh form of GELU."""
    theirs = TimmViT(
        32, 8, num_classes=0, embed_dim=24, depth=2, num_heads=3, mlp_ratio=2, no_embed_class=True,
        act_layer=lambda: torch.nn.GELU(approximate='tanh'),
    )  # fmt: skip
    ours = vit(with_prefix_pe=False, act_cfg=TANH_GELU).double()
    theirs.load_state_dict(to_timm(ours.state_dict()))
    image = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    features = theirs.double().eval().forward_features(image)
    torch.testing.assert_close(ours(image)[0], features, atol=1e-9, rtol=0)
    pooled = vit(with_prefix_pe=False, act_cfg=TANH_GELU, out_type='avg_featmap').double()
    pooled.load_state_dict(ours.state_dict())
    torch.testing.assert_close(pooled(image)[0], features[:, 1:].mean(1), atol=1e-9, rtol=0)
    exact = vit(with_prefix_pe=False).double()
    exact.load_state_dict(ours.state_dict())
    assert (exact(image)[0] - features).abs().max() > 1e-5


@pytest.mark.parametrize('options', [dict(), dict(pe_joining='lape-shared', num_registers=2)])
def test_a_token_without_a_row_gets_nothing_in_any_layer(options):
    """Class token and registers see no PE; the biases of the norms are no PE either."""
    model = vit(with_prefix_pe=False, **{'pe_joining': 'lape', **options}).double()
    plain = vit(with_prefix_pe=False, pe_type='none', num_registers=options.get('num_registers', 0)).double()
    tensors = model.state_dict()
    plain.load_state_dict({name: tensors[name] for name in plain.state_dict()})
    rows = model.position_stream((3, 6), model.num_prefix)
    assert rows.shape == (1, 18, 24)
    for mine, theirs in zip(model.blocks, plain.blocks, strict=True):
        own = mine.pe_norm(rows)

        def add(module, args, out, own=own):
            return torch.cat((out[:, :-18], out[:, -18:] + own), dim=1)

        theirs.norm1.register_forward_hook(add)
        rows = rows if model.pe_joining == 'lape-shared' else own
    image = torch.randn(2, 3, 24, 48, dtype=torch.float64)
    torch.testing.assert_close(model(image)[0], plain(image)[0], atol=1e-12, rtol=0)


def test_rows_of_a_file_go_into_the_tokens_where_that_is_the_same(tmp_path):
    source = vit(num_registers=2)
    torch.save(source.state_dict(), path := str(tmp_path / 'a.pth'))
    report = load_backbone(model := vit(num_registers=2, with_prefix_pe=False), path)
    assert report.notes[0] == 'the rows of pos_embed for cls_token, reg_token were added to the tokens'
    image = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(model(image)[0], source(image)[0])
    torch.save(vit(pe_joining='lape').state_dict(), path)
    with pytest.raises(CheckpointError, match='pos_embed of the file has rows for cls_token; set with_prefix_pe=True'):
        load_backbone(vit(pe_joining='lape', with_prefix_pe=False), path)


@pytest.mark.parametrize('joining', ['default', 'lape'])
def test_a_table_without_prefix_rows_keeps_its_grid_in_a_state_dict(joining):
    """3 x 5 patches are as many rows as 14 patches and a class row."""
    source, model = (
        randomise(VisionTransformer(ARCH, (rows, 40), 8, with_prefix_pe=False, pe_joining=joining))
        for rows in (24, 48)
    )
    model.load_state_dict(source.state_dict())
    expected = source.position.absolute.resize(source.pos_embed, (3, 5), (6, 5), 0, 'bicubic')
    torch.testing.assert_close(model.pos_embed, expected)
    arch = dict(ARCH, num_layers=4)
    adapter = ViTAdapter(arch, 64, conv_inplane=8, deform_num_heads=3, with_prefix_pe=False, pe_joining=joining)
    assert adapter.pos_embed.shape == (1, 16, 24)


def test_sincos_2d_moco_is_big_visions_formula():
    """Written once more cell by cell; at D = 4 the exponent would be 0 / 0."""
    grid, dims = (3, 5), 16
    table = Sincos2dMoco().table(grid, dims, 1)[0]
    assert table.shape == (1 + 15, dims) and not table[0].any()
    for row in range(3):
        for column in range(5):
            cell = table[1 + row * 5 + column].tolist()
            angles = [[place / 10000 ** (i / 3) for i in range(4)] for place in (column, row)]
            expected = [turn(angle) for axis in angles for turn in (math.sin, math.cos) for angle in axis]
            assert cell == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ConfigError, match="pe_type='sincos2d-moco' needs embed_dims to be 8, 12, 16"):
        Sincos2dMoco().table((2, 2), 4, 0)
