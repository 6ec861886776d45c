"""Classifiers of big_vision, and the stems of vit-pytorch and open_clip: read and named."""

from functools import partial

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from checkpoint_helpers import to_flax, vit_config
from mmengine.registry import MODELS, init_default_scope
from model_helpers import randomise
from torch import Tensor, nn

from mmlape.checkpoint import load_backbone, load_model, read_checkpoint, state_dict_of
from mmlape.checkpoint.converting import convert, inspect
from mmlape.models import VisionTransformer

D, HEADS, PATCH, SIDE = 128, 2, 8, 32
TANH_GELU = dict(type='GELU', approximate='tanh')


def flax_file(prefix: str | None, pooling: str = 'tok') -> dict[str, np.ndarray]:
    """Return a classifier's arrays by big_vision's names; ``prefix`` encloses the listing's, None is no DPN."""
    arch, tok = dict(embed_dims=D, num_layers=2, num_heads=HEADS, feedforward_channels=2 * D), pooling == 'tok'
    options = dict(pe_type='learnable' if tok else 'none', patch_norm='none' if prefix is None else 'dual')
    options |= dict(with_cls_token=tok, with_prefix_pe=False, out_type='raw')
    arrays = to_flax(randomise(VisionTransformer(arch, SIDE, PATCH, **options)))
    arrays |= {f'{name}/kernel': 0.1 * np.random.randn(D, width) for name, width in (('pre_logits', D), ('head', 10))}
    arrays |= {'pre_logits/bias': np.ones(D), 'head/bias': np.ones(10)}
    out = {}
    for name, value in arrays.items():
        for of_augreg, name_here in (('Attention_1', 'Attention_0'), ('Norm_2', 'Norm_1'), ('Block_3', 'Block_0')):
            name = name.replace(of_augreg, name_here)
        if prefix is not None and name == 'embedding/kernel':
            value = value.reshape(-1, D)
        if prefix is not None and name.startswith('embedding/'):
            leaf = name.removeprefix('embedding/')
            name = prefix + (leaf if leaf.startswith('ln') else f'dense/{leaf}')
        out[name] = np.float32(value)
    return out


