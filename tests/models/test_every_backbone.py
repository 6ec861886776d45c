"""What every backbone promises.

Any size, forms of the output, dropouts and drop paths, eps of norms, recomputed and frozen layers, every encoding and
joining.
"""

import math
import re
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from each import each
from model_helpers import meta_device, new_vit, placements, randomise
from test_tools import FAMILIES, TIMM, flat
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlape import get_model
from mmlape.errors import ConfigError, DataError
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models import SwinTransformer, TimmViTAdapter, VisionTransformer, ViTAdapter
from mmlape.models.adapter.layers import Extractor
from mmlape.models.base.backbone import parameters
from mmlape.models.layers.patch_embed import PATCH_NORMS
from mmlape.models.position import PE_NORMS, joinings
from mmlape.projects import CeiT, CompactTransformer, T2TViT
from mmlape.projects.pe_figures.position import layer_positions

PADDED_TO = {'adapter': 32, 'timm adapter': 32, 'pyramid': 16, 'compact': None}
"""To which multiple a model pads its images by zeros at the end, if not that of its patches; CCT's overlap."""
OURS = [name for name in FAMILIES if 'timm' not in name]
OUT_TYPES = [name for name in FAMILIES if name not in ('adapter', 'pyramid', 'timm adapter', 'distilled')]


def timm_adapter(model_name: str, **options) -> partial:
    return partial(TimmViTAdapter, dict(TIMM, model_name=model_name), conv_inplane=8, deform_num_heads=3, **options)


TIMM_ADAPTERS = {
    'read-only': timm_adapter('vit_small_patch16_dinov3', mode='read-only'),
    'a ViT of other tokens': timm_adapter('vit_base_patch16_siglip_224'),
    'another kernel': timm_adapter('eva02_tiny_patch14_224', patch14='resample-kernel'),
    'another image': timm_adapter('vit_small_patch14_reg4_dinov2', patch14='resize-image'),
}
"""The other forms of the adapter over timm's."""


def maps(name: str, **options) -> torch.nn.Module:
    """Build a family whose outputs are maps."""
    return FAMILIES[name](**({} if name not in OUT_TYPES else dict(out_type='featmap')), **options).eval()


class Nothing(nn.Module):
    def forward(self, x):
        return 0 * x


