"""PVG and MPVG: the equations of four families in plain functions, and the papers' numbers of parameters."""

import copy

import pytest
import timm
import torch
import torch.nn.functional as F
from each import each
from model_helpers import ARCH, CEIT_ARCH, SWIN_ARCH, T2T_ARCH, meta_device, randomise

import mmlape
from mmlape.checkpoint import load_backbone
from mmlape.models import SwinTransformer, VisionTransformer, ViTAdapter
from mmlape.models.position import joinings
from mmlape.models.swin.layers import merge_cells
from mmlape.projects import CeiT, CompactTransformer, T2TViT

JOININGS = [name for name, joining in joinings().items() if joining.patches_only]
POOLED = dict(with_cls_token=False, out_type='avg_featmap')
COMPACT_ARCH = dict(ARCH, tokenizer=dict(type='patch', patch_size=8), pooling='sequence_pool')
SWIN = dict(arch=SWIN_ARCH, img_size=32, window_size=8, pe_type=['learnable', 'rpe'], out_type='raw')
DEEP = dict(ARCH, num_layers=3)
MODELS = {
    'T2T-ViT': lambda **kw: T2TViT(T2T_ARCH, 48, **{**POOLED, **kw}),
    'CeiT': lambda **kw: CeiT(CEIT_ARCH, 48, **{**POOLED, 'out_type': 'layer_pool', **kw}),
    'CVT': lambda **kw: CompactTransformer(dict(COMPACT_ARCH, num_layers=3), 32, **kw),
    'Swin': lambda **kw: SwinTransformer(**{**SWIN, **kw}),
}


class Written:
    """The layers of the four families once more, in functions over a dict of parameters."""

    def __init__(self, model, joining):
        self.p = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self.eps = next(m.eps for m in model.modules() if isinstance(m, torch.nn.LayerNorm))
        self.model, self.joining = model, joining

    def ln(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.p[f'{name}.weight'], self.p[f'{name}.bias'], self.eps)

    def linear(self, x, name):
        return F.linear(x, self.p[f'{name}.weight'], self.p.get(f'{name}.bias'))

    def attend(self, x, name, heads, bias=0.0):
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in self.linear(x, f'{name}.qkv').chunk(3, -1))
        weights = (q @ k.mT / q.shape[-1] ** 0.5 + bias).softmax(-1)
        return self.linear((weights @ v).transpose(1, 2).flatten(2), f'{name}.proj')

    def mlp(self, x, name):
        return self.linear(F.gelu(self.linear(x, f'{name}.fc1')), f'{name}.fc2')

    def batch_norm(self, x, name):
        p = self.p
        centred = (x - p[f'{name}.running_mean']) / (p[f'{name}.running_var'] + 1e-5).sqrt()
        return centred * p[f'{name}.weight'] + p[f'{name}.bias']

    def leff(self, x, name, side):
        conv = lambda x, i: F.linear(x, self.p[f'{name}.conv{i}.weight'][..., 0, 0], self.p[f'{name}.conv{i}.bias'])  # noqa: E731
        x = F.gelu(self.batch_norm(conv(x, 1), f'{name}.bn1'))
        maps, kernel = x.mT.unflatten(2, (side, side)), self.p[f'{name}.conv2.weight']
        x = F.conv2d(maps, kernel, self.p[f'{name}.conv2.bias'], padding=1, groups=len(kernel)).flatten(2).mT
        return self.batch_norm(conv(F.gelu(self.batch_norm(x, f'{name}.bn2')), 3), f'{name}.bn3')

    def seen(self, x, w, norm, number):
        """LN(x) in the first layer, then LN(x) + w_l; and w_l."""
        if number == 0:
            return self.ln(x, norm), w
        w = self.ln(w, norm.rpartition('.')[0] + '.pe_norm')
        return self.ln(x, norm) + w, w

    def last(self, x, w, norm='norm'):
        return self.ln(x, norm) + (self.ln(w, 'pe_norm') if self.joining == 'mpvg' else 0)

    def vit(self, x, table, heads):
        w = table
        x = x + w
        for number in range(3):
            name = f'blocks.{number}'
            h, w = self.seen(x, w, f'{name}.norm1', number)
            x = x + self.attend(h, f'{name}.attn', heads)
            x = x + self.mlp(self.ln(x, f'{name}.norm2'), f'{name}.mlp')
        return self.last(x, table).mean(1)

    def cvt(self, x, table, heads):
        w = table
        x = x + w
        for number in range(3):
            name = f'blocks.{number}'
            h, w = self.seen(x, w, f'{name}.pre_norm', number)
            x = self.ln(x + self.attend(h, f'{name}.self_attn', heads), f'{name}.norm1')
            x = x + self.linear(F.gelu(self.linear(x, f'{name}.linear1')), f'{name}.linear2')
        x = self.last(x, table)
        return (self.linear(x, 'attention_pool').softmax(1) * x).sum(1)

    def ceit(self, x, table, heads):
        w = table
        x, pooled = x + w, []
        for number in range(3):
            name = f'blocks.{number}'
            h, w = self.seen(x, w, f'{name}.norm1', number)
            x = x + self.attend(h, f'{name}.attn', heads)
            x = x + self.leff(self.ln(x, f'{name}.norm2'), f'{name}.leff', 3)
            pooled.append(x.mean(1))
        z = torch.stack(pooled, 1) + self.p['pos_layer_embed']
        z = (z + self.attend(self.ln(z, 'lca.norm1'), 'lca.attn', heads))[:, -1:]
        z = z + self.mlp(self.ln(z, 'lca.norm2'), 'lca.feedforward')
        return self.last(z.expand(-1, 9, -1), table).mean(1)

    def swin(self, x, table):
        """Windows that are as large as the maps, without a shift: global attention."""
        w, side = table, 8
        x = x + w
        for stage, heads in enumerate((2, 4)):
            received = w
            cells = torch.cartesian_prod(torch.arange(side), torch.arange(side))
            offsets = cells[:, None] - cells + side - 1
            rows = offsets[..., 0] * (2 * side - 1) + offsets[..., 1]
            for number in range(2):
                name = f'layers.{stage}.blocks.{number}'
                bias = self.p[f'{name}.attn.relative_position_bias_table'][rows].permute(2, 0, 1)
                h, w = self.seen(x, w, f'{name}.norm1', number + 1)  # the first layer joins as well
                x = x + self.attend(h, f'{name}.attn', heads, bias)
                x = x + self.mlp(self.ln(x, f'{name}.norm2'), f'{name}.mlp')
            if stage == 0:
                merge = lambda t: self.linear(  # noqa: E731
                    self.ln(merge_cells(t, (8, 8)), 'layers.0.downsample.norm'), 'layers.0.downsample.reduction'
                )
                x, w, side = merge(x), merge(w), 4
        return self.last(x, received, 'norm1')


