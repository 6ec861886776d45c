"""Configs re-rooted to other data: their paths, classes and heads."""

import itertools
import json

import pytest
from config_helpers import ROOT, load
from contract import edit_json
from data_helpers import (
    annotations_of,
    build,
    coco_config,
    folders_config,
    make_coco,
    make_folders,
    make_maps,
    maps_config,
)
from drawn_data import NAMES
from each import each
from test_contract_maps import require_map

from mmlape.errors import ConfigError, DataError
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.datasets.retarget import retarget_data


def test_retarget_coco(tmp_path):
    """Its classes are in the order of the file."""
    make_coco(tmp_path)
    for split in ('train', 'val'):
        edit_json(annotations_of(tmp_path, split), lambda content: content['categories'].reverse())
    cfg = coco_config('data/coco', None, 80)
    cfg.train_dataloader.dataset = dict(type='RepeatDataset', times=2, dataset=cfg.train_dataloader.dataset)
    cfg.test_evaluator = [cfg.test_evaluator]
    cfg.val_evaluator.outfile_prefix = 'data/coco2017/results'  # another folder, whose name only begins like it
    changes = '\n'.join(retarget_data(cfg, tmp_path))
    assert cfg.val_evaluator.outfile_prefix == 'data/coco2017/results'
    assert 'roi_head.bbox_head.num_classes: 80 -> 3' in changes and f'data/coco -> {tmp_path}' in changes
    assert cfg.model.roi_head.mask_head[0].num_classes == 3 and cfg.model.rpn_head.num_classes == 1
    assert cfg.model.roi_head.semantic_head.num_classes == 183, 'of maps of stuff'
    assert cfg.val_evaluator.ann_file == cfg.test_evaluator[0].ann_file == str(annotations_of(tmp_path, 'val'))
    check_data(cfg)
    dataset = build(cfg).dataset
    assert dataset.metainfo['classes'] == NAMES[::-1] and len(dataset.metainfo['palette']) == 3
    labels = [instance['bbox_label'] for instance in dataset.get_data_info(0)['instances']]
    stored = json.loads(annotations_of(tmp_path, 'train').read_text())['annotations']
    assert labels == [3 - entry['category_id'] for entry in stored if entry['image_id'] == 1]


def test_retarget_below_the_old_root_moves_once(tmp_path):
    make_coco(tmp_path / 'coco')
    cfg = coco_config(tmp_path)
    dict.__setitem__(cfg._cfg_dict, 'test_dataloader', cfg.val_dataloader)  # one object under two names
    retarget_data(cfg, f'{tmp_path}/coco/')
    assert cfg.data_root == cfg.test_dataloader.dataset.data_root.rstrip('/') == f'{tmp_path}/coco'
    check_data(cfg)


def test_retarget_label_maps_and_folders(tmp_path):
    make_maps(maps := tmp_path / 'maps')
    cfg = maps_config('data/ade', None, 150, type='mmseg.ADE20KDataset')
    retarget_data(cfg, maps)
    assert cfg.model.decode_head.num_classes == cfg.model.auxiliary_head[0].num_classes == 3
    check_data(cfg)
    dataset = build(cfg)
    assert dataset.metainfo['classes'] == NAMES and dataset.reduce_zero_label
    require_map(dataset[0])
    make_folders(folders := tmp_path / 'folders')
    cfg = folders_config('data/imagenet', None, 1000, type='ImageNet')
    retarget_data(cfg, folders)
    assert cfg.model.head.num_classes == cfg.data_preprocessor.num_classes == 3
    check_data(cfg)
    assert build(cfg, 'val').metainfo['classes'] == NAMES
    (folders / 'list.txt').write_text('a.png 0')
    with pytest.raises(DataError, match='No classes found'):
        retarget_data(folders_config('data/imagenet', None, ann_file='list.txt'), folders)
    assert len(retarget_data(folders_config('data/imagenet', ann_file='list.txt'), folders)) == 1


def test_a_top_k_that_few_classes_cannot_have_is_left_out(tmp_path):
    for split, name in itertools.product(('train', 'val'), ('cat', 'dog')):
        (tmp_path / split / name).mkdir(parents=True)
    for topk, kept in each([((1, 2, 5), (1, 2)), ((1, 2), (1, 2)), ((5,), (1,)), (5, (1,)), (2, 2)]):
        cfg = folders_config('data/imagenet', None, 1000, type='ImageNet')
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


def test_retarget_refuses_weights_of_single_classes(tmp_path):
    make_maps(tmp_path)
    cfg = maps_config(tmp_path, count=2)
    cfg.model.decode_head.loss_cls = dict(class_weight=[1.0, 3.0, 0.1])
    with pytest.raises(ConfigError, match=r'model\.decode_head\.num_classes'):
        retarget_data(cfg, tmp_path)
