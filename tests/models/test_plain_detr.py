"""Plain-DETR beside its public code and DINOv3's, and what a detector of it does."""

import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from each import each
from golden.recording import project, uniform
from mmdet.structures import DetDataSample
from mmdet.testing import demo_mm_inputs
from mmengine.registry import MODELS, init_default_scope

from mmlape.checkpoint import load_model
from mmlape.checkpoint.heads import PLAIN_DETR, UNUSED_IDS, describe_heads
from mmlape.checkpoint.key_maps import rename_keys
from mmlape.errors import DataError
from mmlape.projects.plain_detr.losses import Objects, losses, losses_of
from mmlape.projects.plain_detr.model import PlainDETRHead, sides, windowed
from mmlape.projects.plain_detr.net import Boxes, PlainDETRNet

GOLDEN = Path(__file__).parents[1] / 'golden'
SIZES, PADDED, FACTORS = ((97, 131), (61, 159)), (112, 160), (0.5, 0.25)  # rows and columns
PATCH, LAYERS, CHANNELS, QUERIES, MANY, TIMES = 16, 4, 8, 5, 7, 3
OBJECTS = (([[40.0, 30, 50, 40], [90, 60, 30, 60]], [1, 0]), ([[100.0, 30, 80, 35]], [2]))
TINY = dict(
    patch_size=PATCH, num_queries=QUERIES, num_aux_queries=MANY, embed_dims=32, num_heads=4, num_layers=2,
    feedforward_channels=48, rpb_channels=16,
)  # fmt: skip
CASES = {'plain': dict(num_classes=3), 'dinov3': dict(num_classes=91, num_encoder_layers=2, normalised_pe=True)}
OURS = {'loss_ce': 'loss_cls', 'loss_bbox': 'loss_bbox', 'loss_giou': 'loss_iou'}
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
    images = [uniform(f'tall image {name}', (3, *size)) for size in SIZES]
    return torch.stack(
        [F.pad(image, (0, PADDED[1] - image.shape[2], 0, PADDED[0] - image.shape[1])) for image in images]
    )


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
    ours = {key: rename_keys({key: 0}, PLAIN_DETR) for key in weights if not key.startswith('backbone')}
    ours = {key: next(iter(found)).removeprefix('bbox_head.net.') for key, found in ours.items()}
    net.load_state_dict({ours[key]: value for key, value in weights.items() if key in ours})
    return net, ours, (maps, [(7, 9), (4, 10)])


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


@pytest.mark.parametrize(('few', 'further'), [(21, 0), (5, 16)])
def test_an_image_with_fewer_proposals_than_queries_has_a_box_of_each(few, further):
    """21 of 2 x 2 patches: as of the net with so many queries, in training, in evaluation and in a graph."""
    nets = []
    for queries in ((few, further), (40 if few == 21 else few, 30)):
        torch.manual_seed(0)
        options = dict(TINY, num_queries=queries[0], num_aux_queries=queries[1])
        nets.append(PlainDETRNet(8, 3, **options))
    values = {key: value[: nets[0].state_dict()[key].shape[0]] for key, value in nets[1].state_dict().items()}
    nets[0].load_state_dict(values)
    maps = torch.rand(2, 8, 2, 2)
    objects = [Objects(torch.rand(count, 4) * 20 + 5, torch.arange(count) % 3) for count in (2, 30)]
    trained = [dict(losses(net.train()(maps), objects, net.num_queries, TIMES, 1.0, torch.clone)) for net in nets]
    torch.testing.assert_close(*trained)
    nets = [net.eval() for net in nets]
    graph = torch.export.export(nets[1], (maps,)).module()
    for found in (nets[1](maps), graph(maps)):
        torch.testing.assert_close([*found.layers], [*nets[0](maps).layers])
        assert found.layers[-1].boxes.shape[1] == few


def test_a_loss_of_what_is_not_finite_is_not_finite():
    """Whatever of the boxes it is, of whichever box, with and without objects: a guard of losses sees it."""
    torch.manual_seed(0)
    finite = Boxes(torch.randn(1, 6, 3), *(torch.rand(1, 6, 4) * 20 + 5 for _ in range(3)))
    cases = [(part, box, value) for part in range(4) for box in range(6) for value in (math.nan, math.inf)]
    for part, box, value in each(cases):
        parts = [each_part.clone() for each_part in finite]
        parts[part][0, box, 0] = value
        objects = Objects(torch.tensor([[9.0, 9, 6, 6], [20, 12, 8, 4]]), torch.tensor([1, 2]))
        found = losses_of(Boxes(*parts), [objects], 2.0)
        assert not torch.stack([*found.values()]).isfinite().all()
    found = losses_of(finite, [objects], 2.0)
    assert torch.stack([*found.values()]).isfinite().all()


# the detector

VIT = dict(type='mmlape.TimmViT', model_name='test_vit', frozen=True, out_indices=[1, 3])
HEAD = dict(num_classes=3, proposal_size=8.0, **{key: value for key, value in TINY.items() if key != 'patch_size'})
PREPROCESSOR = dict(type='DetDataPreprocessor', mean=[0.0] * 3, std=[1.0] * 3, pad_size_divisor=PATCH)


