"""`mmlape test` and `mmlape image-demo` on complete models of the released layouts, and a detector's outputs by hand.

No released file can be had here: tiny models with random weights are written under the public names.
"""

import json
import re

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from checkpoint_helpers import save
from PIL import Image
from torchvision.ops import roi_align

from mmlape.analysis.inference import init_model, list_prediction, predict
from mmlape.checkpoint import load_model
from mmlape.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.engine.config import load_config
from mmlape.engine.optim import build_model

DETECTOR = 'mmlape::detection/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco'
SEGMENTOR = 'mmlape::segmentation/mask2former_deit-mini-adapter-lape_1xb4-200i_mini-ade'
COMMON = ('model.backbone.init_cfg=None', 'model.backbone.pe_joining=default')
BEIT = ('pe_type=beit', 'qkv_bias=qv', 'layer_scale_init_value=0.1', 'window_padding=before-qkv')
# ours and the public one, first of BEiT's LayerScale
NAMES = (
    (r'\.gamma([12])$', r'.gamma_\1'),
    (r'(pixel_decoder\.encoder\.layers\.\d+)\.self_attn\.', r'\1.attentions.0.'),
    (r'(transformer_decoder\.layers\.\d+)\.cross_attn\.', r'\1.attentions.0.'),
    (r'(transformer_decoder\.layers\.\d+)\.self_attn\.', r'\1.attentions.1.'),
    (r'\.layers\.(\d+)\.ffn\.', r'.layers.\1.ffns.0.'),
)


@pytest.fixture(scope='module')
def mini(tmp_path_factory):
    root = tmp_path_factory.mktemp('data') / 'mini'
    make_mini_data(root, MiniOptions(train=2, val=2, digits=0, size=(96, 96), objects=(2, 3), digit_size=(20, 40)))
    return root


def released(config: str, options: list[str]) -> tuple[dict, dict]:
    """The tensors of a random model under our names, and under the public ones, with what a public file has more."""
    torch.manual_seed(0)
    model = build_model(load_config(config, options))
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.add_(0.03 * torch.randn_like(value))
            if 'query_feat' in name or '_embed.4' in name or 'cls_embed' in name:
                value.mul_(20)  # so that queries differ
    own, public, beit = model.state_dict(), {}, 'beit' in str(options)
    for name, value in own.items():
        for pattern, old in NAMES[not beit :]:
            name = re.sub(pattern, old, name)
        public[name] = value
    if beit:
        public |= {f'backbone.blocks.{i}.attn.relative_position_index': torch.zeros(16, 16).long() for i in range(4)}
    return own, public


def run(name: str, words: list, options: list[str], folder) -> str:
    return tiny.run(tiny.ROOT / 'tools' / name, *words, '--cfg-options', *options, cwd=folder)


@pytest.mark.parametrize('task', ['detector', 'segmentor'])
def test_the_commands_take_a_released_file(mini, tmp_path, task):
    detects = task == 'detector'
    config = DETECTOR if detects else SEGMENTOR
    options = [*COMMON, 'test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']
    if detects:
        options += [f'data_root={mini}/coco', 'model.test_cfg.rcnn.score_thr=0.0', 'model.test_cfg.rcnn.max_per_img=5']
        options += [f'model.backbone.{value}' for value in BEIT]
        image = next((mini / 'coco' / 'val2017').iterdir())
    else:
        options += [f'data_root={mini}/ade']
        image = next((mini / 'ade' / 'images' / 'validation').iterdir())
    own, public = released(config, options)
    assert set(own) != set(public)
    meta = dict(mmcv_version='1.4.2', epoch=36)
    file = save(tmp_path / 'public.pth.tar', public, 'state_dict', meta=meta)
    model = init_model(config, save(tmp_path / 'own.pth', own, 'state_dict'), 'cpu', options)
    prediction = predict(model, image)

    words = [config, file, '--out', 'metrics.json', '--save-pred', 'saved', '--work-dir', 'run']
    said = run('test.py', words, options, tmp_path)
    assert json.loads((tmp_path / 'metrics.json').read_text())['images'] == 2
    if detects:
        rows = json.loads((tmp_path / 'saved' / 'predictions.json').read_text())
        annotations = json.loads((mini / 'coco' / 'annotations' / 'instances_val2017.json').read_text())
        (number,) = (row['id'] for row in annotations['images'] if row['file_name'] == image.name)
        scores = [row['score'] for row in rows if row['image_id'] == number]
        assert len(scores) == 5
        np.testing.assert_allclose(sorted(scores), sorted(prediction.pred_instances.scores.tolist()), atol=1e-5)
    else:
        labels = np.asarray(Image.open(next((tmp_path / 'saved').rglob(f'{image.stem}.png'))))
        assert len(np.unique(labels)) > 1 and (labels == prediction.pred_sem_seg.data[0].numpy() + 1).all()
        assert "from the names of mmcv 1.x's Mask2Former" in said

    words = [image, config, file, '--out', 'drawing.png', '--device', 'cpu', '--score-thr', 0.1]
    said = run('image_demo.py', words, options, tmp_path)
    rows = list_prediction(prediction, model.classes, 0.1)
    assert rows and Image.open(tmp_path / 'drawing.png').size[0] >= 96
    for row in rows:
        assert (f'{row["class"]}: {row["score"]:.3f}' if detects else f'{row["class"]}: {row["share"]:.1%}') in said


