"""Variables that the configs of foundation models share; a config over a ViT of timm takes what it needs.

`paramwise` follows timm: layer decay, and no weight decay on vectors, position embeddings and prefix tokens. Its rate
is our choice. Images are normalised as each model's pretraining did it.
"""

paramwise = dict(
    layer_decay_rate=0.9,
    flat_decay_mult=0.0,
    custom_keys=dict(cls_token=dict(decay_mult=0.0), reg_token=dict(decay_mult=0.0)),
)
imagenet = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
half = dict(mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5])
clip = dict(mean=[122.7709, 116.746, 104.0937], std=[68.5005, 66.6322, 70.3232])
