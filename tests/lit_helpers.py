"""Tiny towers and images of four colours."""

import numpy as np
import torch
from mmpretrain.structures import DataSample

from mmlape.projects.lit.model import LiT
from mmlape.projects.lit.tokenizer import write_vocabulary

COLOURS = {'red': (220, 30, 30), 'green': (30, 200, 30), 'blue': (30, 30, 220), 'white': (240, 240, 240)}
BACKBONE = dict(
    type='mmlape.VisionTransformer',
    arch=dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64),
    img_size=16,
    patch_size=8,
    out_type='avg_featmap',
    drop_path_rate=0.5,
)


def lit(folder, **changes) -> LiT:
    """A model of tiny towers, initialised with a seed."""
    words = write_vocabulary(folder / 'words.txt', ['a square photo of an in', *COLOURS])
    torch.manual_seed(0)
    options = dict(
        backbone=BACKBONE,
        text=dict(type='mmlape.TextTransformer', embed_dims=32, num_layers=1, num_heads=2),
        tokenizer=dict(vocab_file=str(folder / 'words.txt'), vocab_size=len(words), length=8),
        width=32,
        classes=list(COLOURS),
        templates=['a {} square', 'a photo of a {} square'],
        data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3, to_rgb=False),
    )
    model = LiT(**{**options, **changes})
    model.init_weights()
    return model


def squares(count: int, seed: int) -> tuple[dict, np.ndarray]:
    """A batch of coloured images with a caption each, as a data loader gives it, and the colours' numbers."""
    random = np.random.default_rng(seed)
    labels = random.integers(len(COLOURS), size=count)
    images = np.array(list(COLOURS.values()))[labels][:, :, None, None] + random.normal(0, 25, (count, 3, 16, 16))
    inputs = torch.from_numpy(images.clip(0, 255).astype(np.uint8))
    texts = [f'a {list(COLOURS)[label]} square' for label in labels]
    samples = [DataSample() for _ in texts]
    for sample, text in zip(samples, texts):
        sample.set_field(text, 'gt_caption')
    return dict(inputs=inputs, data_samples=samples), labels
