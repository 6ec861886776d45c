"""Converting between layouts, by enumeration: what is written computes the same, all else is refused by its name."""

import re
from functools import partial
from itertools import product

import pytest
import torch
from checkpoint_helpers import built_of, run_file
from model_helpers import placements, randomise
from torch import nn

from mmlape.checkpoint import load_backbone, read_checkpoint, state_dict_of
from mmlape.checkpoint.converting import convert, inspect
from mmlape.errors import CheckpointError, ConfigError
from mmlape.models import DistilledVisionTransformer, SwinTransformer, VisionTransformer
from mmlape.models.layers.patch_embed import PATCH_NORMS
from mmlape.models.position import PE_NORMS, AbsolutePosition, AttentionPosition, joinings
from mmlape.models.position import kinds as registered
from mmlape.registry import JOININGS, POSITION_ENCODINGS

D, SIDE, PATCH = 64, 16, 4
IMAGE = torch.randn(2, 3, SIDE, SIDE, dtype=torch.float64)
TANH, QUICK = dict(type='GELU', approximate='tanh'), dict(type='mmpretrain.QuickGELU')
OTHER_EPS = dict(type='LN', eps=1e-2)
TABLES = [kind.name for kind in registered(AbsolutePosition)]


def kinds() -> list[str]:
    POSITION_ENCODINGS.import_from_location()
    return list(POSITION_ENCODINGS.module_dict)


def vit(cls=VisionTransformer, num_heads=1, **options) -> VisionTransformer:
    arch = dict(embed_dims=D, num_layers=1, num_heads=num_heads, feedforward_channels=D)
    if isinstance(options.get('norm_cfg'), dict):
        options['norm_cfg'] = dict(options['norm_cfg'])
    model = randomise(cls(arch, SIDE, PATCH, **{'out_type': 'raw', **options})).double()
    if 'posemb' in options.get('patch_norm', '') and not options.pop('stem_bias', False):
        nn.init.zeros_(model.patch_embed.proj.bias)
    return model


def positions():
    """Every absolute kind with every joining; the others alone and beside a table, as usual and with LaPE."""
    for kind, joining in product(kinds(), JOININGS.module_dict):
        absolute = issubclass(POSITION_ENCODINGS.get(kind), AbsolutePosition)
        if absolute or joining in ('default', 'lape'):
            pooled = dict(with_cls_token=False) if joinings()[joining].patches_only else {}
            yield dict(pe_type=kind, pe_joining=joining, **pooled)
        if not absolute and joining in ('default', 'lape'):
            yield dict(pe_type=['learnable', kind], pe_joining=joining)


SWITCHES = [
    dict(pe_type='none'),
    *(dict(pe_joining='lape', pe_norm=norm) for norm in PE_NORMS),
    *(dict(patch_norm=norm) for norm in PATCH_NORMS),
    *(dict(norm_placement=placement) for placement in placements()),
    dict(qkv_bias=False),
    dict(layer_scale_init_value=0.1),
    dict(with_cls_token=False),
    dict(num_registers=2),
    dict(num_registers=2, with_cls_token=False),
    dict(with_prefix_pe=False),
    dict(num_registers=2, with_prefix_pe=False),
    dict(final_norm=False),
    dict(act_cfg=TANH),
    dict(act_cfg=QUICK),
    dict(norm_cfg=OTHER_EPS),
    dict(with_cls_token=False, window_attn=True, window_size=2),
    dict(num_heads=2),
    dict(cls=DistilledVisionTransformer),
    dict(cls=DistilledVisionTransformer, num_registers=2),
    dict(cls=DistilledVisionTransformer, with_prefix_pe=False),
]


def refusal(path, to) -> str | None:
    """Return what a layout has no place for; None if it was written."""
    try:
        convert(path, path.parent / 'b.pth', to, overwrite=True)
    except CheckpointError as error:
        return re.search(rf'the {to} layout has no place for (.*); use --to mmlape', str(error))[1]
    return None


