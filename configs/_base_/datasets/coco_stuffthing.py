"""COCO 2017 with instance masks and COCO-Stuff maps: HTC++'s InstaBoost and multi-scale resizing; one image per GPU.

InstaBoost needs `pip install --no-deps instaboostfast`; `train_dataloader.dataset.pipeline.1.aug_ratio=0` is without.
"""

_base_ = 'coco.py'

crop_size = (1024, 1024)  # what costs are counted for; nothing is cropped

train_pipeline = [
    _base_.load_image,
    dict(
        type='mmlape.InstaBoost',
        action_candidate=('normal', 'horizontal', 'skip'),
        action_prob=(1, 0, 0),
        scale=(0.8, 1.2),
        dx=15,
        dy=15,
        theta=(-1, 1),
        color_prob=0.5,
        hflag=False,
        aug_ratio=0.5,
    ),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True, with_seg=True),
    dict(type='RandomResize', scale=[(1600, 400), (1600, 1400)], keep_ratio=True),
    dict(type='RandomFlip', prob=0.5),
    _base_.pack,
]
resize = dict(type='Resize', scale=(1600, 1400), keep_ratio=True)
test_pipeline = [_base_.load_image, resize, _base_.load_masks, _base_.pack_test]
train_dataloader = dict(
    batch_size=1, dataset=dict(data_prefix=dict(seg='stuffthingmaps/train2017/'), pipeline=train_pipeline)
)
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric=['bbox', 'segm'])
test_evaluator = val_evaluator
