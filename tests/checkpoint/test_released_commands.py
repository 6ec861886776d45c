"""`mmlape test` and `mmlape predict` on complete models of the released layouts, and detectors' outputs by hand.

No released file can be had here: tiny models with random weights are written under the public names.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from checkpoint_helpers import save
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.structures import InstanceData
from torch import Tensor, nn
from torchvision.ops import roi_align

from mmlape.checkpoint import load_model
from mmlape.checkpoint.opening import open_file
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.lab.inference.run_model import init_model, predict
from mmlape.lab.training.optim import build_model

DETECTOR = 'mmlape::mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco'
COMMON = ('model.backbone.init_cfg=None', 'model.backbone.pe_joining=default')
BEIT = tuple(
    f'model.backbone.{value}'
    for value in ('pe_type=beit', 'qkv_bias=qv', 'layer_scale_init_value=0.1', 'window_padding=before-qkv')
)


@pytest.fixture(scope='module')
def mini(tmp_path_factory):
    root = tmp_path_factory.mktemp('data') / 'mini'
    make_mini_data(root, MiniOptions(train=2, val=2, digits=0, size=(96, 96), per_scene=(2, 3), digit_size=(20, 40)))
    return root


def released(cfg: Config) -> tuple[dict, dict]:
    """The tensors of a random model under our names, and under the public ones, with what a public file has more."""
    torch.manual_seed(0)
    model = build_model(cfg)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.03 * torch.randn_like(value))
        for name, value in model.named_buffers():
            if '_head' in name and value.is_floating_point():  # the norms' means and variances
                value.add_(torch.rand_like(value))
    own = model.state_dict()
    public = {re.sub(r'\.gamma([12])$', r'.gamma_\1', name): value for name, value in own.items()}
    public |= {f'backbone.blocks.{i}.attn.relative_position_index': torch.zeros(16, 16).long() for i in range(4)}
    return own, public


def run(name: str, words: list, options: list[str], folder) -> str:
    return tiny.run(*tiny.MMLAPE, name, *words, '--cfg-options', *options, cwd=folder)


def test_the_commands_take_a_released_file(mini, tmp_path):
    options = [*COMMON, 'test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False', *BEIT]
    options += [f'data_root={mini}/coco', 'model.test_cfg.rcnn.score_thr=0.0', 'model.test_cfg.rcnn.max_per_img=5']
    image = next((mini / 'coco' / 'val2017').iterdir())
    own, public = released(load_config(DETECTOR, options))
    assert set(own) != set(public)
    file = save(tmp_path / 'public.pth.tar', public, 'state_dict', meta=dict(mmcv_version='1.4.2', epoch=36))
    model = init_model(DETECTOR, open_file(save(tmp_path / 'own.pth', own, 'state_dict')), 'cpu', options)
    expected = sorted(predict(model, image).pred_instances.scores.tolist())
    assert len(expected) == 5

    words = [DETECTOR, file, '--out', 'metrics.json', '--save-pred', 'saved', '--work-dir', 'run']
    run('test', words, options, tmp_path)
    rows = json.loads((tmp_path / 'saved' / 'predictions.json').read_text())
    annotations = json.loads((mini / 'coco' / 'annotations' / 'instances_val2017.json').read_text())
    (number,) = (row['id'] for row in annotations['images'] if row['file_name'] == image.name)
    np.testing.assert_allclose(sorted(row['score'] for row in rows if row['image_id'] == number), expected, atol=1e-5)

    run('predict', [DETECTOR, file, image, '--out', 'predicted', '--device', 'cpu'], options, tmp_path)
    assert (tmp_path / 'predicted' / 'overlays' / image.name).is_file()
    found = json.loads((tmp_path / 'predicted' / 'predictions.json').read_text())['annotations']
    np.testing.assert_allclose(sorted(row['score'] for row in found), expected, atol=1e-5)


class Layers(dict):
    """The tensors of a file by their public names, and the layers that they are."""

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self[f'{name}.weight'], self[f'{name}.bias'])

    def conv(self, x: Tensor, name: str) -> Tensor:
        weight = self[f'{name}.weight']
        return F.conv2d(x, weight, self.get(f'{name}.bias'), padding=weight.shape[-1] // 2)

    def layers(self, x: Tensor, name: str) -> Tensor:
        """Convolutions ``name.0``, ``name.1`` and so on, each with ReLU, and with a norm before it if it has one."""
        for i in range(self.count(name)):
            x = self.conv(x, f'{name}.{i}.conv')
            if f'{name}.{i}.bn.weight' in self:
                norm = (self[f'{name}.{i}.bn.{part}'] for part in ('running_mean', 'running_var', 'weight', 'bias'))
                x = F.batch_norm(x, *norm)
            x = x.relu()
        return x

    def count(self, name: str) -> int:
        return len({key[len(name) + 1] for key in self if key.startswith(f'{name}.')})

    def extra_attention(self, x: Tensor, name: str, heads: int) -> Tensor:
        def norm(x, part):
            return F.layer_norm(x, x.shape[-1:], self[f'{name}.{part}.weight'], self[f'{name}.{part}.bias'])

        tokens = x.flatten(2).transpose(1, 2)
        qkv = self.linear(norm(tokens, 'norm1'), f'{name}.attn.qkv').unflatten(2, (3, heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).softmax(-1)
        tokens = tokens + self.linear((weights @ v).transpose(1, 2).flatten(2), f'{name}.attn.proj')
        hidden = F.gelu(self.linear(norm(tokens, 'norm2'), f'{name}.ffn.fc1'))
        tokens = norm(tokens + self.linear(hidden, f'{name}.ffn.fc2'), 'final_norm')
        return tokens.transpose(1, 2).reshape(x.shape)

    def pyramid(self, maps: list[Tensor], name: str) -> list[Tensor]:
        lateral = [self.conv(m, f'{name}.lateral_convs.{i}.conv') for i, m in enumerate(maps)]
        for i in (2, 1, 0):
            lateral[i] = lateral[i] + F.interpolate(lateral[i + 1], scale_factor=2)
        maps = [self.conv(m, f'{name}.fpn_convs.{i}.conv') for i, m in enumerate(lateral)]
        return [*maps, maps[-1][..., ::2, ::2]]

    def rpn(self, pyramid: list[Tensor]) -> list[Tensor]:
        hidden = [self.conv(m, 'rpn_head.rpn_conv').relu() for m in pyramid]
        return [self.conv(m, f'rpn_head.rpn_{part}') for part in ('cls', 'reg') for m in hidden]

    def classes_and_deltas(self, x: Tensor, name: str) -> list[Tensor]:
        x = self.layers(x, f'{name}.shared_convs').flatten(1)
        for i in range(self.count(f'{name}.shared_fcs')):
            x = self.linear(x, f'{name}.shared_fcs.{i}').relu()
        return [self.linear(x, f'{name}.fc_cls'), self.linear(x, f'{name}.fc_reg')]

    def masks(self, x: Tensor, name: str) -> list[Tensor]:
        """Logits, and the features before they are resized."""
        x = self.layers(x, f'{name}.convs')
        up = F.conv_transpose2d(x, self[f'{name}.upsample.weight'], self[f'{name}.upsample.bias'], stride=2)
        return [self.conv(up.relu(), f'{name}.conv_logits'), x]

    def semantic(self, pyramid: list[Tensor], name: str) -> list[Tensor]:
        """Logits and features at stride 8."""
        size = pyramid[1].shape[-2:]
        maps = [F.interpolate(m, size, mode='bilinear', align_corners=True) for m in pyramid]
        x = sum(self.conv(m, f'{name}.lateral_convs.{i}.conv').relu() for i, m in enumerate(maps))
        x = self.layers(x, f'{name}.convs')
        return [self.conv(x, f'{name}.conv_logits'), self.conv(x, f'{name}.conv_embedding.conv').relu()]


def crop(pyramid: list[Tensor], rois: Tensor, size: int, strides=(4, 8)) -> Tensor:
    """RoIAlign in the level of each box: the second from sides of 112 pixels (FPN, eq. 1)."""
    levels = ((rois[:, 3:] - rois[:, 1:3]).prod(1) >= 112**2).long().clamp(max=len(strides) - 1)
    crops = [roi_align(m, rois, size, 1 / stride, 0, aligned=True) for m, stride in zip(pyramid, strides)]
    return torch.stack(crops)[levels, torch.arange(len(rois))]


def refine(rois: Tensor, classes: Tensor, deltas: Tensor, stds: list[float]) -> Tensor:
    """The boxes moved by the deltas of their class, or the only ones, inside the image (R-CNN, eqs. 1-4)."""
    deltas = deltas.unflatten(1, (-1, 4))
    best = classes[:, :-1].argmax(1) if deltas.shape[1] > 1 else 0
    shift, scale = (deltas[torch.arange(len(rois)), best] * rois.new_tensor(stds)).split(2, 1)
    low, high = rois[:, 1:].split(2, 1)
    centre, half = (low + high) / 2 + shift * (high - low), scale.exp() * (high - low) / 2
    limit = torch.tensor(SHAPE[::-1])
    return torch.cat([rois[:, :1], (centre - half).clamp(0).min(limit), (centre + half).clamp(0).min(limit)], 1)


def feature_maps(channels: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(1, channels, 32 // 2**i, 32 // 2**i, generator=generator).double() for i in range(4)]


SHAPE = (110, 120)  # of the image; the third box is of the second level, the others reach out of it once refined
ROIS = torch.tensor([[0.0, 3, 5, 40, 61], [0, 20, 10, 90, 77], [0, 1, 2, 119, 115], [0, 70, 60, 118, 108]]).double()


def read(cfg: Config, folder: Path) -> tuple[nn.Module, Layers]:
    """A model that has read a released file, and that file's layers, both in float64."""
    _, public = released(cfg)
    model = build_model(cfg).eval()
    load_model(model, save(folder / 'public.pth', public, 'state_dict'))
    return model.double(), Layers({name: value.double() for name, value in public.items()})


