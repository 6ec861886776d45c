"""AdamW, the optimiser of most schedules, with weight decay 0.05, but none on level embeddings, norms and biases.

Position encodings never decay. 'norm' also covers the norms of a PE and of patches, `norm_decay_mult` norms with other
names (batch norms in a sequence). LayerScale and injector gammas are decayed, as in ViT-Adapter's public recipe.
"""

no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(level_embed=no_decay, norm=no_decay, bias=no_decay)),
)
# what a config may choose as `optim_wrapper.paramwise_cfg`: timm's rule with a decay of the rate by layers is added to
# the above, Swin's and that of ViT-Adapter's public code replace it
timm_decay = dict(layer_decay_rate=0.9, flat_decay_mult=0.0, custom_keys=dict(cls_token=no_decay, reg_token=no_decay))
swin_decay = dict(custom_keys=dict(norm=no_decay))
layer_decay = dict(layer_decay_rate=0.9, flat_decay_mult=0.0, position_decay_mult=1.0)
