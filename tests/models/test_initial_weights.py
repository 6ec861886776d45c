"""Initial values of every config's model after ``init_weights``, from which it trains.

The constructors' own values are held to the public code's by the tests of each model.
"""

import json
import math
from functools import cache

import torch
from config_helpers import CONFIGS, ROOT, build, load, method_of
from each import each
from mmengine.config import Config
from model_helpers import is_normal, is_uniform
from torch import nn

from mmlape.lab.config.config_file import load_config
from mmlape.models.model_names import resolve_arch
from mmlape.projects.compact import ARCHS as COMPACT

LAYERS = dict(embed_dims=48, num_layers=3, num_heads=3, feedforward_channels=96)
ARCHS = {
    'VisionTransformer': LAYERS,
    'DistilledVisionTransformer': LAYERS,
    'CeiT': dict(LAYERS, stem_channels=8),
    'T2TViT': dict(LAYERS, token_dims=16),
    'SwinTransformer': dict(embed_dims=24, depths=(2, 2), num_heads=(2, 4)),
    'CompactTransformer': LAYERS,
}
CLASSIFIERS = [path for path in CONFIGS if not method_of(path)]


def start(cfg: Config) -> str | None:
    """The type of a backbone's initialisation."""
    return (cfg.model.backbone.get('init_cfg') or {}).get('type')


def shrunk(cfg: Config) -> str:
    """A narrow model of a config as JSON, so that those of one kind are built once; initial values are its own."""
    model = json.loads(json.dumps(cfg.model.to_dict()))
    backbone, head = model['backbone'], model['head']
    kind = backbone['type'].removeprefix('mmlape.')
    arch = dict(ARCHS[kind])
    if kind == 'CompactTransformer':
        arch = {**resolve_arch(backbone['arch'], COMPACT), **arch}
    backbone.update(arch=arch, img_size=64 if kind == 'SwinTransformer' else 96)
    for key in ('drop_rate', 'drop_path_rate', 'attn_drop_rate'):
        backbone.pop(key, None)
    head.update(num_classes=10, in_channels=48, **({'hidden_dim': 48} if head.get('hidden_dim') else {}))
    model = dict(type='ImageClassifier', backbone=backbone, head=head)  # a teacher has its weights from a file
    return json.dumps(model, sort_keys=True)


@cache
def initialised(text: str) -> tuple[nn.Module, dict]:
    """A model after ``init_weights``, and its values before."""
    torch.manual_seed(0)
    model = build(Config(dict(model=json.loads(text), default_scope='mmpretrain')))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.init_weights()
    return model, before


def check_head(head: nn.Module, cfg: dict) -> None:
    """Zeros and a bias, or 0.02; the hidden layer has LeCun's deviation."""
    last = [layer for name, layer in head.named_modules() if isinstance(layer, nn.Linear) and 'pre_logits' not in name]
    assert last
    for layer in last:
        assert (layer.bias == cfg.get('bias', 0)).all()
        fits = (layer.weight == 0).all() if cfg['type'] == 'Constant' else is_normal(layer.weight, cfg['std'])
        assert fits
    for name, layer in head.named_modules():
        if name.endswith('pre_logits'):
            assert is_normal(layer.weight, layer.in_features**-0.5) and not layer.bias.any()


def drawn_anew(backbone: nn.Module, init: dict | None) -> set[str]:
    """Check what an initialisation draws, and return the names."""
    names = set()
    for prefix, part in backbone.named_modules():
        linear = isinstance(part, nn.Linear)
        if not (linear or (isinstance(part, nn.Conv2d) and init['type'] == 'mmlape.BigVisionInit')):
            continue
        names |= {f'{prefix}.{name}' for name, _ in part.named_parameters(recurse=False)}
        if part.bias is not None:
            assert not part.bias.any()
        if init['type'] == 'TruncNormal':
            assert is_normal(part.weight, init['std'])
        elif linear:
            for weight in part.weight.chunk(3 if prefix.endswith('qkv') else 1):
                assert is_uniform(weight, (6 / sum(weight.shape)) ** 0.5), prefix
        else:
            assert is_normal(part.weight, part.weight[0].numel() ** -0.5)
    if init['type'] == 'mmlape.BigVisionInit' and hasattr(backbone, 'cls_token'):
        assert not backbone.cls_token.any()
        names.add('cls_token')
    return names


def test_what_a_classifier_starts_with():
    """Where a config names an initialisation, its formulas; all else is as the constructor made it."""
    for path in each([path for path in CLASSIFIERS if 'sub-ln' not in path.stem]):
        cfg = load(path)
        if start(cfg) == 'Pretrained':
            cfg.model.backbone.init_cfg = None
        model, before = initialised(shrunk(cfg))
        init = cfg.model.backbone.get('init_cfg')
        drawn = drawn_anew(model.backbone, init) if init else set()
        for name in model.backbone.state_dict().keys() - drawn:
            assert torch.equal(model.backbone.state_dict()[name], before[f'backbone.{name}']), name
        check_head(model.head, cfg.model.head.init_cfg)


def test_what_sub_ln_starts_with():
    """The recipe's own values; of values, outputs and the FFN times sqrt(ln 24) in twelve layers."""
    cfg = load_config(ROOT / 'studies/dpn-placement.yml:sub-ln')
    backbone = build(cfg).backbone
    backbone.init_weights()
    gain = math.log(24) ** 0.5
    width, hidden = 384, 1536
    xavier = (6 / (2 * width)) ** 0.5
    assert round(xavier / 3**0.5, 3) == 0.051
    for block in backbone.blocks:
        queries, keys, values = block.attn.qkv.weight.chunk(3)
        for weight in (queries, keys):
            assert is_uniform(weight, xavier)
        for weight in (values, block.attn.proj.weight):
            assert is_uniform(weight, gain * xavier)
        for weight in (block.mlp.fc1.weight, block.mlp.fc2.weight):
            assert is_uniform(weight, gain * (6 / (width + hidden)) ** 0.5)


def test_all_other_backbones_start_from_files():
    """But for mini ones."""
    others = [path for path in CONFIGS if path not in CLASSIFIERS]
    assert {path.stem for path in others if start(load(path)) != 'Pretrained'} == {
        'upernet_timm-mini-adapter_1xb4-200i_mini-ade', 'detr_r18-irpe-product-k-9x9_2xb2-200i_mini-coco',
        'segmenter_deit-mini_1xb16-2000i_mini-objects-ade', 'mask-rcnn_deit-mini-adapter_1xb4-2000i_mini-objects-coco',
        'faster-rcnn_deit-mini-adapter_1xb4-2000i_mini-objects-coco',
    }  # fmt: skip
