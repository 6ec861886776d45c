"""iRPE: buckets of any grid, both readings, what files tell; golden data: test_golden."""

import math
import re

import pytest
import torch
from each import each
from golden_models import load
from torch import nn

from mmlape.checkpoint import load_backbone
from mmlape.models import VisionTransformer, ViTAdapter
from mmlape.models.position import AttentionSlot
from mmlape.models.position.irpe import Buckets, ImageRPE

ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32)
RECORDED = sorted(name for name in load('irpe') if name.startswith('buckets/'))


SLOT = AttentionSlot(0, (2, 3))


def fill(model):
    """Tables start at zero, which would hide errors."""
    for name, parameter in model.named_parameters():
        if '.rpe_' in name:
            nn.init.normal_(parameter)
    return model


# buckets


def test_buckets_are_the_public_codes():
    for name in each(RECORDED):
        _, method, alpha, grid = name.split('/')
        alpha, grid = float(alpha), tuple(map(int, grid.split('x')))
        place = {'rows': ('cross', 0), 'columns': ('cross', 1)}.get(method, (method, 0))
        buckets = Buckets(place[0], alpha, 2 * alpha, 8 * alpha)
        *ids, count = load('irpe')[name].tolist()
        ours = buckets.of_grid(grid, 1)[place[1]]
        assert ours.flatten().tolist() == ids
        assert buckets.count + 1 == count


def test_the_papers_reading_of_distances():
    """Ranks part from squares at 40 and 41; a distance is rounded once, which large grids show."""
    rows, columns = torch.tensor([6, 5]), torch.tensor([2, 4])
    code, paper = (Buckets('quantization', 33, 66, 264, reading=reading) for reading in ('code', 'paper'))
    assert len(set(code.of_offsets(rows, columns)[0].tolist())) == 1
    ranks = [sorted({a * a + b * b for a in range(8) for b in range(8)}).index(square) for square in (40, 41)]
    assert (paper.of_offsets(rows, columns)[0] - 66).tolist() == ranks
    far = torch.arange(40)
    differ = [
        Buckets('euclidean', 20, 40, 160, reading=reading).of_offsets(far[:, None], far)[0]
        for reading in ('code', 'paper')
    ]
    assert (differ[0] != differ[1]).any() and (differ[0] - differ[1]).abs().max() == 1


def test_clip_is_h():
    buckets = Buckets('cross', 1.9, 3.8, 15.2, index='clip')
    x = torch.arange(-6, 7)
    assert buckets.of_offsets(x, x)[0].tolist() == [max(-3, min(3, value)) + 3 for value in x.tolist()]


# attention


def test_the_query_table_of_the_paper_is_that_of_the_code_mirrored():
    """k_j . r[b(i, j)] against the code's k_j . r[b(j, i)]; written out pair by pair."""
    q, k = torch.randn(2, 1, 2, 6, 8, dtype=torch.float64)
    for reading in ('code', 'paper'):
        kind, attn = ImageRPE(on='q', reading=reading), nn.Module()
        attn.num_heads, attn.head_dims = 2, 8
        kind.attach(attn, SLOT)
        for parameter in attn.double().parameters():
            nn.init.normal_(parameter)
        term = kind.logits(attn, q, k, (2, 3))
        table, ids = attn.rpe_q.lookup_table_weight[0], Buckets().of_grid((2, 3), 0)[0]
        for i in range(6):
            for j in range(6):
                bucket = ids[j, i] if reading == 'code' else ids[i, j]
                expected = k[0, :, j] @ table[:, bucket] / math.sqrt(8)
                torch.testing.assert_close(term[0, :, i, j], expected)


def test_the_paper_divides_a_bias_by_the_root_of_the_width():
    terms = []
    for reading in ('code', 'paper'):
        kind, attn = ImageRPE(mode='bias', reading=reading), nn.Module()
        attn.num_heads, attn.head_dims = 2, 16
        kind.attach(attn, SLOT)
        nn.init.ones_(attn.rpe_k.lookup_table_bias)
        terms.append(kind.logits(attn, torch.zeros(1, 2, 6, 16), torch.zeros(1, 2, 6, 16), (2, 3)))
    torch.testing.assert_close(terms[0] / 4, terms[1])


# parameters and checkpoints


