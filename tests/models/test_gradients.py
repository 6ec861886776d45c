"""Gradients of every model that the package registers, against finite differences in float64.

Kernels choose by the layout of their input: torch's batch norm has computed wrong gradients without an error for maps
of one image, or of one column, whose strides are those of tokens. So inputs come in every layout.
"""

import sys
from functools import partial

import pytest
import tiny
import torch
from each import each
from gradient_checks import TOLERANCE, projected, relative_error
from mask2former_helpers import ATTENTION, DECODER, config
from mask2former_helpers import head as mask2former_head
from mmdet.structures import DetDataSample
from mmengine.model import revert_sync_batchnorm
from mmseg.structures import SegDataSample
from model_helpers import randomise, tiny_detr
from test_every_backbone import OUT_TYPES, maps
from test_tools import FAMILIES
from torch import nn

from mmlape.models import grid
from mmlape.projects import (
    BNHead,
    ChannelMapperWithPooling,
    ExtraAttention,
    MSDeformAttnPixelDecoder,
    MultiScaleDeformableAttention,
    PlainMaskHead,
    TextTransformer,
)
from mmlape.registry import MODELS

BACKBONES = FAMILIES | {
    't2t, transformer tokens': partial(FAMILIES['t2t'], tokens_type='transformer', pe_type='learnable'),
    'pyramid, BEiT': partial(FAMILIES['pyramid'], norm_maps=False, up_norm_cfg=dict(type='SyncBN')),
    'adapter, interaction': partial(FAMILIES['adapter'], vit_feature_source='interaction', pe_joining='lape'),
    'adapter, windows': partial(
        FAMILIES['adapter'], with_cls_token=False, window_attn=[True, False] * 2, window_size=3
    ),
}


def backbone(name: str, **options) -> nn.Module:
    """A family, without the dropout of weights that its default has."""
    if name == 'timm adapter':
        vit = dict(FAMILIES[name].args[0], **options)
        return FAMILIES[name].func(vit, **FAMILIES[name].keywords)
    return BACKBONES[name](**options, **({'attn_drop_rate': 0.0} if name == 'compact' else {}))


def check(model: nn.Module, forward, training: bool = True) -> None:
    model = randomise(model).double().train(training)
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) or type(module).__name__ == 'DropPath':
            module.eval()
    assert relative_error(model, lambda: projected(forward())) < TOLERANCE


LAYOUTS = {
    'new': torch.Tensor.contiguous,
    'turned': lambda x: x.mT.contiguous().mT,
    'channels last': lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1),
}
OF_BACKBONES = (
    (False, True, 1, 'channels last', (64, 96)),
    (True, True, 2, 'turned', (64, 16)),
    (True, False, 1, 'new', (16, 64)),
    (False, False, 3, 'channels last', (64, 96)),
)
"""Recomputed activations, training, the number of images, their layout and size."""


@pytest.mark.parametrize('name', BACKBONES)
def test_backbones(name, monkeypatch):
    """Of maps, where a family has them, and of what it returns by default; with the layouts of both processors."""
    for with_cp, training, batch, layout, size in each(OF_BACKBONES):
        monkeypatch.setattr(grid, '_OF_AVX2', layout != 'channels last')
        form = dict(out_type='featmap') if name in OUT_TYPES and layout == 'channels last' else {}
        model = revert_sync_batchnorm(backbone(name, with_cp=with_cp, **form))
        if name == 'timm':  # which resizes its table in float32: too coarse for a difference
            model.vit.pos_embed.requires_grad_(False)
        images = LAYOUTS[layout](torch.randn(batch, 3, *size, dtype=torch.float64))
        check(model, partial(model, images), training)


# heads, necks and detectors


def feature_maps(batch: int, channels: tuple[int, ...], columns: int = 4) -> list[torch.Tensor]:
    """Return maps of strides 4, 8 and so on; the coarsest ones have a single column."""
    sides = [(16 >> level, max(4 * columns >> level, 1)) for level in range(len(channels))]
    return [torch.randn(batch, c, *side, dtype=torch.float64) for c, side in zip(channels, sides)]


def mask2former(model, maps):
    return [out for outs in model(maps, samples((64, 64), count=len(maps[0]))) for out in outs]


def samples(size: tuple[int, int], count: int) -> list[SegDataSample]:
    meta = dict.fromkeys(('img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape'), size)
    return [SegDataSample(metainfo=meta) for _ in range(count)]


def pixel_decoder(model, maps):
    mask_features, memory = model(maps)
    return [mask_features, *memory]


def deformable(model, tokens):
    shapes, points = torch.tensor([(4, 4), (2, 2), (1, 1)]), torch.full((len(tokens[0]), 21, 3, 2), 0.4).double()
    return model(tokens[0], value=tokens[0], reference_points=points, spatial_shapes=shapes,
                 level_start_index=torch.tensor([0, 16, 20]))  # fmt: skip


def plain_masks(model, tokens):
    return [out for outs in model(tokens, samples((48, 64), count=len(tokens[0]))) for out in outs]


