"""Faster R-CNN, ViT-Adapter-S, default PE: not run by us, no paper's figure.

tools/dist_train.sh configs/faster_rcnn/faster-rcnn_deit-small-adapter_4xb2-3x_coco.py 4
"""

_base_ = [
    '../_base_/models/faster_rcnn_vit-adapter.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
]
# annotations may lack masks
boxes = dict(type='LoadAnnotations', with_bbox=True)
train_pipeline = [_base_.train_pipeline[0], boxes, *_base_.train_pipeline[2:]]
test_pipeline = [*_base_.test_pipeline[:2], boxes, _base_.test_pipeline[3]]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
