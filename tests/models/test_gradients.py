"""Gradients of every backbone, and of the heads and necks behind them, against finite differences in float64.

At batch 1 a map's batch stride can be anything, and torch's batch norm has then computed wrong gradients silently.
"""

import sys
from functools import partial
from itertools import product

import pytest
import tiny
import torch
from config_helpers import CONFIGS, PUBLIC, build, load, method_of
from each import each
from gradient_checks import TOLERANCE, projected, relative_error
from mmengine.model import revert_sync_batchnorm
from model_helpers import DEEP_ARCH as ARCH
from model_helpers import SWIN_ARCH as SWIN
from model_helpers import randomise
from torch import nn

from mmlape.models import DistilledVisionTransformer, SwinTransformer, VisionTransformer, ViTAdapter
from mmlape.projects import CeiT, T2TViT

BACKBONES = {
    'ViT': lambda **kwargs: VisionTransformer(ARCH, 48, out_type='featmap', pe_joining='lape', **kwargs),
    'ViT, RPE': lambda **kwargs: VisionTransformer(ARCH, 48, pe_type='rpe', pe_joining='lape', **kwargs),
    'ViT, DPN': lambda **kwargs: VisionTransformer(ARCH, 48, patch_norm='dual', out_type='avg_featmap', **kwargs),
    'distilled': lambda **kwargs: DistilledVisionTransformer(ARCH, 48, pe_joining='unshared', **kwargs),
    'Swin': lambda **kwargs: SwinTransformer(
        SWIN,
        48,
        window_size=4,
        pe_type=['learnable', 'rpe'],
        pe_joining='lape',
        out_type='featmap',
        out_indices=(0, 1),
        **kwargs,
    ),
    'T2T-ViT': lambda **kwargs: T2TViT(dict(ARCH, token_dims=8), 48, pe_joining='lape', **kwargs),
    'T2T-ViT, transformer tokens': lambda **kwargs: T2TViT(
        dict(ARCH, token_dims=8), 48, tokens_type='transformer', out_type='featmap', pe_type='learnable', **kwargs
    ),
    'CeiT': lambda **kwargs: CeiT(dict(ARCH, stem_channels=8), 48, pe_joining='lape', patch_norm='dual', **kwargs),
    'CeiT, map': lambda **kwargs: CeiT(dict(ARCH, stem_channels=8), 48, out_type='featmap', **kwargs),
    'adapter, segmentation': lambda **kwargs: ViTAdapter(
        ARCH, 48, conv_inplane=8, deform_num_heads=3, pe_joining='lape', vit_feature_source='interaction', **kwargs
    ),
    'adapter, detection': lambda **kwargs: ViTAdapter(
        ARCH, 48, conv_inplane=8, deform_num_heads=3, window_attn=[True, False] * 2, window_size=3, **kwargs
    ),
}


def check(model: nn.Module, forward, training: bool = True) -> None:
    model = randomise(model).double().train(training)
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) or type(module).__name__ == 'DropPath':
            module.eval()
    assert relative_error(model, lambda: projected(forward())) < TOLERANCE


OF_BACKBONES = ((False, True, 1), (True, True, 2), (True, False, 1), (False, False, 3))
"""Recomputed activations, training, and the number of images."""


@pytest.mark.parametrize('name', BACKBONES)
def test_backbones(name):
    for with_cp, training, batch in each(OF_BACKBONES):
        model = BACKBONES[name](with_cp=with_cp)
        images = torch.randn(batch, 3, 64, 96, dtype=torch.float64)
        check(model, partial(model, images), training)


@pytest.mark.parametrize('name', ['adapter, detection', 'CeiT'])
def test_an_image_that_was_permuted_at_batch_1(name):
    """As from an array (height, width, channels) with a batch axis put in front: its strides are arbitrary, too."""
    model = BACKBONES[name]()
    image = torch.randn(64, 96, 3, dtype=torch.float64).permute(2, 0, 1)[None]
    check(model, lambda: model(image))


def strides_of_a_new_tensor(out: torch.Tensor) -> bool:
    return out.stride() == torch.empty(out.shape).stride()


@pytest.mark.parametrize('name', ['ViT', 'Swin', 'CeiT, map', 'adapter, detection', 'adapter, segmentation'])
def test_maps_have_the_strides_of_a_new_tensor(name):
    """What a user puts behind a backbone gets no map that a kernel could take for another layout."""
    for size in each([(64, 96), (50, 70), (16, 16)]):
        outs = BACKBONES[name]().eval()(torch.randn(1, 3, *size))
        assert all(strides_of_a_new_tensor(out) for out in outs)


@pytest.mark.parametrize('training', [False, True])
def test_a_batch_norm_of_the_users_own(training):
    """The first layer of many heads and necks, straight on each map at batch 1."""
    model = nn.ModuleDict(
        dict(backbone=BACKBONES['adapter, detection'](), norms=nn.ModuleList(nn.BatchNorm2d(24) for _ in range(4)))
    )
    image = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    check(model, lambda: [norm(m) for norm, m in zip(model.norms, model.backbone(image), strict=True)], training)


MINI = {
    method_of(path) or 'classifier': path
    for path in CONFIGS
    if '-lape_' in path.stem and '_mini-' in path.stem and method_of(path) not in PUBLIC
}


def family(name: str) -> nn.Module:
    cfg = load(MINI[name])
    cfg.model.backbone.init_cfg = None
    cfg.model.backbone.arch = dict(cfg.model.backbone.arch, num_layers=4)
    return revert_sync_batchnorm(build(cfg))


CASES = set(product(sorted(MINI), (1, 2), (False, True)))
CASES.remove(('upernet', 1, True))  # pooling to one cell leaves batch norm a single value


@pytest.mark.parametrize(('name', 'batch', 'training'), sorted(CASES))
def test_recipe_families(name, batch, training):
    """Backbone, neck and heads of a recipe; a detector's are fed fixed boxes, since sampled ones are no function."""
    model = family(name)
    images = torch.randn(batch, 3, 64, 64, dtype=torch.float64)

    def forward():
        if name == 'classifier':
            return model.head(model.backbone(images))
        if name == 'mask_rcnn':
            return detector_outputs(model, images)
        maps = model.backbone(images)
        heads = [model.decode_head, *([model.auxiliary_head] if model.with_auxiliary_head else [])]
        return [head(maps) for head in heads]

    check(model, forward, training)


def detector_outputs(model, images):
    maps = model.neck(model.backbone(images))
    classes, boxes = model.rpn_head(maps)
    rois = torch.tensor([[i, 3.0, 5.0, 40.0, 30.0] for i in range(len(images))] * 2, dtype=torch.float64)
    head = model.roi_head
    scores, deltas = head.bbox_head(head.bbox_roi_extractor(maps[:4], rois))
    masks = head.mask_head(head.mask_roi_extractor(maps[:4], rois))
    return [*classes, *boxes, scores, deltas, masks]


def test_two_processes_with_one_image_each(tmp_path):
    """Their averaged gradients are those of one process with both images; run by ``gradient_processes.py``."""
    script = tiny.ROOT / 'tests' / 'gradient_processes.py'
    out = tiny.run(sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2', script,
                   cwd=tmp_path)  # fmt: skip
    assert out.count('all gradients equal') == 2
