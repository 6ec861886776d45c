"""Golden data of DETR with iRPE: microsoft/Cream (at 4a13c40), which is facebookresearch/detr with other attention.

``python tests/golden/make_detr.py CHECKOUT/iRPE/DETR-with-iRPE``. The cases are the transformer on a padded map, which
is no square; a random PE comes as the second half of the channels. Besides, class scores and boxes of a complete
detector, at weights that ``uniform`` makes of the public names.
"""

import json
import re
import sys
import types

import numpy as np
import torch
import torchvision
from recording import Case, Settings, Weights, call, checkout, fill, image, uniform, write
from torch import Tensor

checkout()
sys.modules['easydict'] = types.SimpleNamespace(EasyDict=Settings)
version, torchvision.__version__ = torchvision.__version__, '0.9'  # the public code reads three characters of it
from models.backbone import Backbone, Joiner  # noqa: E402
from models.detr import DETR  # noqa: E402
from models.position_encoding import PositionEmbeddingSine  # noqa: E402
from models.transformer import Transformer  # noqa: E402
from util.misc import nested_tensor_from_tensor_list  # noqa: E402

torchvision.__version__ = version

DIMS, HEADS, QUERIES, CHANNELS = 16, 2, 5, 24
VALID = ((5, 4), (3, 7))  # of a map of 5 x 7
ARCH = dict(d_model=DIMS, nhead=HEADS, num_encoder_layers=2, dim_feedforward=CHANNELS, return_intermediate_dec=True)
INPUTS = dict(padded=image(0, 2, 2 * DIMS, 5, 7))
CASES = {
    'plain': ('', []),
    'product-k': ('rpe-2.0-product-ctx-1-k', [dict()]),
    'product-qkv-per-head': ('rpe-1.9-product-ctx-0-qkv', [dict(on='qkv', share_heads=False, ratio=1.9)]),
    'product-bias-qk': ('rpe-2.0-product-bias-1-qk', [dict(mode='bias', on='qk')]),
    'euclidean-kv': ('rpe-2.0-euc-ctx-1-kv', [dict(method='euclidean', on='kv')]),
}
OURS = (  # (public, mmdetection's)
    ('self_attn.in_proj', 'self_attn.attn.in_proj'),
    ('self_attn.out_proj', 'self_attn.attn.out_proj'),
    ('multihead_attn', 'cross_attn.attn'),
    ('linear1', 'ffn.layers.0.0'),
    ('linear2', 'ffn.layers.1'),
    ('norm1', 'norms.0'),
    ('norm2', 'norms.1'),
    ('norm3', 'norms.2'),
    ('decoder.norm', 'decoder.post_norm'),
)


def our_name(public: str) -> str:
    """Return mmdetection's name of a parameter of the public transformer."""
    for theirs, ours in OURS:
        public = re.sub(rf'\b{re.escape(theirs)}(?=[._])', ours, public)
    return public


def transformer_case(name: str, code: str, kinds: list[dict]) -> Case:
    """Return the case of a transformer: the decoder's states and the encoder's map."""
    model = Transformer(num_decoder_layers=1, enc_rpe2d=code, **ARCH)
    names = {our_name(public): public for public in model.state_dict()}
    state = {ours: model.state_dict()[public] for ours, public in names.items()}
    weights = fill(state | {'query_embedding.weight': torch.zeros(QUERIES, DIMS)})
    mask = torch.ones(2, 5, 7, dtype=torch.bool)
    for i, (rows, columns) in enumerate(VALID):
        mask[i, :rows, :columns] = False

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        own = {public: weights[ours] for ours, public in names.items()}
        feat, pos = x.chunk(2, dim=1)
        queries = weights['query_embedding.weight']
        return list(call(model, own, feat, mask=mask, query_embed=queries, pos_embed=pos))

    pe_type = ['sine', *(dict(dict(type='irpe', ratio=2.0), **kind) for kind in kinds)]
    kwargs = dict(dims=DIMS, heads=HEADS, channels=CHANNELS, queries=QUERIES, valid=VALID, pe_type=pe_type)
    return Case(name, 'DETR transformer', kwargs, weights, run)


def complete() -> dict[str, np.ndarray]:
    """Return names and shapes of a complete public detector, and its scores and boxes for two padded images."""
    plain = torchvision.models.resnet18
    torchvision.models.resnet18 = lambda pretrained, **kwargs: plain(**kwargs)  # no download
    backbone = Backbone('resnet18', train_backbone=True, return_interm_layers=False, dilation=False)
    joiner = Joiner(backbone, PositionEmbeddingSine(DIMS // 2, normalize=True))
    joiner.num_channels = backbone.num_channels
    transformer = Transformer(num_decoder_layers=2, enc_rpe2d='rpe-2.0-product-ctx-1-k', **ARCH)
    model = DETR(joiner, transformer, num_classes=91, num_queries=QUERIES).double().eval()
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    model.load_state_dict({name: uniform(name, shape) for name, shape in shapes.items()}, strict=True)
    images = [uniform('image', (3, 96, 128)), uniform('image', (3, 64, 160))]
    with torch.no_grad():
        out = model(nested_tensor_from_tensor_list(images))
    found = {f'complete/{key}': out[f'pred_{key}'].numpy() for key in ('logits', 'boxes')}
    return found | {'complete/shapes': np.array(json.dumps(shapes))}


if __name__ == '__main__':
    write('detr', INPUTS, [transformer_case(name, *what) for name, what in CASES.items()], complete())