def written(family, model, joining, image):
    assert joining in ('pvg', 'mpvg'), f'{joining}: write its equation into Written'
    again = Written(model, joining)
    stem = dict(CVT='tokenizer', CeiT='i2t', Swin='patch_embed').get(family, 'tokens_to_token')
    x = getattr(model, stem)(image)[0]
    table = getattr(model, model.table_name)
    if family == 'Swin':
        return again.swin(x, table)
    run = dict(CVT=again.cvt, CeiT=again.ceit).get(family, again.vit)
    return run(x, table, model.arch['num_heads'])


@pytest.mark.parametrize('joining', JOININGS)
@pytest.mark.parametrize('family', MODELS)
def test_values_and_gradients_are_the_papers_equations(family, joining):
    torch.manual_seed(0)
    model = randomise(MODELS[family](pe_joining=joining)).double()
    side = 48 if family in ('T2T-ViT', 'CeiT') else 32
    image = torch.randn(2, 3, side, side, dtype=torch.float64)
    found, expected = model(image)[0], written(family, model, joining, image)
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=0)
    weights, names = torch.randn_like(found), [n for n, p in model.named_parameters()]
    mine, theirs = (torch.autograd.grad((out * weights).sum(), list(model.parameters())) for out in (found, expected))
    for name, one, other in zip(names, mine, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9, msg=lambda text, name=name: f'{name}: {text}')
        assert one.any() or 'qkv.bias' in name, f'{name} has no gradient'


@pytest.mark.parametrize('joining', JOININGS)
@pytest.mark.parametrize('size', [(32, 32), (24, 40)])
def test_timms_model_is_ours(joining, size):
    """Names and values, on the grid of the table; timm has no class token, and its last norm before the pooling."""
    torch.manual_seed(0)
    options = dict(img_size=size, patch_size=8, embed_dim=24, depth=3, num_heads=3, mlp_ratio=2, num_classes=0)
    theirs = timm.models.VisionTransformer(**options, class_token=False, global_pool='avg', fc_norm=False)
    assert mmlape.add_lape(theirs, joining) is theirs
    ours = VisionTransformer(DEEP, size, 8, pe_joining=joining, **POOLED)
    assert set(theirs.state_dict()) == set(ours.state_dict())
    ours.load_state_dict(randomise(theirs).state_dict())
    image = torch.randn(2, 3, *size)
    torch.testing.assert_close(ours.eval()(image)[0], theirs(image), atol=1e-5, rtol=1e-5)
    tokens = theirs.forward_intermediates(image, indices=[2], norm=True, output_fmt='NLC', intermediates_only=True)
    ours.out_type = 'raw'
    torch.testing.assert_close(ours(image)[0], tokens[0], atol=1e-5, rtol=1e-5)
    copied = copy.deepcopy(theirs)
    assert torch.equal(copied(image), theirs(image))


