"""Complete detectors and segmentors as their authors released them: files of their layouts, and the models' outputs.

No released file can be had here. Files are written under old names, by a table that is the inverse of the package's
and written by hand, or hold the names of DINOv3's public code, whose outputs are in ``golden/heads``.
"""

import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_helpers import save
from config_helpers import CONFIGS, build_without_data, load
from mmengine.config import ConfigDict
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from model_helpers import randomise
from torch import nn

from mmlape.checkpoint import load_model
from mmlape.checkpoint.converting import convert, inspect
from mmlape.checkpoint.heads import describe_heads
from mmlape.checkpoint.opening import read_checkpoint
from mmlape.errors import CheckpointError

GOLDEN = Path(__file__).parents[1] / 'golden'
sys.path.append(str(GOLDEN))
from recording import uniform  # noqa: E402

DIMS = 8
ARCH = dict(embed_dims=DIMS, num_layers=4, num_heads=2, feedforward_channels=16)
ADAPTER = dict(
    type='mmlape.ViTAdapter',
    arch=ARCH,
    img_size=32,
    conv_inplane=4,
    deform_num_heads=2,
    vit_feature_source='interaction',
)
# the old name of each part; names of mmdetection 2 and mmcv 1, from what they print
OLD = {
    'pixel_decoder.encoder.layers.#.self_attn.': 'pixel_decoder.encoder.layers.#.attentions.0.',
    'pixel_decoder.encoder.layers.#.ffn.layers.': 'pixel_decoder.encoder.layers.#.ffns.0.layers.',
    'transformer_decoder.layers.#.cross_attn.attn.': 'transformer_decoder.layers.#.attentions.0.attn.',
    'transformer_decoder.layers.#.self_attn.attn.': 'transformer_decoder.layers.#.attentions.1.attn.',
    'transformer_decoder.layers.#.ffn.layers.': 'transformer_decoder.layers.#.ffns.0.layers.',
}


