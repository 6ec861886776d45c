"""Parameters and FLOPs of models."""

import itertools
import math

import paper_costs
import pytest
import torch
import torch.nn.functional as F
from config_helpers import MINI, build, find, load
from each import each
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import nn
from torch.overrides import TorchFunctionMode

from mmlape.lab.analysis.cost import _attention_flops, _Counter, input_shape, model_cost
from mmlape.projects import MultiScaleDeformableAttention


class Products(TorchFunctionMode):
    """Counts the multiply-adds of the products that a model computes, by the shapes of their results."""

    def __init__(self):
        super().__init__()
        self.total, self.unknown = 0, set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = getattr(function, '__name__', '')
        if name in ('linear', 'matmul', '__matmul__', 'bmm'):
            first = args[0]
            self.total += out.numel() * first.shape[-1]
        elif name == 'conv2d':
            self.total += out.numel() * math.prod(args[1].shape[1:])
        elif name == 'conv_transpose2d':
            self.total += args[0].numel() * math.prod(args[1].shape[1:])
        elif name == 'scaled_dot_product_attention':
            query, key, value = args[:3]
            self.total += math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])
        elif name == 'multi_head_attention_forward':  # (N, B, C); four maps and two products
            (queries, batch, dims), keys = args[0].shape, args[1].shape[0]
            self.total += batch * dims * ((2 * queries + 2 * keys) * dims + 2 * queries * keys)
        elif name in ('einsum', 'baddbmm', 'addmm'):
            self.unknown.add(name)
        return out


def counted(part, *args):
    """Return the result of a part of a model, and the multiply-adds of its products."""
    with torch.no_grad(), Products() as products:
        out = part(*args)
    assert not products.unknown
    return out, products.total


PRODUCTS = (
    'deit-mini_1xb32-5e_mini-digits',
    'deit-mini-irpe-product-k_1xb32-5e_mini-digits',
    'deit-mini-dpn_1xb32-5e_mini-digits',
    'segmenter_deit-mini-lape_1xb16-250i_mini-ade',
    'linear_deit-mini-dpn_1xb8-100i_mini-ade',
)


def test_cost_is_that_of_the_products_of_a_forward_pass():
    """Of images that are not square: real tensors go through a model, and each product of two tensors is counted."""
    models = {path.stem: revert_sync_batchnorm(build(load(path))).eval() for path in MINI if path.stem in PRODUCTS}
    for name, shape in each(itertools.product(PRODUCTS, ((64, 96), (112, 48)))):
        model = models[name]
        found = {part.name: part for part in model_cost(model, shape)}
        x, backbone = counted(model.backbone, torch.randn(1, 3, *shape))
        head = 'head' if hasattr(model, 'head') else 'decode_head'
        _, of_head = counted(getattr(model, head), x)
        assert (found['backbone'].flops, found[head].flops) == (backbone, of_head) and of_head > 0
        parameters = sum(parameter.numel() for parameter in getattr(model, head).parameters())
        assert found[head].params == parameters


@pytest.mark.release
def test_detector_counts_its_parts():
    """The box head is two linear maps on 1000 boxes; LaPE changes no number of a backbone."""
    cfg = load(find('mask_rcnn', 'tiny'))
    assert input_shape(cfg) == (1024, 1024)
    cost = {part.name: part for part in model_cost(build(cfg), (256, 256))}
    box_head = 256 * 49 * 1024 + 1024 * 1024 + 1024 * (81 + 80 * 4)
    mask_head = 14 * 14 * (4 * 256 * 256 * 9 + 256 * 256 * 4) + 28 * 28 * 256 * 80
    assert cost['roi_head'].flops == 1000 * box_head + 100 * mask_head
    assert sum(part.params for part in cost.values()) == 28_068_512
    models = (build(load(find('segmenter', 'tiny', variant))) for variant in ('', '-lape'))
    default, lape = ([(part.name, part.flops) for part in model_cost(model, (64, 64))] for model in models)
    assert default == lape


def test_mask2formers_attention_is_counted():
    """As the adapter's: four maps, and five multiply-adds a sample and channel."""
    attention = MultiScaleDeformableAttention(32, 4, 2, 3, batch_first=True)
    query, cells = torch.zeros(1, 7, 32), torch.zeros(1, 6 + 4, 32)
    with _Counter(attention) as counter:
        attention(query, value=cells, reference_points=torch.rand(1, 7, 2, 2), spatial_shapes=((2, 3), (2, 2)))
    maps = 7 * 32 * (2 * 24 + 24 + 32) + 10 * 32 * 32
    assert counter.multiply_adds() == maps + 5 * 2 * 3 * 7 * 32


def test_deformable_attention_is_counted():
    """A point more costs its samples, five multiply-adds a channel, and the linear maps that place and weigh it."""
    adapter = dict(
        type='mmlape.ViTAdapter', arch=dict(embed_dims=48, num_layers=4, num_heads=4, feedforward_channels=96)
    )
    head = dict(type='LinearClsHead', num_classes=10, in_channels=48)
    init_default_scope('mmpretrain')

    def flops(points: int) -> int:
        backbone = dict(adapter, n_points=points, conv_inplane=8)
        model = MODELS.build(
            dict(type='ImageClassifier', backbone=backbone, neck=dict(type='GlobalAveragePooling'), head=head)
        )
        return model_cost(model, (64, 128))[0].flops

    tokens, cells, heads, d = 4 * 8, 8 * 16 + 4 * 8 + 2 * 4, 6, 48
    samples = 4 * tokens * 3 + 6 * cells  # a point in 4 injectors (3 levels each) and 6 extractors
    assert flops(4) - flops(2) == 2 * samples * (5 * d + 3 * d * heads)


def test_attention_of_few_queries_over_many_keys_is_counted():
    """Cross-attention, CeiT's class attention: queries times keys, the widths of keys and values."""
    q, k, v = (torch.zeros(2, 4, length, width) for length, width in ((3, 8), (5, 8), (5, 8)))
    with _Counter(nn.Identity()) as counter:
        F.scaled_dot_product_attention(q, k, v)
    assert counter.multiply_adds() == 2 * 4 * 3 * 5 * (8 + 8)
    assert _attention_flops((2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 6)) == 2 * 2 * 4 * 3 * 5 * (8 + 6)


@pytest.mark.release
def test_the_papers_tables_of_cost(capsys, monkeypatch):
    """Parameters are LaPE's to all digits; what iRPE adds to multiply-adds is the paper's where it counts alike."""
    monkeypatch.setattr(paper_costs, 'SIZES', ('tiny',))
    monkeypatch.setattr(paper_costs, 'MACS', [row for row in paper_costs.MACS if row[0] == 'tiny'])
    paper_costs.main(['--rounds', '0'])
    rows = [
        line.strip('| ').split(' | ') for line in capsys.readouterr().out.splitlines() if line.startswith('| DeiT')
    ]
    assert rows[0][1] == rows[0][3] == '5.717 / 5.722' and rows[0][2] == '+0.08 % (recomputed: +0.09 %)'
    paper, ours = (float(text.removesuffix(' %')) for text in (rows[2][3], rows[2][5]))
    assert paper == 1.82 and abs(paper - ours) <= 0.02