def reference(arrays: dict[str, np.ndarray], image: Tensor, prefix: str | None, pooling: str) -> Tensor:
    """Run big_vision's classifier, with the paper's listing as its stem, on images (B, rows, columns, C)."""
    p = {name: torch.from_numpy(value).double() for name, value in arrays.items()}
    norm = lambda x, name: F.layer_norm(x, x.shape[-1:], p[f'{name}/scale'], p[f'{name}/bias'], 1e-6)  # noqa: E731
    dense = lambda x, name: x @ p[f'{name}/kernel'] + p[f'{name}/bias']  # noqa: E731
    n = SIDE // PATCH
    x = image.unflatten(2, (n, PATCH)).unflatten(1, (n, PATCH)).transpose(2, 3)  # (B, n, n, P, P, C)
    x = x.flatten(3).flatten(1, 2)
    if prefix is None:
        x = x @ p['embedding/kernel'].flatten(0, 2) + p['embedding/bias']
    else:
        x = norm(dense(norm(x, f'{prefix}ln0'), f'{prefix}dense'), f'{prefix}ln1')
    if pooling == 'tok':
        x = torch.cat((p['cls'].expand(len(x), -1, -1), x + p['pos_embedding']), 1)
    else:
        y, z = torch.meshgrid(torch.arange(float(n)).double(), torch.arange(float(n)).double(), indexing='ij')
        omega = 1 / 10000 ** (torch.arange(D // 4).double() / (D // 4 - 1))
        y, z = y.flatten()[:, None] * omega, z.flatten()[:, None] * omega
        x = x + torch.cat((z.sin(), z.cos(), y.sin(), y.cos()), 1)
    for number in range(2):
        block = f'Transformer/encoderblock_{number}'
        attention, h = f'{block}/MultiHeadDotProductAttention_0', norm(x, f'{block}/LayerNorm_0')
        q, k, v = (
            torch.einsum('bnd,dhe->bhne', h, p[f'{attention}/{part}/kernel']) + p[f'{attention}/{part}/bias'][:, None]
            for part in ('query', 'key', 'value')
        )
        out = (q @ k.mT / 8).softmax(-1) @ v
        x = x + torch.einsum('bhne,hed->bnd', out, p[f'{attention}/out/kernel']) + p[f'{attention}/out/bias']
        h = dense(norm(x, f'{block}/LayerNorm_1'), f'{block}/MlpBlock_0/Dense_0')
        x = x + dense(F.gelu(h, approximate='tanh'), f'{block}/MlpBlock_0/Dense_1')
    x = norm(x, 'Transformer/encoder_norm')
    x = x[:, 0] if pooling == 'tok' else x.mean(1)
    return dense(dense(x, 'pre_logits').tanh(), 'head')


def config_of(path, **changes) -> dict:
    """Return a backbone for a file."""
    return vit_config(path, HEADS, img_size=SIDE, **{'init_cfg': None, **changes})


@pytest.mark.parametrize(
    ('prefix', 'pooling'),
    [(None, 'tok'), (None, 'gap'), ('', 'tok'), ('embedding/', 'tok'), ('Stem_0/patches/', 'gap')],
)
def test_a_classifier_of_big_vision_gives_its_logits(tmp_path, prefix, pooling):
    """Through ``inspect`` and ``convert``, for every name that the enclosing module of DPN's listing can have."""
    arrays = flax_file(prefix, pooling)
    np.savez(tmp_path / 'a.npz', **arrays)
    found = inspect(tmp_path / 'a.npz')
    assert found['layout'] == 'jax' and "'VisionTransformerClsHead', hidden_dim=128" in found['notes']
    out_type = 'cls_token' if pooling == 'tok' else 'avg_featmap'
    backbone = config_of(tmp_path / 'a.npz', act_cfg=TANH_GELU, out_type=out_type)
    assert backbone['patch_norm'] == ('none' if prefix is None else 'dual')
    assert backbone['pe_type'] == ('learnable' if pooling == 'tok' else 'sincos2d-moco')
    assert convert(tmp_path / 'a.npz', tmp_path / 'b.pth', 'classifier') == []
    init_default_scope('mmpretrain')
    head = dict(type='VisionTransformerClsHead', num_classes=10, in_channels=D, hidden_dim=D)
    model = MODELS.build(dict(type='ImageClassifier', backbone=backbone, head=head)).double().eval()
    if pooling == 'gap':
        assert load_backbone(model.backbone, str(tmp_path / 'a.npz')).new == ['pos_embed']
        model.head.load_state_dict(below(state_dict_of(read_checkpoint(tmp_path / 'b.pth'), ''), 'head.'))
    else:
        load_model(model, str(tmp_path / 'b.pth'))
    image = torch.randn(2, SIDE, SIDE, 3, dtype=torch.float64)
    expected = reference(arrays, image, prefix, pooling)
    torch.testing.assert_close(model(image.permute(0, 3, 1, 2)), expected, atol=1e-6, rtol=0)


def below(tensors: dict, prefix: str) -> dict:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def test_states_of_an_optimiser_beside_the_parameters_are_not_read(tmp_path):
    arrays = flax_file(None)
    moments = {f'opt/0/mu/{name}': np.zeros_like(value) for name, value in arrays.items()}
    np.savez(tmp_path / 'a.npz', **{f'params/{name}': value for name, value in arrays.items()}, **moments)
    report = load_backbone(VisionTransformer(**without_type(config_of(tmp_path / 'a.npz'))), str(tmp_path / 'a.npz'))
    assert len(report.loaded) == report.total and 'opt/0/mu/cls' in report.dropped


def without_type(config: dict) -> dict:
    return {key: value for key, value in config.items() if key != 'type'}


def stacked(arrays: dict) -> dict:
    """Return arrays as a model with a scan over its layers has them."""
    layer = 'Transformer/encoderblock_0/'
    of_layers = [name.removeprefix(layer) for name in arrays if name.startswith(layer)]
    out = {name: value for name, value in arrays.items() if 'encoderblock_' not in name}
    for name in of_layers:
        layers = [arrays[f'Transformer/encoderblock_{number}/{name}'] for number in range(2)]
        out[f'Transformer/encoderblock/{name}'] = np.stack(layers)
    return out


def map_head() -> dict:
    """A pooling by attention, as LiT's and SigLIP's towers have it."""
    attention, mlp = 'MAPHead_0/MultiHeadDotProductAttention_0', 'MAPHead_0/MlpBlock_0'
    per_head = (HEADS, D // HEADS)
    shapes = {'MAPHead_0/probe': (1, 1, D), 'MAPHead_0/LayerNorm_0/scale': (D,), 'MAPHead_0/LayerNorm_0/bias': (D,)}
    for part in ('query', 'key', 'value'):
        shapes |= {f'{attention}/{part}/kernel': (D, *per_head), f'{attention}/{part}/bias': per_head}
    shapes |= {f'{attention}/out/kernel': (*per_head, D), f'{attention}/out/bias': (D,)}
    for number, shape in enumerate([(D, 2 * D), (2 * D, D)]):
        shapes |= {f'{mlp}/Dense_{number}/kernel': shape, f'{mlp}/Dense_{number}/bias': shape[1:]}
    return {name: np.random.randn(*shape).astype('f4') for name, shape in shapes.items()}


def text_tower() -> dict:
    shapes = {'b': (1,), 't': (1,), 'txt/Embed_0/embedding': (7, D), 'txt/head/kernel': (D, D)}
    shapes |= {'txt/pos_embedding': (1, 5, D), 'txt/Encoder_0/encoderblock_0/LayerNorm_0/scale': (D,)}
    return {f'params/{name}': np.zeros(shape, 'f4') for name, shape in shapes.items()}


@pytest.mark.parametrize('scan', [False, True], ids=['layers', 'stacked'])
@pytest.mark.parametrize('prefix', ['', 'params/', 'opt/target/', 'params/img/'])
def test_towers_with_map_give_the_features_that_timm_reads(tmp_path, prefix, scan):
    """What belongs to texts, and to the head behind the tokens, is left out, also of what ``convert`` writes."""
    no_head = {name: value for name, value in flax_file(None).items() if name not in ('cls', 'pre_logits/kernel')}
    arrays = stacked(no_head) if scan else no_head
    arrays |= map_head()
    named = {f'{prefix}{name}': value for name, value in arrays.items()}
    named |= text_tower() if prefix.endswith('img/') else {}
    path = str(tmp_path / 'a.npz')
    np.savez(path, **named)

    theirs = timm.models.VisionTransformer(
        img_size=SIDE,
        patch_size=PATCH,
        embed_dim=D,
        depth=2,
        num_heads=HEADS,
        mlp_ratio=2,
        act_layer=partial(nn.GELU, approximate='tanh'),
        class_token=False,
        global_pool='map',
        num_classes=10,
    )
    theirs.load_pretrained(path)
    found = config_of(path, act_cfg=TANH_GELU)
    mine = VisionTransformer(**without_type(found))
    report = load_backbone(mine, path)
    assert len(report.loaded) == report.total and not report.new
    images = torch.randn(2, 3, SIDE, SIDE, dtype=torch.float64)
    mine, theirs = (model.double().eval() for model in (mine, theirs))
    n = SIDE // PATCH
    features = theirs.forward_features(images).mT.unflatten(2, (n, n))
    torch.testing.assert_close(mine(images)[-1], features, atol=1e-10, rtol=0)

    left_out = convert(path, tmp_path / 'b.pth', 'mmlape')
    assert {'MAPHead_0/probe', 'head/kernel', 'head/bias'} <= set(left_out)
    report = load_backbone(VisionTransformer(**without_type(found)), str(tmp_path / 'b.pth'))
    assert len(report.loaded) == report.total and not report.dropped
