"""What every backbone promises: any size, forms of the output, recomputed and frozen layers, every encoding."""

import math

import pytest
import torch
import torch.nn.functional as F
from each import each
from model_helpers import meta_device, randomise
from test_tools import FAMILIES, flat
from torch import nn

from mmlape.errors import ConfigError
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models import SwinTransformer, VisionTransformer, ViTAdapter
from mmlape.projects import CeiT, CompactTransformer, T2TViT

PADDED_TO = {'adapter': 32, 'timm adapter': 32, 'pyramid': 16, 'compact': None}
"""To which multiple a model pads its images by zeros at the end, if not that of its patches; CCT's overlap."""
OURS = [name for name in FAMILIES if 'timm' not in name]
OUT_TYPES = [name for name in FAMILIES if name not in ('adapter', 'pyramid', 'timm adapter', 'distilled')]


def maps(name: str, **options) -> torch.nn.Module:
    """Build a family whose outputs are maps."""
    return FAMILIES[name](**({} if name not in OUT_TYPES else dict(out_type='featmap')), **options).eval()


class Nothing(nn.Module):
    def forward(self, x):
        return 0 * x


@torch.no_grad()
def test_any_size_from_one_patch_on():
    """Maps have a cell for each begun stride; what is missing at the right and the bottom is zero."""
    for name in each(FAMILIES):
        model = randomise(maps(name))
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
            step = PADDED_TO.get(name, side)
            padded = flat(model(F.pad(image, (0, -columns % step, 0, -rows % step))))
            for out, other in zip(outs, padded, strict=True):
                assert out.isfinite().all()
                same = other[..., : out.shape[-2], : out.shape[-1]] if out.ndim > 2 else other
                torch.testing.assert_close(out, same)


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


def test_parameters_are_as_many_as_the_public_codes():
    """T2T-ViT's frozen parameters, 54,528 in all, are buffers here."""
    for cls, arch, options, count in each(COUNTS):
        with meta_device():
            model = cls(arch, **options)
        dims = model.dims_of(3) if cls is SwinTransformer else model.embed_dims
        total = sum(p.numel() for p in model.parameters()) + 1000 * (dims + 1) + 54_528 * (cls is T2TViT)
        assert total == count
    for arch, count in (('deit-tiny', 7_966_640), ('deit-small', 27_503_888)):
        with meta_device():
            model = ViTAdapter(arch, interaction_indexes=[[0, 2], [3, 5], [6, 8], [9, 11]])
        assert sum(p.numel() for p in model.parameters()) == count