def detr(model, images):
    meta = dict(batch_input_shape=(64, 96), img_shape=(64, 96), scale_factor=(1, 1))
    of_images = [DetDataSample(metainfo=meta) for _ in images[0]]
    states = model.forward_transformer(model.extract_feat(images[0]), of_images)
    return model.bbox_head(**states)


def text_tower():
    tower = TextTransformer(embed_dims=16, num_layers=2, num_heads=2)
    tower.build(vocabulary=9, length=4, pad=0, out_dims=12)
    return tower


TOKENS = lambda batch: [torch.randn(batch, 21, 16, dtype=torch.float64)]  # noqa: E731
PARTS = {
    'BNHead': (
        lambda: BNHead([6, 8], num_classes=3, dropout_ratio=0.0),
        lambda batch: feature_maps(batch, (6, 8), columns=1),
        lambda model, maps: model(maps),
    ),
    'ChannelMapperWithPooling': (
        lambda: ChannelMapperWithPooling([6, 8], 4, num_outs=4, norm_cfg=dict(type='BN')),
        lambda batch: feature_maps(batch, (6, 8)),
        lambda model, maps: model(maps),
    ),
    'DETR': (tiny_detr, lambda batch: [torch.randn(batch, 3, 64, 96, dtype=torch.float64)], detr),
    'ExtraAttention': (
        lambda: ExtraAttention([6, 8], 2),
        lambda batch: feature_maps(batch, (6, 8), columns=1),
        lambda model, maps: model(maps),
    ),
    'Mask2FormerHead': (mask2former_head, lambda batch: feature_maps(batch, (6, 7, 8, 9)), mask2former),
    'MSDeformAttnPixelDecoder': (
        lambda: MSDeformAttnPixelDecoder(**config(DECODER)),
        lambda batch: feature_maps(batch, (6, 7, 8, 9)),
        pixel_decoder,
    ),
    'MultiScaleDeformableAttention': (lambda: MultiScaleDeformableAttention(**ATTENTION), TOKENS, deformable),
    'PlainMaskHead': (
        lambda: PlainMaskHead([32, 32], 5, 2, 16, num_queries=6, num_layers=2, norm_cfg=dict(type='BN'), num_prefix=5),
        lambda batch: [torch.randn(batch, 5 + 12, 32, dtype=torch.float64) for _ in range(2)],
        plain_masks,
    ),
    'TextTransformer': (text_tower, lambda batch: [torch.randint(1, 9, (batch, 4))], lambda model, ids: model(ids[0])),
}
"""How a registered part is built small, its inputs, and its outputs for them."""
WITHOUT = {
    'DistilledClsHead': 'its two linear layers are of mmpretrain',
    'DistilledImageClassifier': 'its parts are of this table, and the teacher is frozen',
    'HybridTaskCascadeRoIHead': 'its layers are all of mmdetection',
    'LiT': 'two towers of this table and a scale; test_lit.py',
    'TransformersText': 'its layers are all of transformers',
    'PlainDETR': "its gradients are the public code's; test_plain_detr.py",
    'PlainDETRHead': 'the same',
}


def test_every_registered_model_is_checked():
    MODELS.import_all()
    registered = {name for name, model in MODELS.module_dict.items() if model.__module__.startswith('mmlape.')}
    checked = {family.func.__name__ for family in FAMILIES.values()}
    assert registered <= checked | set(PARTS) | set(WITHOUT)


@pytest.mark.parametrize('name', PARTS)
def test_heads_and_necks(name):
    build_one, inputs, forward = PARTS[name]
    for layout, training, batch in each((('new', False, 2), ('turned', True, 2), ('channels last', True, 1))):
        model = revert_sync_batchnorm(build_one())
        tensors = [LAYOUTS[layout](x) if x.is_floating_point() else x for x in inputs(batch)]
        check(model, partial(forward, model, tensors), training)


def strides_of_a_new_tensor(out: torch.Tensor) -> bool:
    return out.stride() == torch.empty(out.shape).stride()


@pytest.mark.parametrize('name', ['vit', 'swin', 'ceit', 'adapter'])
def test_maps_have_the_strides_of_a_new_tensor(name):
    """What a user puts behind a backbone gets no map that a kernel could take for another layout."""
    for size in each([(64, 96), (50, 70), (16, 16)]):
        outs = maps(name)(torch.randn(1, 3, *size))
        assert all(strides_of_a_new_tensor(out) for out in outs)


@pytest.mark.parametrize('training', [False, True])
def test_a_batch_norm_of_the_users_own(training):
    """The first layer of many heads and necks, straight on each map at batch 1."""
    model = nn.ModuleDict(
        dict(backbone=backbone('adapter'), norms=nn.ModuleList(nn.BatchNorm2d(24) for _ in range(4)))
    )
    image = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    check(model, lambda: [norm(m) for norm, m in zip(model.norms, model.backbone(image), strict=True)], training)


def test_two_processes_with_one_image_each(tmp_path):
    """Of an adapter and of DETR, averaged: those of one process with both images; by ``gradient_processes.py``."""
    script = tiny.ROOT / 'tests' / 'gradient_processes.py'
    out = tiny.run(sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2', script,
                   cwd=tmp_path)  # fmt: skip
    assert out.count('all gradients equal') == 4