def timms(state, options):
    """Return timm's own model with a file's weights, built after their names alone, and the options it takes."""
    import timm.models.deit
    import timm.models.vision_transformer as theirs

    act = options.get('act_cfg', {})
    norm = partial(nn.LayerNorm, eps=options.get('norm_cfg', {}).get('eps', 1e-6))
    has = lambda name: name in state  # noqa: E731
    tokens = sum(state[name].shape[1] for name in ('cls_token', 'dist_token', 'reg_token') if has(name))
    arguments = dict(
        img_size=SIDE, patch_size=PATCH, num_classes=0, global_pool='', embed_dim=D, depth=1, mlp_ratio=1,
        num_heads=options.get('num_heads', 1), qkv_bias=has('blocks.0.attn.qkv.bias'), norm_layer=norm,
        init_values=1.0 if has('blocks.0.ls1.gamma') else None, class_token=has('cls_token'),
        no_embed_class=bool(tokens) and has('pos_embed') and state['pos_embed'].shape[1] == (SIDE // PATCH) ** 2,
        reg_tokens=state['reg_token'].shape[1] if has('reg_token') else 0, pre_norm=has('norm_pre.weight'),
        pos_embed='learn' if has('pos_embed') else 'none', final_norm=has('norm.weight'),
        embed_norm_layer=norm if has('patch_embed.norm.weight') else None,
        scale_attn_norm=has('blocks.0.attn.norm.weight'), scale_mlp_norm=has('blocks.0.mlp.norm.weight'),
        act_layer=QuickGELU if 'Quick' in str(act) else partial(nn.GELU, approximate=act.get('approximate', 'none')),
    )  # fmt: skip
    if has('dist_token'):
        del arguments['global_pool'], arguments['class_token']
        return timm.models.deit.VisionTransformerDistilled(**arguments)
    return theirs.VisionTransformer(**arguments)


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


def features_of_timm(path, options):
    state = torch.load(path, weights_only=True)
    model = timms(state, options).double().eval()
    model.load_state_dict(state, strict=True)
    return model.forward_features(IMAGE)


def features_of_ours(path, options):
    """Load a file, without its record, into the model that it was written from."""
    torch.save(state_dict_of(read_checkpoint(path), path), path)
    model = vit(**options)
    load_backbone(model, str(path))
    return features(model.eval())


def features(model):
    with torch.no_grad():
        return model(IMAGE)[0]


def outcome(tmp_path, to, options) -> bool | None:
    """Convert a model; return whether it was written, None if there is no such model.

    What is written has the same features, what is not is named.
    """
    try:
        source = vit(**options)
    except ConfigError:
        return None
    run_file(tmp_path / 'a.pth', source)
    reasons = refusal(tmp_path / 'a.pth', to)
    if reasons is None:
        again = [features_of_timm(tmp_path / 'b.pth', options)] if to == 'timm' else []
        for one in (*again, features_of_ours(tmp_path / 'b.pth', options)):
            torch.testing.assert_close(one, features(source), atol=1e-6, rtol=0, msg=f'{to} {options}')
        return True
    named = set(re.findall(r'(\w+)=', reasons))
    assert named <= {*options}, (options, reasons)
    assert bool(named) is (reasons not in CLASHES), (options, reasons)
    return False


CLASHES = ('a dist_token beside registers or without a row of the PE', 'cls_token, dist_token', 'dist_token')
ABSOLUTE = [(kind, 'default') for kind in TABLES]
POSITIONS = {
    'timm': ABSOLUTE,
    'lape': [
        *product(TABLES, ('default', 'shared', 'lape')),
        ('learnable', 'unshared'),
        *product(('rpe',), ('default', 'lape')),
    ],
}
"""What each layout has a place for, after its public code."""


@pytest.mark.parametrize('to', POSITIONS)
def test_every_position_encoding_is_written_or_named(tmp_path, to):
    written = [
        (options['pe_type'], options['pe_joining']) for options in positions() if outcome(tmp_path, to, options)
    ]
    assert sorted(written) == sorted(POSITIONS[to])


SAME = [dict(patch_norm='none'), dict(norm_placement='pre')]
DISTILLED = dict(cls=DistilledVisionTransformer)
WRITTEN = {
    'timm': [
        *SAME, DISTILLED, dict(pe_type='none'), dict(patch_norm='post'), dict(patch_norm='post-posemb'),
        dict(norm_placement='sub-ln'), dict(qkv_bias=False), dict(layer_scale_init_value=0.1),
        dict(with_cls_token=False), dict(num_registers=2), dict(num_registers=2, with_cls_token=False),
        dict(with_prefix_pe=False), dict(num_registers=2, with_prefix_pe=False), dict(final_norm=False),
        dict(act_cfg=TANH), dict(act_cfg=QUICK), dict(norm_cfg=OTHER_EPS), dict(num_heads=2),
    ],
    'lape': [
        *SAME, DISTILLED, dict(pe_joining='lape', pe_norm='layernorm'), dict(qkv_bias=False),
        dict(norm_cfg=OTHER_EPS), dict(num_heads=2),
    ],
}  # fmt: skip


@pytest.mark.parametrize('to', WRITTEN)
def test_every_switch_is_written_or_named(tmp_path, to):
    written = [options for options in SWITCHES if outcome(tmp_path, to, options)]
    assert sorted(map(str, written)) == sorted(map(str, WRITTEN[to]))


def test_our_own_layout_has_a_place_for_everything(tmp_path):
    """What ``inspect`` prints of the file builds the model again."""
    usual = [one for one in positions() if one['pe_joining'] == 'default' or one['pe_type'] == 'learnable']
    for options in [*usual, *SWITCHES]:
        try:
            source = vit(**options)
        except ConfigError:
            continue
        run_file(tmp_path / 'a.pth', source)
        convert(tmp_path / 'a.pth', tmp_path / 'b.pth', 'mmlape', overwrite=True)
        same = features(built_of(inspect(tmp_path / 'b.pth')).double().eval())
        torch.testing.assert_close(same, features(source), atol=1e-6, rtol=0, msg=str(options))


SWIN = dict(embed_dims=8, depths=(1, 1, 2, 1), num_heads=(1, 1, 2, 2))
LARGE = torch.randn(1, 3, 64, 64, dtype=torch.float64)
SWINS = [
    *(dict(pe_type=kind) for kind in (*TABLES, 'rpe', 'irpe', 'rope', 'alibi2d', 'cpe', 'none')),
    *(dict(pe_type=[kind, 'rpe']) for kind in ('learnable', 'sine', 'rope', 'cpe', 'irpe')),
    *(dict(pe_type=['learnable', 'rpe'], pe_joining=joining) for joining in ('shared', 'lape', 'lape-shared')),
    dict(pe_type='rpe', pe_joining='lape'),
    dict(pe_type=['learnable', 'rpe'], pe_joining='shared', pe_hierarchy='stage'),
    *(dict(patch_norm=norm) for norm in ('none', 'post', 'dual', 'pre', 'rms', 'no-learnable', 'learnable-only')),
    dict(qkv_bias=False),
    dict(norm_cfg=OTHER_EPS),
    dict(out_type='featmap', out_indices=(0, 3)),
    dict(out_type='featmap', out_indices=(0,)),
    dict(window_size=4),  # 2 in the last stage, whose map is no larger
    dict(window_size=(2, 2, 4, 2)),
    dict(pad_small_map=True),
]
SHARED_SWIN = [
    dict(pe_type='rpe'),
    dict(patch_norm='post'),
    dict(qkv_bias=False),
    dict(norm_cfg=OTHER_EPS),
    dict(window_size=4),
]
PLAIN_SWIN = [*SHARED_SWIN, dict(window_size=(2, 2, 4, 2))]
MORE_SWIN = [
    *SHARED_SWIN,
    dict(pad_small_map=True),
    dict(patch_norm='none'),
    dict(pe_type=['learnable', 'rpe']),
    dict(pe_type=['sine', 'rpe']),
    *(one for one in SWINS if 'out_indices' in one),
]


def swin(**options) -> SwinTransformer:
    return randomise(SwinTransformer(SWIN, 64, **{'window_size': 2, **options})).double()


@pytest.mark.parametrize(
    ('to', 'has'),
    [
        ('swin', MORE_SWIN),
        pytest.param('timm', PLAIN_SWIN, marks=pytest.mark.release),
        pytest.param('mmpretrain', MORE_SWIN, marks=pytest.mark.release),
    ],
)
def test_every_swin_is_written_or_named(tmp_path, to, has):
    written = []
    for options in SWINS:
        run_file(tmp_path / 'a.pth', source := swin(**options))
        reasons = refusal(tmp_path / 'a.pth', to)
        if reasons:
            assert set(re.findall(r'(\w+)=', reasons)) <= options.keys(), (options, reasons)
            continue
        written.append(options)
        torch.save(state_dict_of(read_checkpoint(tmp_path / 'b.pth'), ''), tmp_path / 'b.pth')
        peer = SwinTransformer(SWIN, 64, **{'window_size': 2, **options})
        load_backbone(peer, str(tmp_path / 'b.pth'))
        peer.double().eval()
        with torch.no_grad():
            for one, two in zip(source(LARGE), peer(LARGE), strict=True):
                torch.testing.assert_close(two, one, atol=1e-6, rtol=0, msg=f'{to} {options}')
    assert sorted(map(str, written)) == sorted(map(str, has))


def test_a_kind_of_a_user_is_named_by_its_contract(tmp_path):
    """Whatever is registered, without a change in the package; and a tensor that no argument tells."""

    class Slope(AttentionPosition):
        pass

    POSITION_ENCODINGS.register_module('slope', module=Slope)
    try:
        path = run_file(tmp_path / 'a.pth', vit(pe_type=['learnable', 'slope']))
        assert refusal(tmp_path / 'a.pth', 'timm') == "pe_type=['learnable', 'slope']"
    finally:
        POSITION_ENCODINGS.module_dict.pop('slope')
    assert refusal(tmp_path / 'a.pth', 'timm') == "pe_type=['learnable', 'slope']"
    content = torch.load(path, weights_only=True)
    content['state_dict']['blocks.0.attn.temperature'] = torch.ones(1)
    content['meta'] = {}
    torch.save(content, path)
    assert refusal(tmp_path / 'a.pth', 'lape') == 'blocks.*.attn.temperature'


@pytest.mark.parametrize(
    ('to', 'out_type', 'heads', 'written'),
    [
        ('timm', 'avg_featmap', ['head.fc'], {'head.weight'}),
        ('lape', 'cls_token', ['head.layers.head'], {'head.weight'}),
        ('timm', 'cls_token', ['head.layers.pre_logits', 'head.layers.head'], set()),
        ('lape', 'avg_featmap', ['head.fc'], None),
    ],
)
def test_heads_are_written_left_out_or_refused(tmp_path, to, out_type, heads, written):
    """A layout may have none, or one that reads another pooling of the tokens."""
    model = nn.ModuleDict(dict(backbone=vit(out_type=out_type)))
    path = run_file(tmp_path / 'a.pth', model)
    content = torch.load(path, weights_only=True)
    content['state_dict'] |= {f'{name}.weight': torch.randn(3, D) for name in heads}
    torch.save(content, path)
    if written is None:
        assert "out_type='avg_featmap' beside a class token" in refusal(tmp_path / 'a.pth', to)
        return
    left = convert(path, tmp_path / 'b.pth', to)
    assert len(left) == len(heads) - len(written)
    names = state_dict_of(read_checkpoint(tmp_path / 'b.pth'), '')
    assert {name for name in names if 'head' in name or 'logits' in name} == written
