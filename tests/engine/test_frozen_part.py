"""What of a model is frozen: each head behind the stored features gives what it gives behind the images."""

import copy

import pytest
import torch
from mmcv.transforms import RandomFlip
from mmdet.structures import DetDataSample
from mmengine.config import ConfigDict
from mmengine.dataset import pseudo_collate
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData, PixelData
from mmpretrain.structures import DataSample
from mmseg.datasets.transforms import RandomMosaic
from mmseg.structures import SegDataSample
from torch.utils._pytree import tree_leaves

from mmlape.errors import ConfigError
from mmlape.lab.training.frozen.part import FrozenPart
from mmlape.lab.training.frozen.store import FeatureStore, image_names

SIDE, WIDTH = 64, 24
ARCH = dict(embed_dims=WIDTH, num_layers=4, num_heads=3, feedforward_channels=48)
SMALL = dict(model_name='vit_tiny_patch16_224', img_size=SIDE, model_args=dict(embed_dim=WIDTH, depth=4, num_heads=3))
TIMM = dict(type='mmlape.TimmViT', frozen=True, **SMALL)
OWN = dict(
    type='mmlape.VisionTransformer', arch=ARCH, img_size=SIDE, out_type='featmap', frozen_stages=4, final_norm='every'
)
PYRAMID = dict(
    type='mmlape.ViTPyramid', arch=ARCH, img_size=SIDE, frozen_stages=4, up_norm_cfg=dict(type='GN', num_groups=3)
)
ADAPTER = dict(
    type='mmlape.TimmViTAdapter', vit=dict(SMALL, frozen=True), mode='read-only', conv_inplane=8, deform_num_heads=3
)
NORM = dict(mean=[127.5] * 3, std=[127.5] * 3)
HEAD = dict(num_classes=3, channels=12, norm_cfg=dict(type='BN'), align_corners=False)


def segmentor(backbone, **head):
    return dict(
        type='mmseg.EncoderDecoder', backbone=backbone, decode_head=dict(HEAD, **head),
        data_preprocessor=dict(type='mmseg.SegDataPreProcessor', size=(SIDE, SIDE), **NORM),
        train_cfg=dict(), test_cfg=ConfigDict(mode='whole'),
    )  # fmt: skip


def upernet(backbone):
    return segmentor(backbone, type='UPerHead', in_channels=[WIDTH] * 4, in_index=[0, 1, 2, 3], pool_scales=(1, 2))


def detector(windows):
    head = dict(
        num_classes=3, proposal_size=8.0, num_queries=5, num_aux_queries=7, embed_dims=32, num_heads=4, num_layers=2,
        feedforward_channels=48, rpb_channels=16,
    )  # fmt: skip
    preprocessor = dict(type='mmdet.DetDataPreprocessor', **NORM)
    return dict(
        type='mmlape.PlainDETR', backbone=TIMM, bbox_head=head, windows=windows, data_preprocessor=preprocessor
    )


def classifier(backbone):
    return dict(
        type='mmpretrain.ImageClassifier', backbone=dict(backbone, out_type='cls_token'),
        head=dict(type='mmpretrain.LinearClsHead', num_classes=3, in_channels=WIDTH), data_preprocessor=NORM,
    )  # fmt: skip


LINEAR = dict(type='FCNHead', in_channels=WIDTH, channels=WIDTH, num_convs=0, concat_input=False, in_index=0)
PMT = dict(num_heads=2, num_prefix=1, patch_size=16, num_queries=6, num_layers=2, feedforward_channels=48)
CASES = {
    'linear': segmentor(TIMM, **LINEAR),
    'own': segmentor(OWN, **LINEAR),
    'segmenter': segmentor(
        TIMM, type='SegmenterMaskTransformerHead', in_channels=WIDTH, channels=WIDTH, embed_dims=WIDTH, num_heads=3,
        num_layers=1, dropout_ratio=0.0, norm_cfg=dict(type='LN'),
    ),
    'pmt': dict(
        segmentor(dict(TIMM, out_indices=[1, 3], out_type='raw')),
        decode_head=dict(type='mmlape.PlainMaskHead', in_channels=[WIDTH] * 2, num_classes=3, **PMT),
    ),
    'pyramid': upernet(PYRAMID),
    'adapter': upernet(ADAPTER),
    'plain-detr': detector(1),
    'windows': detector(2),
    'classifier': classifier(TIMM),
}  # fmt: skip


