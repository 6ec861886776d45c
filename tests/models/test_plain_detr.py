"""Plain-DETR beside its public code and DINOv3's, and what a detector of it does."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.checkpoint.heads import HEAD_NAMES, UNUSED_IDS
from mmlape.checkpoint.key_maps import rename_keys
from mmlape.projects.plain_detr.boxes import Boxes
from mmlape.projects.plain_detr.losses import Objects, losses
from mmlape.projects.plain_detr.net import PlainDETRNet
from mmlape.projects.plain_detr.windows import windowed

GOLDEN = Path(__file__).parents[1] / 'golden'
sys.path.insert(0, str(GOLDEN))
from recording import project, uniform  # noqa: E402

SIZES = ((96, 128), (64, 160))
PATCH, LAYERS, CHANNELS, QUERIES, MANY, TIMES = 16, 4, 8, 5, 7, 3
OBJECTS = (([[40.0, 30, 50, 40], [90, 60, 30, 60]], [1, 0]), ([[100.0, 30, 80, 35]], [2]))
TINY = dict(
    patch_size=PATCH, num_queries=QUERIES, num_aux_queries=MANY, embed_dims=32, num_heads=4, num_layers=2,
    feedforward_channels=48, rpb_channels=16,
)  # fmt: skip
CASES = {
    'plain': dict(num_classes=3),
    'log': dict(num_classes=3, rpb='log'),
    'dinov3': dict(num_classes=91, num_encoder_layers=2, normalised_pe=True),
}
OURS = {'loss_ce': 'loss_cls', 'loss_bbox': 'loss_bbox', 'loss_giou': 'loss_iou'}
NAMES = next(each.names for each in HEAD_NAMES if 'Plain-DETR' in each.source)
EXACT = dict(atol=1e-9, rtol=1e-9)


@pytest.fixture(scope='module')
def golden():
    with np.load(GOLDEN / 'plain_detr.npz') as file:
        return json.loads(str(file['data']))


def public_weights(shapes):
    return {
        name: uniform(name, shape) * (0.02 if 'cpb_mlp' in name and name.endswith('0.weight') else 1)
        for name, shape in shapes.items()
    }


def batch(name):
    images = [uniform(f'image {name}', (3, *size)) for size in SIZES]
    return torch.stack([F.pad(image, (0, 160 - image.shape[2], 0, 96 - image.shape[1])) for image in images])


def maps_of(name, weights):
    """Return the map that the head reads: a convolution of patches."""
    kernel, bias = (
        next(value for key, value in weights.items() if key.endswith(f'.proj.{leaf}') and key.startswith('backbone'))
        for leaf in ('weight', 'bias')
    )

    def backbone(images):
        return F.conv2d(images, kernel, bias, stride=PATCH)

    if name == 'dinov3':
        return windowed(backbone, batch(name), 3, PATCH)
    return backbone(batch(name))[:, : 2 * CHANNELS]


def head_of(name, weights, **options):
    """Return the head with public weights, its names by the public ones, and what it gets."""
    maps = maps_of(name, weights)
    net = PlainDETRNet(maps.shape[1], **TINY, **CASES[name], **options).double()
    ours = {key: rename_keys({key: 0}, NAMES) for key in weights if not key.startswith('backbone')}
    ours = {key: next(iter(found)).removeprefix('bbox_head.net.') for key, found in ours.items()}
    net.load_state_dict({ours[key]: value for key, value in weights.items() if key in ours})
    valid = [tuple(side // PATCH for side in size) for size in SIZES]
    return net, ours, (maps, valid)


@pytest.mark.parametrize('name', CASES)
@pytest.mark.parametrize('with_cp', [False, True])
def test_outputs_losses_and_gradients_are_the_public_codes(golden, name, with_cp):
    data = golden[name]
    weights = public_weights(data['shapes'])
    trained = {key: value.requires_grad_() for key, value in weights.items() if key.startswith('backbone')}
    net, ours, given = head_of(name, weights, with_cp=with_cp)
    found = net(*given)
    alone, many = slice(QUERIES), slice(QUERIES, None)
    last, first = found.layers[1], found.layers[0]
    stages = last.rows(alone), first.rows(alone), found.proposals, first.rows(many), last.rows(many)
    values = torch.stack([project([stage.logits, stage.boxes]) for stage in stages]).detach()
    torch.testing.assert_close(values, torch.tensor(data['outputs'], dtype=torch.float64), **EXACT)

    targets = [Objects(torch.tensor(boxes, dtype=torch.float64), torch.tensor(labels)) for boxes, labels in OBJECTS]
    got = dict(losses(found, targets, QUERIES, TIMES, 0.5, mean=lambda value: value))
    prefixes = {'': '', '_0': 'd0.', '_enc': 'enc_', '_one2many': 'many_', '_0_one2many': 'd0.many_'}
    wanted = {f'{prefixes[key.removeprefix(their)]}{our}': value for key, value in data['losses'].items()
              for their, our in OURS.items() if key.startswith(their)}  # fmt: skip
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(got[key].item(), value, **EXACT, msg=lambda text, key=key: f'{key}: {text}')

    sum(got.values()).backward()
    own = dict(net.named_parameters())
    for key, value in data['gradients'].items():
        gradient = (trained[key] if key in trained else own[ours[key]]).grad
        ours_is = 0.0 if gradient is None else project([gradient]).item()
        torch.testing.assert_close(ours_is, value, atol=1e-8, rtol=1e-9, msg=lambda text, key=key: f'{key}: {text}')