def mask2former(classes=5, hidden=32, channels=DIMS) -> dict:
    """A small semantic head with mmsegmentation's arguments."""
    attn = dict(embed_dims=hidden, num_heads=4, dropout=0.0, batch_first=True)
    ffn = dict(embed_dims=hidden, feedforward_channels=48, num_fcs=2, ffn_drop=0.0)
    deform = dict(embed_dims=hidden, num_heads=4, num_levels=3, num_points=4, dropout=0.0, batch_first=True)
    positions = dict(num_feats=hidden // 2, normalize=True)
    return dict(
        type='Mask2FormerHead',
        num_classes=classes,
        in_channels=[channels] * 4,
        strides=[4, 8, 16, 32],
        feat_channels=hidden,
        out_channels=hidden,
        num_queries=6,
        pixel_decoder=dict(
            type='mmdet.MSDeformAttnPixelDecoder',
            num_outs=3,
            norm_cfg=dict(type='GN', num_groups=32),
            act_cfg=dict(type='ReLU'),
            encoder=dict(num_layers=2, layer_cfg=dict(self_attn_cfg=deform, ffn_cfg=ffn)),
            positional_encoding=positions,
        ),
        positional_encoding=positions,
        transformer_decoder=dict(
            num_layers=4,
            return_intermediate=True,
            layer_cfg=dict(self_attn_cfg=attn, cross_attn_cfg=attn, ffn_cfg=ffn),
        ),
        loss_cls=dict(type='mmdet.CrossEntropyLoss', class_weight=[1.0] * classes + [0.1]),
        loss_mask=dict(type='mmdet.CrossEntropyLoss', use_sigmoid=True),
        loss_dice=dict(type='mmdet.DiceLoss', use_sigmoid=True, activate=True),
    )


def upernet(classes=5) -> dict:
    return dict(
        type='UPerHead',
        in_channels=[DIMS] * 4,
        in_index=[0, 1, 2, 3],
        channels=8,
        num_classes=classes,
        pool_scales=(1, 2),
    )


def segmentor(head: dict, backbone: dict | None = None) -> nn.Module:
    """A segmentor with random values for every parameter, in eval mode."""
    init_default_scope('mmseg')
    head = dict(head, train_cfg=None, test_cfg=None) if head['type'] == 'Mask2FormerHead' else head
    cfg = dict(type='mmseg.EncoderDecoder', backbone=backbone or ADAPTER, decode_head=head)
    model = MODELS.build(ConfigDict(cfg))
    return randomise(revert_sync_batchnorm(model))


def old_names(model: nn.Module, prefix='') -> dict[str, torch.Tensor]:
    """A model's tensors as mmcv 1.x named them."""
    out = {}
    for name, value in model.state_dict().items():
        for new, old in OLD.items():
            name = re.sub(re.escape(new).replace(r'\#', r'(\d+)'), old.replace('#', r'\1'), name)
        out[prefix + name] = value
    return out


@torch.no_grad()
def raw(model: nn.Module) -> list[torch.Tensor]:
    """What a segmentor computes before its post-processing."""
    x = torch.randn(1, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    maps = model.backbone(x)
    if not hasattr(model.decode_head, 'query_feat'):
        return [model.decode_head(maps)]
    from mmseg.structures import SegDataSample

    classes, masks = model.decode_head(maps, [SegDataSample(metainfo=dict(img_shape=(64, 96)))])
    return [*classes, *masks]


def assert_equal(ours: nn.Module, theirs: nn.Module) -> None:
    for a, b in zip(raw(ours), raw(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.fixture(scope='module')
def released() -> nn.Module:
    """A Mask2Former."""
    return segmentor(mask2former())


def test_a_mask2former_of_mmcv_1_is_read_complete(tmp_path, released):
    tensors = old_names(released, 'module.')
    tensors['module.backbone.blocks.0.attn.relative_position_index'] = torch.zeros(4, 4, dtype=torch.int64)
    meta = dict(mmseg_version='0.20.2', CLASSES=('wall',), PALETTE=[[0, 0, 0]], config='x = 1')
    file = save(tmp_path / 'm.pth.tar', tensors, 'state_dict', meta=meta)
    model = segmentor(mask2former())
    report = load_model(model, file)
    assert_equal(model, released)
    assert report.dropped == ['backbone.blocks.0.attn.relative_position_index'] and not report.new
    assert len(report.loaded) == report.total == len(tensors) - 1
    changed = len(set(old_names(released)) - set(released.state_dict()))
    assert changed == 2 * 8 + 2 * 4 + 4 * (8 + 4)
    assert report.renamed == f"{changed} tensors, from the names of mmcv 1.x's Mask2Former"


def test_an_archive_around_a_file_is_read(tmp_path, released):
    inner, file = save(tmp_path / 'm.pth', old_names(released), 'state_dict'), tmp_path / 'm.zip'
    with zipfile.ZipFile(file, 'w') as archive:
        archive.write(inner, 'folder/m.pth')
        archive.writestr('__MACOSX/folder/._m.pth', b'')
        archive.writestr('folder/log.txt', b'a log')
    model = segmentor(mask2former())
    load_model(model, str(file))
    assert_equal(model, released)
    with zipfile.ZipFile(tmp_path / 'outer.zip', 'w') as archive:
        archive.write(file, 'm.pth')
    with pytest.raises(CheckpointError, match=r'outer\.zip \(m\.pth\): an archive in an archive; unpack it'):
        read_checkpoint(tmp_path / 'outer.zip')
    Path(inner).write_bytes(b'x' * 99)
    with zipfile.ZipFile(tmp_path / 'broken.zip', 'w') as archive:
        archive.write(inner, 'm.pth')
    with pytest.raises(CheckpointError, match=r'broken\.zip \(m\.pth\): unknown kind of file'):
        read_checkpoint(tmp_path / 'broken.zip')


@pytest.mark.parametrize('size', [64, 96])
def test_a_segmentor_over_beit_is_read(tmp_path, size):
    """Its LayerScale has another name; tables of another size are refused: the windows are those of the training."""
    beit = dict(ADAPTER, img_size=64, pe_type='beit', qkv_bias='qv', layer_scale_init_value=1e-6, with_cls_token=True)
    source, model = segmentor(upernet(), beit), segmentor(upernet(), dict(beit, img_size=size))
    tensors = {re.sub(r'\.gamma([12])$', r'.gamma_\1', name): value for name, value in source.state_dict().items()}
    index = {f'backbone.blocks.{i}.attn.relative_position_index': torch.zeros(17, 17).long() for i in range(4)}
    file = save(tmp_path / 'b.pth', tensors | index, 'state_dict')
    if size != 64:
        wrong = r'wrong img_size of backbone, for which it resized blocks.*bias_table \(4\): 4x4 -> 6x6'
        with pytest.raises(CheckpointError, match=wrong):
            load_model(model, file)
        return
    report = load_model(model, file)
    x = torch.randn(1, 3, 64, 64)
    assert torch.equal(model.decode_head(model.backbone(x)), source.decode_head(source.backbone(x)))
    assert set(report.dropped) == set(index) and not report.new
    assert set(convert(file, tmp_path / 'out.pth', 'mmseg')) == set(index)
    assert set(read_checkpoint(tmp_path / 'out.pth')['state_dict']) == set(source.state_dict())


def test_dinov3s_segmentor_computes_the_public_codes_logits(tmp_path):
    """Its head file has the adapter, but not the ViT, which the file of ``init_cfg`` has."""
    golden = np.load(GOLDEN / 'heads' / 'dinov3_segmentor.npz')
    shapes = [tuple(map(int, shape.split())) for shape in golden['shapes']]
    head = {name: uniform(name, shape).float() for name, shape in zip(golden['names'].tolist(), shapes)}
    vit = dict(model_name='vit_small_patch16_dinov3', model_args=dict(embed_dim=DIMS, depth=4, num_heads=2))
    kwargs = dict(conv_inplane=4, deform_num_heads=2)
    backbone = dict(type='mmlape.TimmViTAdapter', vit=dict(vit, frozen=True), mode='read-only', **kwargs)
    source = segmentor(upernet(), backbone).backbone
    parts = {f'segmentation_model.0.{k}': v for k, v in source.state_dict().items() if not k.startswith('vit.')}
    own = save(tmp_path / 'vit.pth', source.vit.state_dict(), None)
    file = save(tmp_path / 'head.pth', {**parts, **head}, None)

    named = segmentor(mask2former(), dict(backbone, init_cfg=dict(type='Pretrained', checkpoint=own)))
    report = load_model(named, file)
    for name, value in source.state_dict().items():
        assert torch.equal(named.backbone.state_dict()[name], value), name
    assert f'are those of {own}' in report.notes[0]
    assert report.renamed == f"{len(parts) + len(head)} tensors, from the names of DINOv3's segmentor"
    assert len(report.loaded) == report.total and not report.new
    decoder = named.decode_head.double()
    maps = [torch.from_numpy(golden[f'map{i}']).double() for i in range(4)]
    from mmseg.structures import SegDataSample

    with torch.no_grad():
        classes, masks = decoder(maps, [SegDataSample(metainfo=dict(img_shape=(64, 64)))])
    for ours, key in ((classes[-1], 'classes'), (masks[-1], 'masks')):
        theirs = torch.from_numpy(golden[key])
        assert theirs.std() > 0.1
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)  # the file has float32, points are float32
    assert inspect(file)['layout'] == 'a head without its backbone'
    convert(file, tmp_path / 'converted.pth', 'mmseg')
    written = set(read_checkpoint(tmp_path / 'converted.pth')['state_dict'])
    assert written == {name for name in report.loaded if not name.startswith('backbone.vit.')}


def test_a_linear_head_takes_its_backbone_from_another_file(tmp_path):
    """DINOv2's two files: the head, and the ViT under its own names."""
    options = dict(out_indices=[2, 3], out_type='featmap', layer_scale_init_value=1.0, final_norm='every')
    backbone = dict(type='mmlape.VisionTransformer', arch=ARCH, img_size=28, patch_size=14, **options)
    backbone |= dict(patch_padding='center', interpolate_mode='bicubic-offset')
    head = dict(type='mmlape.BNHead', in_channels=[DIMS, DIMS], num_classes=5)
    source = segmentor(head, backbone)
    own = {re.sub(r'gamma([12])', r'ls\1.gamma', k): v for k, v in source.backbone.state_dict().items()}
    own['mask_token'] = torch.zeros(1, DIMS)
    vit = save(tmp_path / 'vit.pth', own, None)
    tensors = {k: v for k, v in source.state_dict().items() if k.startswith('decode_head.')}
    file = save(tmp_path / 'head.pth', tensors, 'state_dict', meta={})
    model = segmentor(head, dict(backbone, init_cfg=dict(type='Pretrained', checkpoint=vit)))
    report = load_model(model, file)
    assert_equal(model, source)
    assert model.backbone.load_report.dropped == ['mask_token'] and not report.new
    told = inspect(file)
    assert told['model'] == 'linear head of mmseg, 5 classes' and 'init_cfg' in told['to load it']
    with pytest.raises(CheckpointError, match=r'a head without its backbone.*model\.backbone\.init_cfg\.checkpoint'):
        load_model(segmentor(head, backbone), file)


HEADS = sorted({path.parent for path in CONFIGS if re.search('_(coco|ade20k|mini-ade|mini-coco)$', path.stem)})


@pytest.mark.parametrize('folder', HEADS, ids=lambda folder: folder.name)
def test_the_heads_of_our_own_configs_are_known(folder):
    """One of each folder, by its toolbox and number of classes, as `checkpoint inspect` prints them."""
    cfg = load(min(folder.glob('*.py'), key=lambda path: ('mini' not in path.name, path.name)))
    rows = describe_heads(dict(build_without_data(cfg).state_dict()))
    classes = len(cfg.classes) if 'classes' in cfg else 80  # COCO's
    assert f' of {cfg.default_scope}, {classes} classes' in rows['model']


def test_a_released_model_is_converted_and_described(tmp_path, released):
    tensors = old_names(released)
    tensors['backbone.blocks.0.attn.relative_position_index'] = torch.zeros(4, 4, dtype=torch.int64)
    file, out = save(tmp_path / 'm.pth', tensors, 'state_dict'), tmp_path / 'out.pth'
    assert convert(file, out, 'mmseg') == ['backbone.blocks.0.attn.relative_position_index']
    written = read_checkpoint(out)['state_dict']
    for name, value in released.state_dict().items():
        assert torch.equal(written.pop(name), value), name
    assert not written
    with pytest.raises(CheckpointError, match=r'a model of mmseg \(Mask2Former\), which --to mmdet does not write'):
        convert(file, tmp_path / 'other.pth', 'mmdet')
    told = inspect(file)
    assert told['model'] == 'Mask2Former of mmseg, 5 classes, 6 queries'
    assert told['names of its head'] == "those of mmcv 1.x's Mask2Former; the loader renames them"
    assert told['layout'] == 'vit-adapter'