@torch.no_grad()
def test_any_size_from_one_patch_on():
    """Maps have a cell for each begun stride; what is missing at the right and the bottom is zero."""
    for name in each([*FAMILIES, *TIMM_ADAPTERS]):
        model = randomise(TIMM_ADAPTERS[name]().eval() if name in TIMM_ADAPTERS else maps(name))
        side = model.patch_size
        for rows, columns in ((side, side), (side + 1, 3 * side), (61, 33), (32, 48)):
            image = torch.randn(1, 3, rows, columns)
            outs = flat(model(image))
            if name == 'compact':
                assert [tuple(out.shape[2:]) for out in outs] == [model.grid_of((rows, columns))]
                continue
            if name != 'distilled':
                grids = [(-(-rows // stride), -(-columns // stride)) for stride in model.strides]
                assert [tuple(out.shape[2:]) for out in outs] == grids[-len(outs) :], name
            step = PADDED_TO.get(name, 32 if name in TIMM_ADAPTERS else side)
            padded = flat(model(F.pad(image, (0, -columns % step, 0, -rows % step))))
            for out, other in zip(outs, padded, strict=True):
                assert out.isfinite().all()
                same = other[..., : out.shape[-2], : out.shape[-1]] if out.ndim > 2 else other
                torch.testing.assert_close(out, same)
        if name != 'compact':
            with pytest.raises(DataError, match='smaller than one patch'):
                model(torch.randn(1, 3, side - 1, 64))


@torch.no_grad()
def test_forms_of_the_output_are_of_the_same_tokens():
    for name in each(OUT_TYPES):
        outs, weights = {}, None
        for out_type in ('raw', 'featmap', 'avg_featmap', 'cls_token'):
            try:
                torch.manual_seed(0)
                model = FAMILIES[name](out_type=out_type).eval()
            except ConfigError:
                continue
            if weights is None:
                weights = randomise(model).state_dict()
            model.load_state_dict(weights, strict=False)  # a class token may have layers of its own
            outs[out_type] = model(torch.ones(2, 3, 32, 48).cumsum(-1) / 48)[-1]
        grid = outs['featmap'].shape[2:]
        patches = outs['raw'][:, outs['raw'].shape[1] - math.prod(grid) :]
        torch.testing.assert_close(outs['featmap'], patches.mT.unflatten(2, grid))
        torch.testing.assert_close(outs['avg_featmap'], patches.mean(1))
        if 'cls_token' in outs and name != 'ceit':  # CeiT's is another token, see the golden data
            torch.testing.assert_close(outs['cls_token'], outs['raw'][:, 0])


def test_recomputed_layers_keep_less_and_change_no_gradient():
    for name in each(FAMILIES):
        kept, found = [], []
        for with_cp in (False, True):
            torch.manual_seed(1)
            vit = {'vit': dict(FAMILIES[name].args[0], with_cp=with_cp)} if name == 'timm adapter' else {}
            options = {} if vit else dict(with_cp=with_cp)
            model = FAMILIES[name].func(**{**FAMILIES[name].keywords, **vit}) if vit else FAMILIES[name](**options)
            model, saved = randomise(model).train(), []

            def keep(x, saved=saved):
                saved.append(x.numel())
                return x

            torch.manual_seed(2)
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
                out = sum(out.square().sum() for out in flat(model(torch.randn(2, 3, 32, 48))))
            out.backward()
            kept.append(sum(saved))
            statistics = {key: value.clone() for key, value in model.named_buffers()}
            found.append([*(p.grad for p in model.parameters() if p.grad is not None), *statistics.values()])
        assert kept[1] < 0.9 * kept[0], (name, kept)
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_frozen_stages_freeze_the_stem_the_table_and_the_first_layers():
    for name in each(OURS):
        model = FAMILIES[name](frozen_stages=1, drop_path_rate=0.5).train()
        parts = {key: (model.part_of(key), value.requires_grad) for key, value in model.named_parameters()}
        first = 2 if isinstance(model, SwinTransformer) else 1  # a stage of two layers
        frozen = {'position', 'patch_embed', *(f'blocks.{number}' for number in range(first))}
        inside = [key for key in parts if not key.startswith(('interactions.', 'spm.', 'level_embed', 'up', 'norm'))]
        for key in inside:
            part, trained = parts[key]
            assert trained == (part not in frozen) or part not in (*frozen, f'blocks.{first}'), (key, part)
        assert [layer.training for layer in model.all_layers][: first + 1] == [False] * first + [True]


def taking(*names: str) -> list[str]:
    """The families that take some argument."""
    return [name for name in OURS if set(names) <= set(parameters(FAMILIES[name].func))]


def test_dropouts_are_of_the_rates_that_are_given_and_run():
    """An FFN drops its hidden units, too; a performer has a rate of its own."""
    for name in each(taking('drop_rate')):
        model, calls = FAMILIES[name](drop_rate=0.3).train(), {}
        for path, module in model.named_modules():
            if isinstance(module, nn.Dropout):
                assert module.p == (0.1 if path.startswith('tokens_to_token.') else 0.3), path
                calls[path] = 0
                module.register_forward_hook(lambda *_, path=path, calls=calls: calls.update({path: calls[path] + 1}))
        model(torch.randn(2, 3, 32, 48))
        assert {layer.attention.attn_drop_rate for layer in model.all_layers} == {0.0}
        twice = re.compile(r'mlp\.drop|feedforward\.drop')
        assert calls and all(count == (2 if twice.search(path) else 1) for path, count in calls.items()), calls
    for name in each(taking('attn_drop_rate')):
        assert {layer.attention.attn_drop_rate for layer in FAMILIES[name](attn_drop_rate=0.2).all_layers} == {0.2}
    last = FAMILIES['compact']().blocks[1]
    assert last.attention.attn_drop_rate == last.drop_path.drop_prob == 0.1


def test_the_eps_of_norm_cfg_is_that_of_every_norm():
    def eps_of(model: nn.Module) -> set[float]:
        return {one.eps for one in model.modules() if hasattr(one, 'eps') and not isinstance(one, _BatchNorm)}

    cfg = dict(type='LN', eps=1e-3)
    for name in each(taking('norm_cfg')):
        more = dict(up_norm_cfg=cfg) if name == 'pyramid' else {}
        assert eps_of(FAMILIES[name](norm_cfg=cfg, **more)) == {1e-3}
    for patch_norm, pe_norm in each([*product(PATCH_NORMS, ['layernorm']), *product(['none'], PE_NORMS)]):
        joining = 'default' if 'posemb' in patch_norm else 'lape'
        model = new_vit(patch_norm=patch_norm, pe_norm=pe_norm, pe_joining=joining, norm_cfg=cfg)
        assert eps_of(model) == {1e-3}
    batch_norms = [one for one in FAMILIES['adapter'](norm_cfg=cfg).modules() if isinstance(one, _BatchNorm)]
    assert batch_norms and all(isinstance(one, nn.SyncBatchNorm) for one in batch_norms)
    assert {(one.eps, one.momentum) for one in batch_norms} == {(1e-5, 0.1)}


def test_drop_path_rates_grow_linearly_to_the_maximum():
    for name in each(OURS):
        with meta_device():
            layers = list(FAMILIES[name](drop_path_rate=0.3).all_layers)
        rates = [getattr(layer.drop_path, 'drop_prob', 0.0) for layer in layers]
        assert rates == pytest.approx([0.3 * number / (len(layers) - 1) for number in range(len(layers))]), name


@torch.no_grad()
def test_drop_path_is_on_both_branches_of_a_layer():
    """A layer of which it leaves nothing is the identity, but for CCT's norm of the residual stream."""
    for name in each(OURS):
        model = randomise(FAMILIES[name](drop_path_rate=0.4))
        layer = model.all_layers[1]
        layer.drop_path = Nothing()
        x = torch.randn(2, model.num_prefix + 6, layer.embed_dims)
        torch.testing.assert_close(layer(x, None, (2, 3))[0], layer.norm1(x) if name == 'compact' else x)


@torch.no_grad()
def test_drop_path_of_an_extractor_is_on_its_ffn_alone():
    for name in each(('adapter', 'read-only')):
        model = randomise(FAMILIES[name](drop_path_rate=0.4) if name in FAMILIES else TIMM_ADAPTERS[name]())
        extractors = [module for module in model.modules() if isinstance(module, Extractor)]
        assert {one.drop_path.drop_prob for one in extractors} == {0.4 if name in FAMILIES else 0.3}
        found, read = [], []
        for one in extractors:
            one.drop_path = Nothing()
            one.register_forward_hook(lambda module, args, out, found=found: found.append(out - args[0]))
            one.attn.register_forward_hook(lambda module, args, out, read=read: read.append(out))
        model(torch.randn(1, 3, 32, 64))
        torch.testing.assert_close(found, read, atol=1e-4, rtol=1e-4)


def test_every_encoding_trains_in_every_backbone_on_another_grid():
    """Each parameter has a gradient, but where the architecture leaves one unread."""
    POSITION_ENCODINGS.import_from_location()
    for name in each(name for name in OURS if name not in ('vit, windows', 'vit, rotary')):
        taken = 0
        for kind in POSITION_ENCODINGS.module_dict:
            family = FAMILIES[name]
            options = {key: value for key, value in family.keywords.items() if key not in ('pe_type', 'pe_joining')}
            try:
                model = randomise(family.func(*family.args, **options, pe_type=kind)).train()
            except ConfigError:
                continue
            outs = flat(model(torch.randn(2, 3, 16, 48)))
            sum((out * torch.randn_like(out)).sum() for out in outs).backward()
            unused = [key for key, p in model.named_parameters() if p.grad is None]
            assert not unused or name == 'pyramid', (name, kind, unused)
            taken += 1
        assert taken > 8, (name, taken)


SHOWN = [name for name in OURS if name not in ('adapter', 'pyramid', 'vit, windows', 'vit, rotary')]


def with_pe(name: str, joining: str) -> nn.Module:
    """A family with a table and a joining; ConfigError if they do not go together."""
    family, options = FAMILIES[name], {}
    if joinings()[joining].patches_only:
        options = {'out_type': 'featmap'} | ({} if name in ('swin', 'compact') else {'with_cls_token': False})
        options |= {'num_registers': 0} if name == 'vit' else {}
    return family.func(*family.args, **{**family.keywords, 'pe_type': 'learnable', 'pe_joining': joining, **options})


@torch.no_grad()
def test_what_is_shown_of_a_pe_is_what_attention_receives_of_empty_tokens():
    """With a stem that gives zeros and branches that add nothing; beside the norm of the tokens, if it is another."""
    placed = [partial(new_vit, norm_placement=place, patch_norm='post-posemb') for place in placements()]
    built = [partial(with_pe, name, joining) for name, joining in product(SHOWN, joinings())]
    taken = 0
    for build in each([*built, *placed]):
        try:
            model = randomise(build())
        except ConfigError:
            continue
        shown = list(layer_positions(model, model.grid_of((40, 56))))
        stem = next(part for part in ('patch_embed', 'tokenizer', 'i2t', 'tokens_to_token') if hasattr(model, part))
        getattr(model, stem).register_forward_hook(lambda module, args, out: (torch.zeros_like(out[0]), out[1]))
        received, normed, first = [], [], model.num_prefix
        for layer in model.all_layers:
            layer.drop_path = Nothing()
            layer.attention.register_forward_pre_hook(lambda module, args, to=received: to.append(args[0][0]))
            norm = getattr(layer, layer.norm_name)
            norm.register_forward_hook(lambda module, args, out, to=normed: to.append(out[0]))
        model(torch.randn(1, 3, 40, 56))
        beside = not model.position.joining.shares_norm
        for mine, attended, tokens in zip(shown, received, normed, strict=True):
            torch.testing.assert_close(mine, (attended - tokens if beside else attended)[first:], atol=2e-5, rtol=0)
        taken += 1
    assert taken > 40


COUNTS = [
    (VisionTransformer, 'deit-tiny', {}, 5_717_416),
    *((VisionTransformer, 'deit-tiny', dict(pe_joining=name), count)
      for name, count in (('lape', 5_722_024), ('unshared', 6_133_480))),
    (VisionTransformer, 'deit-small', {}, 22_050_664), (VisionTransformer, 'deit-base', {}, 86_567_656),
    (VisionTransformer, 'deit-base', dict(pe_joining='lape'), 86_586_088),
    (VisionTransformer, 'deit-tiny', dict(pe_type=['learnable', 'irpe']), 5_755_816),
    *((VisionTransformer, 'deit-small', dict(pe_type=['learnable', dict(type='irpe', **options)]), count)
      for options, count in ((dict(method='euclidean', ratio=20), 22_113_640), (dict(on='qkv'), 22_165_864),
                             (dict(method='quantization', ratio=33), 22_153_576), (dict(on='qk'), 22_127_464),
                             (dict(method='cross', ratio=20), 22_176_616))),
    (T2TViT, 't2t-vit-7', {}, 4_310_222), (T2TViT, 't2t-vit-7', dict(pe_joining='lape'), 4_313_806),
    (CeiT, 'tiny', {}, 6_356_904), (CeiT, 'small', dict(pe_joining='lape'), 24_214_056),
    (SwinTransformer, 'tiny', {}, 28_288_354),
    (SwinTransformer, 'tiny', dict(pe_type=['learnable', 'rpe']), 28_589_410),
    (SwinTransformer, 'tiny', dict(pe_type='learnable', pe_joining='lape'), 28_580_296),
    (SwinTransformer, 'small', {}, 49_606_258),
    *((CompactTransformer, arch, dict(img_size=size), count) for arch, size, count in (
        ('vit-lite-2/4', 32, 342_376), ('vit-lite-6/4', 32, 3_444_968), ('cvt-4/4', 32, 540_649),
        ('cct-2/3x2', 32, 411_433), ('cct-6/3x2', 32, 3_581_353), ('cct-7/7x2', 224, 4_804_521),
        ('cct-14/7x2', 224, 22_367_273))),
]  # fmt: skip
"""Those of the public code with a head of 1000 classes; of iRPE's Table and LaPE's Table 5."""

FOUR = [[0, 2], [3, 5], [6, 8], [9, 11]]
LARGE = partial(get_model, 'beit-large-adapter')
ADAPTERS = {
    partial(ViTAdapter, 'deit-tiny', interaction_indexes=FOUR): 7_966_640,
    partial(ViTAdapter, 'deit-small', interaction_indexes=FOUR): 27_503_888,
    partial(LARGE, img_size=640, with_cls_token=True): 328_756_928,
    partial(LARGE, window_attn=True, window_size=[14, 14, 14, 14, 14, 56] * 4): 327_380_032,
    partial(TimmViTAdapter, dict(model_name='vit_small_patch16_dinov3'), 'read-only'): 3_698_432,
    partial(TimmViTAdapter, dict(model_name='vit_base_patch16_dinov3'), 'read-only'): 10_193_984,
}
"""Those of the public code, without the ViT where it is timm's."""


def test_parameters_are_as_many_as_the_public_codes():
    """T2T-ViT's frozen parameters, 54,528 in all, are buffers here."""
    for cls, arch, options, count in each(COUNTS):
        with meta_device():
            model = cls(arch, **options)
        dims = model.dims_of(3) if cls is SwinTransformer else model.embed_dims
        total = sum(p.numel() for p in model.parameters()) + 1000 * (dims + 1) + 54_528 * (cls is T2TViT)
        assert total == count
    for build, count in each(ADAPTERS.items()):
        with meta_device():
            model = build()
        assert sum(value.numel() for key, value in model.named_parameters() if not key.startswith('vit.')) == count


COMPACT = {2: (128, 2), 4: (128, 2), 6: (256, 4), 7: (256, 4)}
NAMED = {  # width, layers, heads in the public code
    VisionTransformer: {'deit-tiny': (192, 12, 3), 'deit-small': (384, 12, 6), 'deit-base': (768, 12, 12)},
    T2TViT: {
        **{f't2t-vit-{depth}': (256, depth, 4) for depth in (7, 10, 12)},
        't2t-vit-14': (384, 14, 6), 't2t-vit-19': (448, 19, 7), 't2t-vit-24': (512, 24, 8),
    },
    CeiT: {'tiny': (192, 12, 3), 'small': (384, 12, 6), 'base': (768, 12, 12)},
    CompactTransformer: {
        **{f'{name}-{n}/4': (dims, n, heads) for n, (dims, heads) in COMPACT.items() for name in ('vit-lite', 'cvt')},
        'cct-2/3x2': (128, 2, 2), 'cct-6/3x1': (256, 6, 4), 'cct-7/3x1': (256, 7, 4), 'cct-14/7x2': (384, 14, 6),
    },
    SwinTransformer: {
        'tiny': (96, 12, [3] * 2 + [6] * 2 + [12] * 6 + [24] * 2),
        'small': (96, 24, [3] * 2 + [6] * 2 + [12] * 18 + [24] * 2),
        'base': (128, 24, [4] * 2 + [8] * 2 + [16] * 18 + [32] * 2),
    },
}  # fmt: skip


def test_heads_of_a_named_arch():
    """They leave no trace in parameters and their count."""
    for cls, name in each([(cls, name) for cls, names in NAMED.items() for name in names]):
        dims, depth, heads = NAMED[cls][name]
        with meta_device():
            model = cls(name)
        assert (model.embed_dims, model.num_layers) == (dims, depth)
        found = [layer.attention.num_heads for layer in model.all_layers]
        assert found == (heads if isinstance(heads, list) else [heads] * depth)
