"""A linear map from a backbone's features to 150 classes. Configs that inherit this name the backbone and the widths.

Logits at the stride of the patches are resized to the image; there is no other head, and no dropout.
"""

_base_ = './encoder_decoder.py'

model = dict(
    decode_head=dict(
        type='FCNHead',
        num_convs=0,
        concat_input=False,
        in_index=0,
        num_classes=150,
        dropout_ratio=0.0,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=1.0),
    ),
)
