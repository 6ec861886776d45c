"""ViT-Lite, CVT and CCT: grids, checkpoints, and what is set when a model is built.

Outputs and gradients are compared with the public code's in test_golden.py.
"""

import pytest
import torch
from checkpoint_helpers import assert_same, save
from model_helpers import randomise

from mmlape.checkpoint import load_backbone
from mmlape.errors import CheckpointError
from mmlape.models.position.base import resize_absolute
from mmlape.projects import CompactTransformer

WIDTHS = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32)
PATCHES, CONVS = dict(type='patch', patch_size=4), dict(type='conv', kernel_size=3, num_convs=1)
KINDS = {
    'vit-lite': dict(WIDTHS, tokenizer=PATCHES, pooling='cls_token'),
    'cvt': dict(WIDTHS, tokenizer=PATCHES, pooling='sequence_pool'),
    'cct': dict(WIDTHS, tokenizer=CONVS, pooling='sequence_pool'),
}


def compact(kind: str = 'cct', img_size=16, **kwargs) -> CompactTransformer:
    return randomise(CompactTransformer(KINDS[kind], img_size, **kwargs))


@pytest.mark.parametrize('tokenizer', [dict(kernel_size=5, num_convs=1), dict(kernel_size=7, num_convs=2)])
def test_grids_of_other_convolutions(tokenizer):
    arch = dict(WIDTHS, tokenizer=dict(type='conv', **tokenizer), pooling='sequence_pool')
    model = CompactTransformer(arch, 48, out_type='featmap')
    for size in ((33, 50), (48, 7)):
        assert tuple(model(torch.randn(1, 3, *size))[0].shape[2:]) == model.grid_of(size)


# checkpoints


def public_file(path, model: CompactTransformer) -> str:
    """The weights of a default model as the public code saves them, with a head."""
    tensors = {
        name if name.startswith('tokenizer.') else f'classifier.{name}': value
        for name, value in model.state_dict().items()
    }
    head = {'classifier.fc.weight': torch.randn(5, 16), 'classifier.fc.bias': torch.randn(5)}
    return save(path, {**tensors, **head}, None)


def test_tables_are_resized_and_the_pooling_dropped(tmp_path):
    source = compact('vit-lite')
    report = load_backbone(model := compact('vit-lite', (24, 8)), public_file(tmp_path / 'a.pth', source))
    assert torch.equal(model.positional_emb, resize_absolute(source.positional_emb, (4, 4), (6, 2), 1, 'bilinear'))
    assert report.resized == {'positional_emb': '4x4 -> 6x2'}
    source = compact('cvt')
    report = load_backbone(model := compact('cvt', out_type='featmap'), public_file(tmp_path / 'b.pth', source))
    assert_same(model, source)
    assert {'attention_pool.bias', 'attention_pool.weight'} < set(report.dropped)
    path = save(tmp_path / 'c.pth', compact('cvt', out_type='featmap').state_dict())
    with pytest.raises(CheckpointError, match='attention_pool.weight'):
        load_backbone(compact('cvt'), path)
    with pytest.raises(CheckpointError, match='wrong PE: positional_emb is not the table'):
        load_backbone(compact('cvt', pe_type='sincos2d'), path)