def test_patch_dropout_keeps_the_rows_of_the_last_norm():
    """With zero tokens, what is left behind the last norm is the normed PE of the kept patches."""
    options = dict(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3, num_classes=0)
    model = timm.models.VisionTransformer(
        **options, class_token=False, global_pool='avg', fc_norm=False, patch_drop_rate=0.5
    )
    randomise(mmlape.add_lape(model, 'mpvg')).train()
    torch.nn.init.zeros_(model.norm.weight)
    torch.nn.init.zeros_(model.norm.bias)
    found, rows = model.forward_features(torch.randn(2, 3, 32, 32)), model.pe_norm(model.pos_embed)[0]
    assert found.shape == (2, 8, 24)
    distance = (found[:, :, None] - rows).abs().amax(-1)  # (B, 8, 16)
    assert (distance.amin(-1) < 1e-6).all() and not torch.equal(found[0], found[1])


TABLE_1 = {  # millions of parameters with a classifier: PVG, MPVG; of the others see test_every_backbone.py
    'DeiT-B': (VisionTransformer, dict(POOLED, arch='deit-base'), 1000, (86.583, 86.584)),
    'DeiT-S': (VisionTransformer, dict(POOLED, arch='deit-small'), 1000, (22.058, 22.059)),
    'DeiT-Ti': (VisionTransformer, dict(POOLED, arch='deit-tiny'), 1000, (5.721, 5.721)),
    'T2T-7': (T2TViT, POOLED, 1000, (4.312, 4.313)),
    'CeiT-Ti': (CeiT, POOLED | dict(out_type='layer_pool'), 1000, (6.361, 6.361)),
    'Swin-T': (SwinTransformer, dict(pe_type=['learnable', 'rpe']), 1000, (28.598, 28.599)),
    'ViT-Lite': (CompactTransformer, dict(arch='cvt-7/4', out_type='avg_featmap'), 100, (3.742, 3.743)),
}


def test_parameters_are_as_many_as_the_papers():
    """T2T-ViT's sinusoids and random features are parameters there, and buffers here."""
    for name in each(TABLE_1):
        build, options, classes, paper = TABLE_1[name]
        for joining, figure in zip(JOININGS, paper, strict=True):
            with meta_device():
                model = build(**options, pe_joining=joining)
            fixed = sum(b.numel() for n, b in model.named_buffers() if name == 'T2T-7')
            dims = model.dims_of(3) if name == 'Swin-T' else model.embed_dims
            millions = (sum(p.numel() for p in model.parameters()) + fixed + classes * (dims + 1)) / 1e6
            assert abs(millions - figure) < 0.001, (joining, millions, figure)


# without a last norm


def adapter(joining, **options):
    return ViTAdapter(DEEP, 32, conv_inplane=8, deform_num_heads=3, patch_size=16, pe_joining=joining, **options)


def test_an_adapter_takes_mpvgs_weights_without_the_norm_that_it_has_no_place_for(tmp_path):
    source = randomise(VisionTransformer(DEEP, 32, 16, pe_joining='mpvg', **POOLED))
    file = tmp_path / 'mpvg.pth'
    torch.save({'state_dict': source.state_dict()}, file)
    model = adapter('mpvg', layer_scale_init_value=0.0)
    assert model.pe_norm is None and model.pos_embed.shape == (1, 4, 24)
    report = load_backbone(model, str(file))
    assert sorted(report.dropped) == ['norm.bias', 'norm.weight', 'pe_norm.bias', 'pe_norm.weight']
    image = torch.randn(2, 3, 32, 32)
    x, pe, hw = model.eval().embed(image)
    x, _ = model.run_layers(x, pe, hw, 0, 3)
    source.out_type = 'raw'
    expected = source.position.joining.finish(x, pe, source.norm, source.pe_norm)
    torch.testing.assert_close(source(image)[0], expected)
    assert all(p.shape[-2:] == (32 // s, 32 // s) for p, s in zip(model(image), model.strides))