def test_a_released_mask_rcnn_computes_the_formulas_of_its_names(tmp_path):
    """FPN, RPN, box and mask head from the file's tensors by their public names, before any post-processing."""
    options = [*COMMON, *(f'model.backbone.{value}' for value in BEIT)]
    _, public = released(DETECTOR, options)
    model = build_model(load_config(DETECTOR, options)).eval()
    load_model(model, save(tmp_path / 'm.pth', public, 'state_dict'))
    generator = torch.Generator().manual_seed(1)
    maps = [torch.randn(1, 128, 32 // 2**i, 32 // 2**i, generator=generator) for i in range(4)]

    def conv(x, name, padding=0):
        return F.conv2d(x, public[f'{name}.weight'], public[f'{name}.bias'], padding=padding)

    def linear(x, name):
        return F.linear(x, public[f'{name}.weight'], public[f'{name}.bias'])

    lateral = [conv(m, f'neck.lateral_convs.{i}.conv') for i, m in enumerate(maps)]
    for i in (2, 1, 0):
        lateral[i] = lateral[i] + F.interpolate(lateral[i + 1], scale_factor=2)
    pyramid = [conv(m, f'neck.fpn_convs.{i}.conv', 1) for i, m in enumerate(lateral)]
    pyramid.append(pyramid[-1][..., ::2, ::2])
    hidden = [conv(m, 'rpn_head.rpn_conv', 1).relu() for m in pyramid]
    boxes = torch.tensor([[0.0, 3, 5, 40, 61], [0, 20, 10, 90, 77]])  # of the finest level: below 112 pixels

    def crop(size):
        return roi_align(pyramid[0], boxes, size, 1 / 4, 0, aligned=True)

    x = crop(7).flatten(1)
    for i in (0, 1):
        x = linear(x, f'roi_head.bbox_head.shared_fcs.{i}').relu()
    y = crop(14)
    for i in range(4):
        y = conv(y, f'roi_head.mask_head.convs.{i}.conv', 1).relu()
    up = 'roi_head.mask_head.upsample'
    y = F.conv_transpose2d(y, public[f'{up}.weight'], public[f'{up}.bias'], stride=2).relu()
    expected = {
        'scores of the RPN': [conv(m, 'rpn_head.rpn_cls') for m in hidden],
        'boxes of the RPN': [conv(m, 'rpn_head.rpn_reg') for m in hidden],
        'classes': [linear(x, 'roi_head.bbox_head.fc_cls')],
        'boxes': [linear(x, 'roi_head.bbox_head.fc_reg')],
        'masks': [conv(y, 'roi_head.mask_head.conv_logits')],
    }
    with torch.no_grad():
        features = model.neck(maps)
        rpn, box = model.rpn_head(features), model.roi_head._bbox_forward(features, boxes)
        masks = model.roi_head._mask_forward(features, boxes)['mask_preds']
    ours = dict(zip(expected, (*rpn, [box['cls_score']], [box['bbox_pred']], [masks]), strict=True))
    for name, values in expected.items():
        for value, own in zip(values, ours[name], strict=True):
            assert value.std() > 1e-3, name
            torch.testing.assert_close(own, value, rtol=1e-4, atol=1e-6, msg=name)