SAME_TABLES = {
    'product 2.0': (dict(ratio=2.0), ['product', 'euclidean', 'quantization']),
    'product 2.4': (dict(ratio=2.4), ['product', 'euclidean', 'quantization']),
    'euclidean': (dict(method='euclidean', ratio=20), ['product', 'euclidean', 'quantization']),
    'clip': (dict(ratio=2.0, index='clip'), ['product', 'euclidean', 'quantization']),
    'quantization': (dict(method='quantization', ratio=33), ['quantization', 'euclidean']),
    'cross': (dict(method='cross', ratio=20), ['cross']),
    'qkv': (dict(on='qkv'), ['product', 'euclidean', 'quantization', 'axial-deeplab']),
    'axial-deeplab': (dict(type='axial-deeplab'), ['product', 'euclidean', 'quantization', 'axial-deeplab']),
    'kv': (dict(on='kv'), ['product', 'euclidean', 'quantization', 'shaw']),
    'shaw': (dict(type='shaw'), ['product', 'euclidean', 'quantization', 'shaw']),
    'heads apart': (dict(on='kv', share_heads=False), ['product', 'euclidean', 'quantization']),
}


LISTED = re.compile(r"irpe with method='(\w+)', ([\d.]+) <= ratio < ([\d.]+)|(shaw|axial-deeplab) with ([\d.]+) <=")


def with_encoding(options):
    return VisionTransformer(ARCH, 32, 8, pe_type=['learnable', options])


def shapes(model):
    return {name: value.shape for name, value in model.state_dict().items()}


@pytest.mark.parametrize('case', SAME_TABLES)
def test_what_leaves_the_same_tables_is_listed(tmp_path, case):
    """Where a file is loaded; what is listed has such tables, from ratio to ratio."""
    options, expected = SAME_TABLES[case]
    options = dict(dict(type='irpe'), **options)
    model = fill(with_encoding(options))
    torch.save(model.state_dict(), foreign := str(tmp_path / 'a.pth'))
    text = load_backbone(with_encoding(options), foreign).notes[0]
    found = LISTED.findall(text)
    assert [method or kind for method, *_, kind, _ in found] == expected and 'index piecewise/clip' in text
    sides = dict(shaw='kv').get(options['type'], options.get('on', 'qkv' if options['type'] != 'irpe' else 'k'))
    told = dict(type='irpe', on=sides, share_heads=options.get('share_heads', True))
    for method, low, high, kind, start in found:
        if kind:
            assert shapes(with_encoding(dict(type=kind, ratio=float(start)))) == shapes(model)
            continue
        assert shapes(with_encoding(dict(told, method=method, ratio=float(low)))) == shapes(model)
        assert shapes(with_encoding(dict(told, method=method, ratio=float(high) - 1e-6))) == shapes(model)
        assert shapes(with_encoding(dict(told, method=method, ratio=float(high)))) != shapes(model)


def test_of_transformer_xl_a_file_does_not_tell_the_ratio(tmp_path):
    xl = VisionTransformer(ARCH, 32, 8, pe_type=['learnable', dict(type='transformer-xl', ratio=2.9)])
    torch.save(xl.state_dict(), path := str(tmp_path / 'a.pth'))
    note = load_backbone(xl, path).notes[0]
    assert 'pe_type transformer-xl with ratio=2.9 or transformer-xl with another ratio' in note


def test_an_adapter_drops_the_bucket_of_the_class_token(tmp_path):
    model = fill(VisionTransformer(ARCH, 32, 16, pe_type=['learnable', dict(type='irpe', on='kv')]))
    file = tmp_path / 'vit.pth'
    torch.save({'model': model.state_dict()}, file)
    adapter = ViTAdapter(
        ARCH, 32, conv_inplane=8, deform_num_heads=2, interaction_indexes=[[0, 0], [1, 1]],
        pe_type=['learnable', dict(type='irpe', on='kv')], init_cfg=dict(type='Pretrained', checkpoint=str(file)),
    )  # fmt: skip
    adapter.init_weights()
    for ours, theirs in zip(adapter.blocks, model.blocks):
        stored = theirs.attn.rpe_v.lookup_table_weight[:, :-1]
        torch.testing.assert_close(ours.attn.rpe_v.lookup_table_weight, stored, atol=0, rtol=0)
    assert '(1, 50, 8) -> (1, 49, 8)' in str(adapter.load_report)
