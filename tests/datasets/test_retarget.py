"""Configs re-rooted to other data: their paths, classes and heads."""

import itertools
import json

import numpy as np
import pytest
from config_helpers import ROOT, load
from data_helpers import FOLDERS, ade_cfg, build, coco_cfg, edit, folder_cfg
from each import each
from PIL import Image

from mmlape.errors import ConfigError, DataError
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.datasets.mini.make import ADE_CLASSES
from mmlape.lab.datasets.mini.scenes import DIGIT_NAMES
from mmlape.lab.datasets.retarget import retarget_data


def test_retarget_coco(mini):
    """Its classes are in the order of the file."""
    for split in ('train', 'val'):
        path = mini / f'coco/annotations/instances_{split}2017.json'
        edit(path, lambda content: content['categories'].reverse())
    cfg = coco_cfg('data/coco', classes=None, num_classes=80)
    cfg.val_evaluator.outfile_prefix = 'data/coco2017/results'  # another folder, whose name only begins like it
    changes = '\n'.join(retarget_data(cfg, mini / 'coco'))
    assert cfg.val_evaluator.outfile_prefix == 'data/coco2017/results'
    assert 'roi_head.bbox_head.num_classes: 80 -> 10' in changes and f'data/coco -> {mini}/coco' in changes
    assert cfg.model.roi_head.mask_head[0].num_classes == 10 and cfg.model.rpn_head.num_classes == 1
    assert cfg.model.roi_head.semantic_head.num_classes == 183, 'of maps of stuff'
    assert cfg.val_evaluator.ann_file == cfg.test_evaluator[0].ann_file
    assert cfg.val_evaluator.ann_file == f'{mini}/coco/annotations/instances_val2017.json'
    check_data(cfg)
    dataset = build(cfg).dataset
    assert dataset.metainfo['classes'] == DIGIT_NAMES[::-1] and len(dataset.metainfo['palette']) == 10
    labels = [instance['bbox_label'] for instance in dataset.get_data_info(0)['instances']]
    stored = json.loads((mini / 'coco/annotations/instances_train2017.json').read_text())['annotations']
    assert labels == [10 - entry['category_id'] for entry in stored if entry['image_id'] == 1]


def test_retarget_below_the_old_root_moves_once(mini):
    cfg = coco_cfg(mini)
    dict.__setitem__(cfg._cfg_dict, 'test_dataloader', cfg.val_dataloader)  # one object under two names
    retarget_data(cfg, f'{mini}/coco/')
    assert cfg.data_root == cfg.test_dataloader.dataset.data_root.rstrip('/') == f'{mini}/coco'
    check_data(cfg)


def test_retarget_label_maps_and_folders(mini):
    cfg = ade_cfg('data/ade', type='mmseg.ADE20KDataset', num_classes=150)
    retarget_data(cfg, mini / 'ade')
    assert cfg.model.decode_head.num_classes == cfg.model.auxiliary_head[0].num_classes == 12
    check_data(cfg)
    dataset = build(cfg)
    assert dataset.metainfo['classes'] == ADE_CLASSES and dataset.reduce_zero_label
    stored = np.asarray(Image.open(mini / 'ade/annotations/training/ADE_train_00000001.png'))
    np.testing.assert_array_equal(dataset[0]['gt_seg_map'], np.where(stored == 0, 255, stored - 1))
    cfg = folder_cfg('data/imagenet', type='ImageNet', num_classes=1000)
    retarget_data(cfg, mini / 'digits')
    assert cfg.model.head.num_classes == cfg.data_preprocessor.num_classes == 10
    check_data(cfg)
    assert build(cfg, 'val').metainfo['classes'] == FOLDERS
    (mini / 'digits' / 'list.txt').write_text('a.png 0')
    with pytest.raises(DataError, match='No classes found'):
        retarget_data(folder_cfg('data/imagenet', ann_file='list.txt'), mini / 'digits')
    named = folder_cfg('data/imagenet', ann_file='list.txt', metainfo=dict(classes=FOLDERS))
    assert len(retarget_data(named, mini / 'digits')) == 1


def test_a_top_k_that_few_classes_cannot_have_is_left_out(tmp_path):
    for split, name in itertools.product(('train', 'val'), ('cat', 'dog')):
        (tmp_path / split / name).mkdir(parents=True)
    for topk, kept in each([((1, 2, 5), (1, 2)), ((1, 2), (1, 2)), ((5,), (1,)), (5, (1,)), (2, 2)]):
        cfg = folder_cfg('data/imagenet', type='ImageNet', num_classes=1000)
        cfg.val_evaluator = dict(type='Accuracy', topk=topk)
        changes = [change for change in retarget_data(cfg, tmp_path) if 'topk' in change]
        assert cfg.val_evaluator.topk == kept
        assert changes == ([] if kept == topk else [f'val_evaluator.topk: {topk if topk != 5 else (5,)} -> {kept}'])


MASK2FORMER = {
    'mask2former/mask2former_deit-small-adapter_8xb2-3x_coco.py': ('coco', 'panoptic_head', 10),
    'mask2former/mask2former_deit-small-adapter_16xb1-265500i_coco-panoptic.py': ('coco', 'panoptic_head', 80),
    'mask2former/mask2former_deit-small-adapter_8xb2-160k_ade20k.py': ('ade', 'decode_head', 12),
}


@pytest.mark.parametrize('name', MASK2FORMER)
def test_retarget_mask2former(mini, name):
    """Its class weights end with one for no object; panoptic things and stuff stay as they are."""
    folder, part, count = MASK2FORMER[name]
    cfg = load(ROOT / 'configs' / name)
    retarget_data(cfg, mini / folder)
    check_data(cfg, ('train', 'val') if 'panoptic' not in name else ())
    head, fusion = cfg.model[part], cfg.model.get('panoptic_fusion_head', {})
    key = 'num_classes' if part == 'decode_head' else 'num_things_classes'
    assert head[key] == fusion.get(key, count) == count
    assert head.loss_cls.class_weight == [1.0] * (count + head.get('num_stuff_classes', 0)) + [0.1]


def test_retarget_refuses_weights_of_single_classes(mini):
    cfg = ade_cfg(mini / 'ade', num_classes=2)
    cfg.model.decode_head.loss_cls = dict(class_weight=[1.0, 3.0, 0.1])
    with pytest.raises(ConfigError, match=r'model\.decode_head\.num_classes'):
        retarget_data(cfg, mini / 'ade')