def assert_equal(ours: list[Tensor], expected: list[Tensor]) -> None:
    for i, (own, value) in enumerate(zip(ours, expected, strict=True)):
        assert value.std() > 1e-3, i
        torch.testing.assert_close(own, value, rtol=1e-9, atol=1e-9, msg=lambda text, i=i: f'output {i}: {text}')


@torch.no_grad()
def test_a_released_mask_rcnn_computes_the_formulas_of_its_names(tmp_path):
    """FPN, RPN, box and mask head from the file's tensors by their public names, before any post-processing."""
    model, file = read(load_config(DETECTOR, [*COMMON, *BEIT]), tmp_path)
    maps = feature_maps(128)
    pyramid = file.pyramid(maps, 'neck')
    expected = file.rpn(pyramid) + file.classes_and_deltas(crop(pyramid, ROIS, 7), 'roi_head.bbox_head')
    expected += file.masks(crop(pyramid, ROIS, 14), 'roi_head.mask_head')[:1]

    features = model.neck(maps)
    classes, deltas = model.rpn_head(features)
    box = model.roi_head._bbox_forward(features, ROIS)
    masks = model.roi_head._mask_forward(features, ROIS)['mask_preds']
    assert_equal([*classes, *deltas, box['cls_score'], box['bbox_pred'], masks], expected)


