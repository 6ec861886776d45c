"""Classifiers of big_vision, and the stems of vit-pytorch and open_clip: read and named."""

import math
from functools import partial

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from checkpoint_helpers import vit_config
from mmengine.registry import MODELS, init_default_scope
from model_helpers import randomise
from torch import Tensor, nn

from mmlape.checkpoint import load_backbone, load_model, read_checkpoint, state_dict_of
from mmlape.checkpoint.converting import convert
from mmlape.checkpoint.inspecting import inspect
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.errors import CheckpointError
from mmlape.models import VisionTransformer

D, HEADS, PATCH, SIDE = 128, 2, 8, 32
ARCH = dict(embed_dims=D, num_layers=2, num_heads=HEADS, feedforward_channels=2 * D)
TANH_GELU = dict(type='GELU', approximate='tanh')


def flax_file(prefix: str | None, pooling: str = 'tok', seed: int = 0) -> dict[str, np.ndarray]:
    """Return a classifier's arrays by big_vision's names; ``prefix`` encloses the listing's, None is no DPN."""
    random = np.random.RandomState(seed)
    pixels = 3 * PATCH**2
    shapes = {'head/kernel': (D, 10), 'head/bias': (10,), 'pre_logits/kernel': (D, D), 'pre_logits/bias': (D,)}
    if prefix is None:
        shapes |= {'embedding/kernel': (PATCH, PATCH, 3, D), 'embedding/bias': (D,)}
    else:
        shapes |= {f'{prefix}dense/kernel': (pixels, D), f'{prefix}dense/bias': (D,)}
        shapes |= {f'{prefix}ln{i}/{leaf}': (n,) for i, n in enumerate((pixels, D)) for leaf in ('scale', 'bias')}
    if pooling == 'tok':
        shapes |= {'cls': (1, 1, D), 'pos_embedding': (1, (SIDE // PATCH) ** 2, D)}
    for number in range(2):
        block = f'Transformer/encoderblock_{number}'
        attention = f'{block}/MultiHeadDotProductAttention_0'
        shapes |= {f'{block}/LayerNorm_{i}/{leaf}': (D,) for i in (0, 1) for leaf in ('scale', 'bias')}
        for part in ('query', 'key', 'value'):
            shapes |= {f'{attention}/{part}/kernel': (D, HEADS, 64), f'{attention}/{part}/bias': (HEADS, 64)}
        shapes |= {f'{attention}/out/kernel': (HEADS, 64, D), f'{attention}/out/bias': (D,)}
        shapes |= {f'{block}/MlpBlock_0/Dense_0/kernel': (D, 2 * D), f'{block}/MlpBlock_0/Dense_0/bias': (2 * D,)}
        shapes |= {f'{block}/MlpBlock_0/Dense_1/kernel': (2 * D, D), f'{block}/MlpBlock_0/Dense_1/bias': (D,)}
    shapes |= {f'Transformer/encoder_norm/{leaf}': (D,) for leaf in ('scale', 'bias')}
    return {
        name: (0.1 * random.randn(*shape) + name.endswith('scale')).astype(np.float32)
        for name, shape in shapes.items()
    }


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


@pytest.mark.parametrize(
    ('arch', 'patch_size', 'dims'),
    [
        ('deit-small', 32, 384),
        ('deit-tiny', 16, 192),
        ('deit-base', 32, 768),
        ('deit-small', 16, 384),
        ('deit-base', 16, 768),
    ],
)
@pytest.mark.parametrize('class_row', [False, True], ids=['big_vision', 'AugReg'])
def test_the_papers_five_models_are_named(arch, patch_size, dims, class_row):
    """Nothing is read of their values, so they are zeros that take no memory."""
    heads, grid, size_name = dims // 64, 224 // patch_size, arch.removeprefix('deit-')
    second, mlp, attention = ('LayerNorm_2', 'MlpBlock_3', 1) if class_row else ('LayerNorm_1', 'MlpBlock_0', 0)
    shapes = {'cls': (1, 1, dims), 'embedding/kernel': (patch_size, patch_size, 3, dims), 'embedding/bias': (dims,)}
    table = 'Transformer/posembed_input/pos_embedding' if class_row else 'pos_embedding'
    shapes |= {table: (1, grid**2 + class_row, dims), 'pre_logits/kernel': (dims, dims), 'pre_logits/bias': (dims,)}
    shapes |= {f'Transformer/encoder_norm/{leaf}': (dims,) for leaf in ('scale', 'bias')}
    for number in range(12):
        block = f'Transformer/encoderblock_{number}'
        parts = f'{block}/MultiHeadDotProductAttention_{attention}'
        shapes |= {f'{block}/{name}/{leaf}': (dims,) for name in ('LayerNorm_0', second) for leaf in ('scale', 'bias')}
        shapes |= {f'{parts}/{part}/kernel': (dims, heads, 64) for part in ('query', 'key', 'value')}
        shapes |= {f'{parts}/{part}/bias': (heads, 64) for part in ('query', 'key', 'value')}
        shapes |= {f'{parts}/out/kernel': (heads, 64, dims), f'{parts}/out/bias': (dims,)}
        shapes |= {f'{block}/{mlp}/Dense_0/kernel': (dims, 4 * dims), f'{block}/{mlp}/Dense_0/bias': (4 * dims,)}
        shapes |= {f'{block}/{mlp}/Dense_1/kernel': (4 * dims, dims), f'{block}/{mlp}/Dense_1/bias': (dims,)}
    content = {name: torch.empty(shape) for name, shape in shapes.items()}
    kind, weights = recognise_backbone(content)
    rows, config, notes = kind.checkpoint_adapter.describe(kind, weights, 'a.npz')
    patch = f'-p{patch_size}'
    name = f'vit-{size_name}{patch}'
    if class_row:
        name = f'augreg-{size_name}{patch}' if patch_size == 32 else arch
    assert config['type'] == 'mmlape.VisionTransformer' and config['arch'] == arch and rows['model'] == name
    assert config.get('patch_size', 16) == patch_size and config.get('with_prefix_pe', True) == class_row
    assert any(f'hidden_dim={dims}' in note for note in notes)


# PyTorch stems


def layers_of(public: dict[str, str], number: int, source: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.replace('#', str(number)): source[f'blocks.{number}.{ours}']
        for name, ours in public.items()
        if f'blocks.{number}.{ours}' in source
    }


def vit_pytorch_file(pool: str) -> tuple[dict[str, Tensor], VisionTransformer]:
    """Return a file of vit-pytorch's ``ViT``, whose stem has values of its own, and the model that it fills."""
    model = randomise(
        VisionTransformer(
            ARCH, SIDE, PATCH, with_cls_token=pool == 'cls', out_type='raw', qkv_bias=False, patch_norm='dual',
            norm_cfg=dict(type='LN', eps=1e-5),
        )
    )  # fmt: skip
    source, pixels = model.state_dict(), 3 * PATCH**2
    names = {
        '0.norm.weight': 'norm1.weight', '0.norm.bias': 'norm1.bias', '0.to_qkv.weight': 'attn.qkv.weight',
        '0.to_out.0.weight': 'attn.proj.weight', '0.to_out.0.bias': 'attn.proj.bias', '1.net.0.weight': 'norm2.weight',
        '1.net.0.bias': 'norm2.bias', '1.net.1.weight': 'mlp.fc1.weight', '1.net.1.bias': 'mlp.fc1.bias',
        '1.net.4.weight': 'mlp.fc2.weight', '1.net.4.bias': 'mlp.fc2.bias',
    }  # fmt: skip
    names = {f'transformer.layers.#.{name}': ours for name, ours in names.items()}
    tensors = {
        'to_patch_embedding.1.weight': torch.randn(pixels), 'to_patch_embedding.1.bias': torch.randn(pixels),
        'to_patch_embedding.2.weight': torch.randn(D, pixels), 'to_patch_embedding.2.bias': torch.randn(D),
        'to_patch_embedding.3.weight': torch.randn(D), 'to_patch_embedding.3.bias': torch.randn(D),
        'pos_embedding': source['pos_embed'][0], 'transformer.norm.weight': source['norm.weight'],
        'transformer.norm.bias': source['norm.bias'],
        'mlp_head.weight': torch.randn(5, D),
        'cls_token': source['cls_token'][0] if pool == 'cls' else torch.zeros(0, D),
    }  # fmt: skip
    return {**tensors, **layers_of(names, 0, source), **layers_of(names, 1, source)}, model


@pytest.mark.parametrize('pool', ['cls', 'mean'])
def test_vit_pytorchs_stem(tmp_path, pool):
    tensors, source = vit_pytorch_file(pool)
    torch.save(tensors, tmp_path / 'a.pth')
    config = without_type(config_of(tmp_path / 'a.pth', out_type='raw'))
    assert inspect(tmp_path / 'a.pth')['layout'] == 'vit-pytorch'
    assert config['patch_norm'] == 'dual' and config['norm_cfg'] == dict(type='LN', eps=1e-5)
    load_backbone(model := VisionTransformer(**config), str(tmp_path / 'a.pth'))
    behind = [name for name in source.state_dict() if not name.startswith('patch_embed')]
    assert all(torch.equal(model.state_dict()[name], source.state_dict()[name]) for name in behind)
    image, n = torch.randn(2, 3, SIDE, SIDE), SIDE // PATCH
    x = image.view(2, 3, n, PATCH, n, PATCH).permute(0, 2, 4, 3, 5, 1).reshape(2, n * n, -1)  # (p1, p2, c)
    parts = {
        i: (tensors[f'to_patch_embedding.{i}.weight'], tensors[f'to_patch_embedding.{i}.bias']) for i in (1, 2, 3)
    }
    x = F.linear(F.layer_norm(x, x.shape[-1:], *parts[1]), *parts[2])
    torch.testing.assert_close(model.patch_embed(image)[0], F.layer_norm(x, (D,), *parts[3]), atol=2e-4, rtol=1e-4)


def open_clip_file(input_patchnorm: bool, layer_scale: bool = False) -> dict[str, Tensor]:
    """Return a CLIP with its text tower; the image tower is of our widths."""
    pixels, n = 3 * PATCH**2, (SIDE // PATCH) ** 2
    shapes = {
        'class_embedding': (D,), 'positional_embedding': (n + 1, D), 'ln_pre.weight': (D,), 'ln_pre.bias': (D,),
        'ln_post.weight': (D,), 'ln_post.bias': (D,), 'proj': (D, 16),
        'conv1.weight': (D, pixels) if input_patchnorm else (D, 3, PATCH, PATCH),
    }  # fmt: skip
    if input_patchnorm:
        shapes |= {'conv1.bias': (D,), 'patchnorm_pre_ln.weight': (pixels,), 'patchnorm_pre_ln.bias': (pixels,)}
    for number in range(2):
        block = f'transformer.resblocks.{number}'
        shapes |= {f'{block}.ln_{i}.{leaf}': (D,) for i in (1, 2) for leaf in ('weight', 'bias')}
        shapes |= {f'{block}.attn.in_proj_weight': (3 * D, D), f'{block}.attn.in_proj_bias': (3 * D,)}
        shapes |= {f'{block}.attn.out_proj.weight': (D, D), f'{block}.attn.out_proj.bias': (D,)}
        shapes |= {f'{block}.mlp.c_fc.weight': (2 * D, D), f'{block}.mlp.c_fc.bias': (2 * D,)}
        shapes |= {f'{block}.mlp.c_proj.weight': (D, 2 * D), f'{block}.mlp.c_proj.bias': (D,)}
        shapes |= {f'{block}.ls_{i}.gamma': (D,) for i in (1, 2) if layer_scale}
    image = {f'visual.{name}': 0.2 * torch.randn(shape) for name, shape in shapes.items()}
    text = {'positional_embedding': torch.randn(7, 8), 'transformer.resblocks.0.ln_1.weight': torch.randn(8)}
    return {**image, **text, 'logit_scale': torch.randn(())}


def clip(p: dict[str, Tensor], image: Tensor) -> Tensor:
    """Run CLIP's image tower, returning all tokens through its last norm."""
    p = {name: value.double() for name, value in below(p, 'visual.').items()}
    norm = lambda x, name: F.layer_norm(x, x.shape[-1:], p[f'{name}.weight'], p[f'{name}.bias'], 1e-5)  # noqa: E731
    x = F.unfold(image, PATCH, stride=PATCH).mT  # (c, p1, p2)
    x = norm(x, 'patchnorm_pre_ln') if 'patchnorm_pre_ln.weight' in p else x
    x = F.linear(x, p['conv1.weight'].flatten(1), p.get('conv1.bias'))
    x = torch.cat((p['class_embedding'].expand(len(x), 1, -1), x), 1) + p['positional_embedding']
    x = norm(x, 'ln_pre')
    for number in range(2):
        block = f'transformer.resblocks.{number}'
        h = F.linear(norm(x, f'{block}.ln_1'), p[f'{block}.attn.in_proj_weight'], p[f'{block}.attn.in_proj_bias'])
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in h.chunk(3, -1))
        out = ((q @ k.mT / math.sqrt(D // HEADS)).softmax(-1) @ v).transpose(1, 2).flatten(2)
        scale = [p.get(f'{block}.ls_{i}.gamma', 1) for i in (1, 2)]
        x = x + scale[0] * F.linear(out, p[f'{block}.attn.out_proj.weight'], p[f'{block}.attn.out_proj.bias'])
        h = F.gelu(F.linear(norm(x, f'{block}.ln_2'), p[f'{block}.mlp.c_fc.weight'], p[f'{block}.mlp.c_fc.bias']))
        x = x + scale[1] * F.linear(h, p[f'{block}.mlp.c_proj.weight'], p[f'{block}.mlp.c_proj.bias'])
    return norm(x, 'ln_post')


@pytest.mark.parametrize(('input_patchnorm', 'layer_scale'), [(True, False), (False, False), (False, True)])
def test_open_clips_image_tower(tmp_path, input_patchnorm, layer_scale):
    """With ``input_patchnorm`` its stem has LN0 only; the text tower is left out."""
    tensors = open_clip_file(input_patchnorm, layer_scale)
    torch.save(tensors, tmp_path / 'a.pth')
    config = without_type(config_of(tmp_path / 'a.pth', out_type='raw'))
    assert inspect(tmp_path / 'a.pth')['layout'] == 'open_clip'
    assert config['patch_norm'] == ('pre-post-posemb' if input_patchnorm else 'post-posemb')
    model = VisionTransformer(**config).double().eval()
    report = load_backbone(model, str(tmp_path / 'a.pth'))
    assert set(report.dropped) == {
        'proj',
        'positional_embedding',
        'transformer.resblocks.0.ln_1.weight',
        'logit_scale',
    }
    image = torch.randn(2, 3, SIDE, SIDE, dtype=torch.float64)
    torch.testing.assert_close(model(image)[0], clip(tensors, image), atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ('kwargs', 'to', 'reason'),
    [
        (dict(norm_placement='post'), 'timm', r'blocks\.\*\.sum_norm1\.weight.*'),
        (dict(norm_placement='sub-ln'), 'lape', r'blocks\.\*\.attn\.norm\.weight.*'),
    ],
)
def test_a_layout_without_a_place_for_something_refuses(tmp_path, kwargs, to, reason):
    torch.save(randomise(VisionTransformer(ARCH, SIDE, PATCH, **kwargs)).state_dict(), tmp_path / 'a.pth')
    with pytest.raises(CheckpointError, match=f'the {to} layout has no place for {reason}; use --to mmlape'):
        convert(tmp_path / 'a.pth', tmp_path / 'b.npz', to)


def test_pre_logits_are_left_out_with_the_head_behind_them(tmp_path):
    """Of timm's layout, where they have no place."""
    np.savez(tmp_path / 'a.npz', **flax_file(None))
    left = convert(tmp_path / 'a.npz', tmp_path / 'b.pth', 'timm')
    assert sorted(left) == ['head.bias', 'head.weight', 'pre_logits.bias', 'pre_logits.weight']
    assert not set(left) & set(torch.load(tmp_path / 'b.pth'))


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
