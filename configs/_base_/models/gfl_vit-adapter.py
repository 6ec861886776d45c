"""GFL with FPN over ViT-Adapter-S, for 80 classes; the head is mmdetection's."""

_base_ = 'atss_vit-adapter.py'

model = dict(
    type='GFL',
    bbox_head=dict(
        _delete_=True,
        type='GFLHead',
        reg_max=16,
        loss_cls=dict(type='QualityFocalLoss', use_sigmoid=True, beta=2.0, loss_weight=1.0),
        loss_dfl=dict(type='DistributionFocalLoss', loss_weight=0.25),
        **_base_.tower,
    ),
)
