"""Segmenter's schedule: SGD at 1e-3 without weight decay, polynomial decay (power 0.9) to 1e-5."""

_base_ = './160k.py'

optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='SGD', lr=1e-3, momentum=0.9, weight_decay=0.0),
)
param_scheduler = [dict(type='PolyLR', power=0.9, eta_min=1e-5, by_epoch=False, begin=0)]
