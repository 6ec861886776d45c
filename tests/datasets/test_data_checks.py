"""What the quick check asks of a config and its data, beside the faults of single files: see contract.py."""

from data_helpers import ade_cfg, build, coco_cfg, edit, folder_cfg, refusal

from mmlape.lab.datasets.checks import check_data
from mmlape.lab.datasets.mini.make import ADE_CLASSES
from mmlape.lab.datasets.mini.scenes import DIGIT_NAMES


def test_classes_of_the_config_that_are_not_those_of_the_data(mini):
    text = refusal(coco_cfg(mini / 'coco', classes=None, num_classes=80))
    assert 'only in the data: zero, one' in text and 'only in the config: person, bicycle' in text
    assert f'data_root={mini}/coco ' in text
    text = refusal(ade_cfg(mini / 'ade', type='ADE20KDataset', num_classes=150))
    assert 'classes.txt' in text and 'only in the data: zero' in text and 'only in the config: wall' in text
    # MMDetection takes labels in the file's order whatever the config says: names would be exchanged silently
    assert 'another order' in refusal(coco_cfg(mini / 'coco', classes=DIGIT_NAMES[::-1]))
    assert 'another order' in refusal(folder_cfg(mini / 'digits', metainfo=dict(classes=DIGIT_NAMES)))
    assert 'only in the config' in refusal(folder_cfg(mini / 'digits', type='ImageNet', num_classes=1000))
    cfg = coco_cfg(mini / 'coco', classes=DIGIT_NAMES[2:5], num_classes=3)
    assert check_data(cfg)[0].split == 'train' and build(cfg).metainfo['classes'] == DIGIT_NAMES[2:5]
    path = mini / 'coco' / 'annotations' / 'instances_val2017.json'
    edit(path, lambda content: content['categories'][3].update(name='drei'))
    text = refusal(coco_cfg(mini / 'coco'))
    assert str(path) in text and 'only in the data: drei; only in the config: three' in text


def test_heads_that_differ_from_the_data(mini):
    text = refusal(coco_cfg(mini / 'coco', num_classes=80))
    assert 'model.roi_head.bbox_head.num_classes is 80' in text and 'has 10 classes' in text
    cfg = coco_cfg(mini / 'coco')
    cfg.model.panoptic_head = dict(num_things_classes=80, num_stuff_classes=0)
    assert 'model.panoptic_head.num_things_classes is 80' in refusal(cfg)
    cfg.model.panoptic_head.num_stuff_classes = 53
    check_data(cfg)
    cfg = ade_cfg(mini / 'ade', metainfo=dict(classes=ADE_CLASSES))
    cfg.model.auxiliary_head[0].num_classes = 150
    assert 'model.auxiliary_head[0].num_classes is 150' in refusal(cfg)
    cfg = folder_cfg(mini / 'digits')
    cfg.data_preprocessor.num_classes = 1000
    assert 'data_preprocessor.num_classes is 1000' in refusal(cfg)
