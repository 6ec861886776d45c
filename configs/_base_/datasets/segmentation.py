"""What the datasets of segmentation share: endless, shuffled images to train; one image at a time to test; mIoU."""

default_scope = 'mmseg'
visualizer = dict(type='SegLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

# parts of the pipelines; a test loads annotations after resizing, since scores are computed at the image's own size
load_image = dict(type='LoadImageFromFile')
load_labels = dict(type='LoadAnnotations')
load_reduced = dict(type='LoadAnnotations', reduce_zero_label=True)
loaded = [load_image, load_labels]
loaded_reduced = [load_image, load_reduced]
random_resize = dict(type='RandomResize', ratio_range=(0.5, 2.0), keep_ratio=True)
random_crop = dict(type='RandomCrop', cat_max_ratio=0.75)
resize_test = dict(type='Resize', keep_ratio=True)
pack = dict(type='PackSegInputs')
augment = [dict(type='RandomFlip', prob=0.5), dict(type='PhotoMetricDistortion'), pack]
stretch = dict(type='ResizeToMultiple', size_divisor=32)  # as in the tests of ViT-Adapter's public code
# ADE20K's folders
ade_train = dict(data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'))
ade_val = dict(data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'))

train_dataloader = dict(num_workers=4, persistent_workers=True, sampler=dict(type='InfiniteSampler', shuffle=True))
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(test_mode=True),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='mmlape.IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
