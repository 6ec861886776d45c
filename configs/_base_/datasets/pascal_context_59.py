"""Pascal Context, 59 classes: side 520 scaled by 0.5 to 2, then a crop of 480; two images per GPU."""

_base_ = 'segmentation.py'

data_root = 'data/VOCdevkit/VOC2010/'
crop_size = (480, 480)
scale = (520, 520)
stride = (320, 320)  # of the windows in tests
num_classes = 59

train_pipeline = [
    _base_.load_image,
    _base_.load_reduced,
    dict(type='RandomResize', scale=scale, ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    *_base_.augment,
]
test_pipeline = [
    _base_.load_image,
    dict(type='Resize', scale=(4096, 520), keep_ratio=True),
    _base_.stretch,
    _base_.load_reduced,
    _base_.pack,
]
dataset = dict(
    type='PascalContextDataset59',
    data_root=data_root,
    data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClassContext'),
)
train_files = dict(ann_file='ImageSets/SegmentationContext/train.txt')
val_files = dict(ann_file='ImageSets/SegmentationContext/val.txt')
train_dataloader = dict(batch_size=2, dataset=dict(pipeline=train_pipeline, **train_files, **dataset))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **val_files, **dataset))
test_dataloader = val_dataloader
