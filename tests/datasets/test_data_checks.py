"""What the quick check asks of the heads of a config, beside the faults of data: see contract.py."""

from data_helpers import ade_cfg, build, coco_cfg, folder_cfg, refusal

from mmlape.lab.datasets.checks import check_data
from mmlape.lab.datasets.mini.scenes import DIGIT_NAMES


def test_heads_that_differ_from_the_data(mini):
    cfg = coco_cfg(mini / 'coco', num_classes=80)
    text = refusal(cfg)
    assert 'model.roi_head.bbox_head.num_classes is 80' in text and 'has 10 classes' in text
    assert f'data_root={mini}/coco,' in text
    cfg = coco_cfg(mini / 'coco', classes=DIGIT_NAMES[2:5], num_classes=3)
    assert check_data(cfg)[0].split == 'train' and build(cfg).metainfo['classes'] == DIGIT_NAMES[2:5]
    cfg.model.panoptic_head = dict(num_things_classes=80, num_stuff_classes=0)
    assert 'model.panoptic_head.num_things_classes is 80' in refusal(cfg)
    cfg.model.panoptic_head.num_stuff_classes = 53
    check_data(cfg)
    cfg = ade_cfg(mini / 'ade')
    cfg.model.auxiliary_head[0].num_classes = 150
    assert 'model.auxiliary_head[0].num_classes is 150' in refusal(cfg)
    cfg = folder_cfg(mini / 'digits')
    cfg.data_preprocessor.num_classes = 1000
    assert 'data_preprocessor.num_classes is 1000' in refusal(cfg)