def detector(**changes):
    init_default_scope('mmdet')
    cfg = dict(
        type='mmlape.PlainDETR', backbone=VIT, bbox_head=HEAD, data_preprocessor=PREPROCESSOR,
        test_cfg=dict(max_per_img=6),
    )  # fmt: skip
    torch.manual_seed(0)
    return MODELS.build(copy.deepcopy({**cfg, **changes}))


def samples(factors=(1.0, 1.0)):
    meta = dict(batch_input_shape=PADDED, scale_factor=factors[::-1])
    return [DetDataSample(metainfo=dict(meta, img_shape=size, ori_shape=size)) for size in SIZES]


def test_predicted_objects_are_the_public_codes(golden):
    """In pixels of the original images, the best ones of all classes."""
    weights = public_weights(golden['plain']['shapes'])
    net, _, (maps, _) = head_of('plain', weights)
    head = PlainDETRHead(maps.shape[1], 3, test_cfg=dict(max_per_img=6), **TINY)
    head.net = net.eval()
    with torch.no_grad():
        found = head.predict(maps.chunk(2, 1), samples(FACTORS))
    for objects, wanted in zip(found, golden['plain']['predicted'], strict=True):
        assert objects.labels.tolist() == wanted['labels']
        for ours, theirs in (('scores', 'scores'), ('bboxes', 'boxes')):
            torch.testing.assert_close(objects[ours], torch.tensor(wanted[theirs], dtype=torch.float64), **EXACT)


def test_a_released_head_loads_and_computes_the_same(golden, tmp_path):
    """By its names, without the ViT; of the rows by category id those of the categories, but for the proposals."""
    data = golden['dinov3']
    weights = public_weights(data['shapes'])
    released = {key: value for key, value in weights.items() if not key.startswith('backbone')}
    file, vit_file = (str(tmp_path / name) for name in ('head.pth', 'vit.pth'))
    torch.save({'model': released}, file)
    arch = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=32)
    vit = dict(
        type='mmlape.VisionTransformer', arch=arch, img_size=64, patch_size=PATCH, out_indices=[0, 1],
        out_type='featmap', frozen_stages=2,
    )  # fmt: skip
    torch.save(MODELS.build(vit).state_dict(), vit_file)
    head = dict(HEAD, num_classes=80, num_encoder_layers=2, normalised_pe=True, proposal_size=50.0)
    vit |= dict(init_cfg=dict(type='Pretrained', checkpoint=vit_file))
    model = detector(backbone=vit, bbox_head=head).double()
    report = load_model(model, file)
    assert "the names of Plain-DETR's or DINOv3's detector" in report.renamed and not report.problems
    net = model.bbox_head.net.eval()
    with torch.no_grad():
        found = net(*head_of('dinov3', weights)[2]).layers[-1]
    used = [row for row in range(91) if row not in UNUSED_IDS]
    logits = torch.tensor(data['logits'], dtype=torch.float64)[..., used]
    torch.testing.assert_close(found.logits, logits, **EXACT)
    torch.testing.assert_close(found.boxes, torch.tensor(data['boxes'], dtype=torch.float64), **EXACT)
    assert describe_heads(released)['model'] == 'Plain-DETR of mmdet, 80 classes'


@pytest.mark.parametrize('windows', [1, 2])
def test_a_frozen_vit_is_only_read(windows):
    """Losses of a batch with an image without objects, and a gradient for each parameter of the head alone."""
    model = detector(windows=windows).train()
    data = demo_mm_inputs(2, [(3, *size) for size in SIZES], num_items=[3, 0], num_classes=3)
    found = model(**model.data_preprocessor(data, training=True), mode='loss')
    loss, _ = model.parse_losses(found)
    loss.backward()
    trained = {name for name, value in model.named_parameters() if value.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if name.startswith('bbox_head.')}
    assert len(found) == 3 * (1 + 2 * 2) and torch.isfinite(loss)


def test_windows_are_complete_patches_that_cover_the_image():
    """A map of patches that see nothing else is the same from windows; the other half is the resized image's."""
    cases = [(count, size) for count in (2, 3) for size in (PATCH * count, 80, 96, 112, 128)]
    for count, size in each(cases):
        found = sides(size, count, PATCH)
        assert len(set(found[:-1])) == 1 and found[0] % PATCH == 0 and sum(found) == size and found[-1] > 0
        images = torch.rand(1, 3, size, 128)
        local = windowed(lambda window: F.avg_pool2d(window, PATCH), images, count, PATCH)[:, 3:]
        torch.testing.assert_close(local, F.avg_pool2d(images, PATCH))
    with pytest.raises(DataError, match='a side of 32 pixels has no 4 windows of patches of 16: give larger images'):
        sides(32, 4, PATCH)


@pytest.mark.release
def test_it_compiles_without_a_graph_break():
    """The head in training, and the complete detector with a frozen ViT and windows."""
    model = detector(windows=2, backbone=dict(VIT, out_indices=[0]), bbox_head=dict(HEAD, num_layers=1))

    def trained(maps):
        return model.bbox_head([maps], [(60, 90)]).layers[-1]

    for run, given in ((trained, torch.rand(1, 128, 4, 6)), (model.eval().best_objects, torch.rand(1, 3, 64, 96))):
        model.train(run is trained)
        compiled = torch.compile(run, backend='eager', fullgraph=True, dynamic=False)
        torch.testing.assert_close(tuple(compiled(given)), tuple(run(given)))
