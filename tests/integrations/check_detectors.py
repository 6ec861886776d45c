"""Detectors of transformers 5 over the pyramid; run by `tests/environment/test_integrations.py`."""

import copy

import pytest
import torch
from check_transformers import BACKBONES, SMALL
from torch.utils.data import Dataset
from transformers import (
    DeformableDetrConfig,
    DeformableDetrForObjectDetection,
    DFineConfig,
    DFineForObjectDetection,
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    RTDetrV2Config,
    RTDetrV2ForObjectDetection,
    Trainer,
    TrainingArguments,
)

import mmlape
from mmlape.integrations.transformers import PyramidBackbone, PyramidConfig

SIDE, CLASSES = 128, 3
STAGES = ['stage2', 'stage3', 'stage4']
"""Strides 8, 16 and 32, as these detectors take them; Mask2Former takes all four."""
HYBRID = dict(
    encoder_in_channels=[32] * 3, encoder_hidden_dim=32, encoder_ffn_dim=32, encoder_attention_heads=2, d_model=32,
    decoder_in_channels=[32] * 3, decoder_ffn_dim=32, decoder_attention_heads=2, decoder_layers=2, num_queries=10,
    num_denoising=4, num_labels=CLASSES,
)  # fmt: skip
DEFORMABLE = dict(
    d_model=32, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=10,
    encoder_attention_heads=2, decoder_attention_heads=2, num_labels=CLASSES,
)  # fmt: skip


def rt_detr_v2(name):
    config = PyramidConfig(*BACKBONES[name], out_features=STAGES)
    return RTDetrV2ForObjectDetection(RTDetrV2Config(backbone_config=config, **HYBRID))


def d_fine(name):
    config = PyramidConfig(*BACKBONES[name], out_features=STAGES)
    return DFineForObjectDetection(DFineConfig(backbone_config=config, **HYBRID))


def deformable_detr(name):
    config = PyramidConfig(*BACKBONES[name], out_features=STAGES)
    return DeformableDetrForObjectDetection(DeformableDetrConfig(backbone_config=config, **DEFORMABLE))


def mask2former(name):
    config = PyramidConfig(*BACKBONES[name])
    return Mask2FormerForUniversalSegmentation(Mask2FormerConfig(backbone_config=config, num_labels=CLASSES, **SMALL))


DETECTORS = (rt_detr_v2, d_fine, deformable_detr, mask2former)


def sample(seed, masks):
    """An image with two boxes, of which one is masked as an ellipse would be."""
    generator = torch.Generator().manual_seed(seed)
    image = 0.1 * torch.randn(3, SIDE, SIDE, generator=generator)
    classes = torch.tensor([seed % CLASSES, (seed + 1) % CLASSES])
    boxes = torch.tensor([[0.3, 0.3, 0.4, 0.3], [0.7, 0.75, 0.3, 0.4]])  # centre and size
    regions = torch.zeros(2, SIDE, SIDE)
    for region, (x, y, w, h) in zip(regions, boxes):
        top, left = round(float(y - h / 2) * SIDE), round(float(x - w / 2) * SIDE)
        region[top : top + int(h * SIDE), left : left + int(w * SIDE)] = 1
    image += (regions * (1.0 + classes[:, None, None])).sum(0)
    if masks:
        return dict(pixel_values=image, mask_labels=regions, class_labels=classes)
    return dict(pixel_values=image, labels=dict(class_labels=classes, boxes=boxes))


class Samples(Dataset):
    def __init__(self, masks):
        self.masks = masks

    def __len__(self):
        return 4

    def __getitem__(self, number):
        return sample(number, self.masks)


def collate(samples):
    batch = {key: [one[key] for one in samples] for key in samples[0]}
    return {**batch, 'pixel_values': torch.stack(batch['pixel_values'])}


def backbone_of(model):
    (backbone,) = (module for module in model.modules() if isinstance(module, PyramidBackbone))
    return backbone


def batch(build):
    return collate([sample(number, build is mask2former) for number in range(2)])


@pytest.mark.parametrize('name', BACKBONES)
@pytest.mark.parametrize('build', DETECTORS)
def test_the_trainer_trains_it_and_a_file_has_all_of_it(build, name, tmp_path):
    torch.manual_seed(0)
    model = build(name)
    backbone = backbone_of(model)
    before = copy.deepcopy(model.state_dict())
    model.train()(**batch(build)).loss.backward()
    unused = {key for key, value in backbone.named_parameters() if value.requires_grad and value.grad is None}
    # what makes the map of stride 4, which is not asked for
    assert {key.split('.')[1] for key in unused} == (set() if build is mask2former else {'up', 'norm1', 'spm'})
    model.zero_grad()
    frozen = {key for key, value in model.named_parameters() if not value.requires_grad}
    assert any('.vit.' in key for key in frozen) == name.startswith('frozen')
    options = dict(
        max_steps=2, per_device_train_batch_size=2, save_steps=2, report_to=[], use_cpu=True,
        remove_unused_columns=False, logging_steps=1,
    )  # fmt: skip
    trainer = Trainer(
        model,
        TrainingArguments(str(tmp_path), **options),
        train_dataset=Samples(build is mask2former),
        data_collator=collate,
        optimizers=(torch.optim.AdamW(mmlape.param_groups(model, lr=1e-3, weight_decay=0.05)), None),
    )
    trainer.train()
    changed = {key for key, value in model.named_parameters() if not torch.equal(value, before[key])}
    assert not changed & frozen and any('.interactions.' in key for key in changed)
    loaded, report = type(model).from_pretrained(tmp_path / 'checkpoint-2', output_loading_info=True)
    assert not any(report.values()), report
    # D-FINE itself freezes two scalars, and not those of a file
    frozen_of_file = {key for key, value in loaded.named_parameters() if not value.requires_grad}
    assert {key for key in frozen_of_file if '.vit.' in key} == {key for key in frozen if '.vit.' in key}
    with torch.no_grad():
        ours, theirs = (each.eval()(batch(build)['pixel_values']) for each in (model, loaded))
    logits = 'class_queries_logits' if build is mask2former else 'logits'
    torch.testing.assert_close(theirs[logits], ours[logits])


@pytest.mark.parametrize('build', [rt_detr_v2, deformable_detr])
def test_batch_norms_of_a_fresh_adapter_are_trained(build):
    """These detectors freeze every BatchNorm2d of a backbone, by which a fresh one never learns its statistics."""
    backbone = backbone_of(build('frozen dinov3'))
    kinds = {type(one).__name__ for one in backbone.modules() if 'BatchNorm' in type(one).__name__}
    assert kinds == {'SyncBatchNorm'}