def small(name: str) -> Config:
    """A released model's config with narrow maps and few classes, over a small BEiT."""
    cfg = load_config(f'mmlape::{"htc" if name.startswith("htc_") else "cascade_mask_rcnn"}/{name}')
    widths = {1024: 64, 384: 64, 256: 16, 80: 5, 183: 7}

    def narrow(value):
        if isinstance(value, dict):
            return {key: narrow(item) for key, item in value.items()}
        return [narrow(item) for item in value] if isinstance(value, list) else widths.get(value, value)

    backbone = load_config(DETECTOR, [*COMMON, *BEIT]).model.backbone
    backbone.arch.update(embed_dims=64, feedforward_channels=64)
    cfg.model.update({part: narrow(cfg.model[part]) for part in ('neck', 'rpn_head', 'roi_head')}, backbone=backbone)
    return cfg


@torch.no_grad()
@pytest.mark.parametrize('name', ['cascade-mask-rcnn_deit-small-adapter_8xb2', 'htc_beit-large-adapter_16xb1'])
def test_a_released_cascade_computes_the_formulas_of_its_names(name, tmp_path):
    """The outputs of every stage, the boxes that it refines for the next one, and the means over the stages."""
    model, file = read(small(f'{name}-3x_coco'), tmp_path)
    maps, roi, htc = feature_maps(64), 'roi_head', name.startswith('htc')
    attended = [*maps[:3], file.extra_attention(maps[3], 'neck.0', 32)] if htc else maps
    pyramid = file.pyramid(attended, 'neck.1' if htc else 'neck')
    semantic = file.semantic(pyramid, f'{roi}.semantic_head') if htc else []

    def regions(rois, size):
        out = crop(pyramid, rois, size)
        return out + F.adaptive_avg_pool2d(crop(semantic[1:], rois, 14, (8,)), size) if htc else out

    boxes, classes, masks, features = [ROIS], [], [], None
    for stage, stds in enumerate(([0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [0.033, 0.033, 0.067, 0.067])):
        scores, deltas = file.classes_and_deltas(regions(boxes[-1], 7), f'{roi}.bbox_head.{stage}')
        classes += [scores, deltas]
        boxes.append(refine(boxes[-1], scores, deltas, stds))
    for stage in range(3):
        x = regions(boxes[2], 14)
        if htc and stage:  # information flow
            x = x + file.conv(features, f'{roi}.mask_head.{stage}.conv_res.conv').relu()
        logits, features = file.masks(x, f'{roi}.mask_head.{stage}')
        masks.append(logits)
    means = [sum(classes[::2]) / 3, deltas, sum(logits.sigmoid() for logits in masks) / 3]

    seen, head, features = [], model.roi_head, model.neck(maps)
    first = [value for values in model.rpn_head(features) for value in values]
    first += head.semantic_head(features) if htc else []
    for pool in head.bbox_roi_extractor:
        pool.register_forward_hook(lambda _, args, out: seen.append(args[1]))
    for part in head.bbox_head:
        part.register_forward_hook(lambda _, args, out: seen.extend(out))
    for part in head.mask_head:
        part.register_forward_hook(lambda _, args, out: seen.append(out[0] if htc else out))
    sample = DetDataSample(metainfo=dict(img_shape=SHAPE))
    last = [out[0] for out in head(features, [InstanceData(bboxes=ROIS[:, 1:])], [sample])]
    stages = [value for stage in range(3) for value in (boxes[stage], *classes[2 * stage : 2 * stage + 2])]
    assert_equal([*first, *seen, *last], [*file.rpn(pyramid), *semantic, *stages, *masks, *means])
