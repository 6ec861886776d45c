"""Pascal Context, 59 classes: side 520 scaled by 0.5 to 2, then a crop of 480; two images per GPU."""

_base_ = 'segmentation.py'

data_root = 'data/VOCdevkit/VOC2010/'
crop_size = (480, 480)
scale = (520, 520)
stride = (320, 320)  # of the windows in tests
num_classes = 59

crop = dict(_base_.random_crop, crop_size=crop_size)
train_pipeline = [*_base_.loaded_reduced, dict(_base_.random_resize, scale=scale), crop, *_base_.augment]
resized = [_base_.load_image, dict(_base_.resize_test, scale=(4096, 520))]
test_pipeline = [*resized, _base_.stretch, _base_.load_reduced, _base_.pack]
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