def built(name, **backbone):
    """Return a model in training mode, and two samples of its pipeline."""
    cfg = copy.deepcopy(CASES[name])
    cfg['backbone'].update(backbone)
    scope = cfg['type'].partition('.')[0]
    init_default_scope('mmdet' if scope == 'mmlape' else scope)
    torch.manual_seed(0)
    samples = []
    for _ in range(2):
        sample = {'mmseg': SegDataSample, 'mmlape': DetDataSample, 'mmpretrain': DataSample}[scope]()
        size = (SIDE, SIDE)
        sample.set_metainfo(dict(img_shape=size, ori_shape=size, pad_shape=size, scale_factor=(1.0, 1.0)))
        if scope == 'mmseg':
            sample.gt_sem_seg = PixelData(data=torch.randint(3, (1, *size)))
        elif scope == 'mmpretrain':
            sample.set_gt_label(1)
        else:
            boxes = torch.tensor([[4.0, 8, 40, 50]])
            sample.gt_instances = InstanceData(bboxes=boxes, labels=torch.tensor([1]))
        samples.append(dict(inputs=torch.randint(256, (3, *size), dtype=torch.uint8), data_samples=sample))
    return MODELS.build(cfg).train(), samples


@pytest.mark.parametrize('name', CASES)
def test_a_head_gives_from_stored_features_what_it_gives_from_images(name, tmp_path):
    model, samples = built(name)
    part = FrozenPart(model, pseudo_collate(samples))
    part.check(samples, pseudo_collate)
    assert part.with_image == (name == 'adapter')
    store = FeatureStore(tmp_path, {}, ['image'], 2, torch.float32)
    store.write(0, part.views(samples, pseudo_collate, training=True))
    model.eval()

    def outputs(batch):
        return tree_leaves(model(**model.data_preprocessor(batch, True), mode='tensor'))

    with torch.no_grad():
        expected = outputs(pseudo_collate(samples))
        with part.replaying():
            found = outputs(pseudo_collate([store.read(0, view).sample() for view in range(2)]))
    assert len(expected) == len(found) > 0
    for one, other in zip(expected, found):
        assert float((one - other).abs().max()) <= 1e-6 * float(one.abs().max())


def test_what_is_trained_in_the_layers_is_named():
    for name, changes, trained in (
        ('pyramid', dict(frozen_stages=3), r'blocks\.3\.'),
        ('adapter', dict(vit=SMALL), r'vit\.patch_embed'),
        ('own', dict(final_norm=True), r'frozen but for norm\.weight, norm\.bias; '),
    ):
        model, samples = built(name, **changes)
        with pytest.raises(ConfigError, match=trained):
            FrozenPart(model, pseudo_collate(samples)).check(samples, pseudo_collate)


def test_an_image_that_is_read_with_a_weight_of_zero_is_stored():
    model, samples = built('linear')
    model.weight, extract = torch.nn.Parameter(torch.zeros(())), model.extract_feat
    model.extract_feat = lambda images: [one + model.weight * images.mean() for one in extract(images)]
    part = FrozenPart(model, pseudo_collate(samples))
    part.check(samples, pseudo_collate)
    assert part.with_image


def test_an_image_that_only_the_prediction_reads_is_found():
    model, samples = built('linear')
    part = FrozenPart(model, pseudo_collate(samples))
    part.check(samples, pseudo_collate)
    (view,) = part.views(samples[:1], pseudo_collate, training=False)
    stored = pseudo_collate([view.sample()])
    assert part.runs_once(stored)
    decode = model.encode_decode
    model.encode_decode = lambda images, metas: decode(images, metas) * images.mean()
    assert not part.runs_once(stored)


class Files:
    """A dataset of files and a transform."""

    def __init__(self, files, transform):
        self.files, self.transform = files, transform

    def __len__(self):
        return len(self.files)

    def get_data_info(self, index):
        return dict(img_path=str(self.files[index]))


@pytest.mark.parametrize(
    ('transform', 'mixes'), [(RandomFlip(prob=0.5), False), (RandomMosaic(prob=0.5, img_scale=(32, 32)), True)]
)
def test_where_images_are_mixed_each_name_is_of_all(transform, mixes, tmp_path):
    files = [tmp_path / name for name in 'abc']
    for file in files:
        file.write_text(file.name)
    before = image_names(Files(files, transform))
    files[0].write_text('changed')
    changed = [one != other for one, other in zip(before, image_names(Files(files, transform)))]
    assert changed == [True, mixes, mixes]
