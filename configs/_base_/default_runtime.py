"""Settings that all recipes share, and AdamW, the optimiser of most.

The dataset sets the scope; the schedule sets rates and intervals, or replaces the optimiser by `_delete_=True`.

AdamW has weight decay 0.05, but none on level embeddings, norms and biases; position encodings never decay. A custom
key applies to every parameter whose name contains it, and only to what it sets: `backbone=dict(lr_mult=0.1)` leaves
these decays as they are. 'norm' also covers the norms of a PE and of patches. `norm_decay_mult` covers norms with
other names (batch norms in a sequence). LayerScale and injector gammas are decayed, as in ViT-Adapter's public recipe.
"""

custom_imports = dict(imports=['mmlape'], allow_failed_imports=False)
env_cfg = dict(
    cudnn_benchmark=False,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),
)
vis_backends = [dict(type='LocalVisBackend')]
log_level = 'INFO'
load_from = None
resume = False

no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        custom_keys=dict(level_embed=no_decay, norm=no_decay, bias=no_decay),
    ),
)
