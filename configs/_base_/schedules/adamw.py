"""AdamW, the optimiser of most schedules, with weight decay 0.05, but none on level embeddings, norms and biases.

Position encodings never decay. A custom key applies to every parameter whose name contains it, and only to what it
sets: `backbone=dict(lr_mult=0.1)` leaves these decays as they are. 'norm' also covers the norms of a PE and of
patches. `norm_decay_mult` covers norms with other names (batch norms in a sequence). LayerScale and injector gammas
are decayed, as in ViT-Adapter's public recipe.
"""

no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(level_embed=no_decay, norm=no_decay, bias=no_decay)),
)
