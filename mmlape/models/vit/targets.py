"""Layouts that a plain ViT's weights can be written in, and what each has a place for."""

from mmlape.checkpoint.key_maps import CLASS_HEADS, Tensors, Weights
from mmlape.checkpoint.targets import Target
from mmlape.models.position import AbsolutePosition
from mmlape.models.vit.big_vision import other_heads, to_big_vision
from mmlape.models.vit.layouts import NAMES, table_tokens, to_deit, to_open_clip, to_timm

GELU, TANH_GELU = dict(type='GELU'), dict(type='GELU', approximate='tanh')
_LEAF = r'\.(weight|bias)'
_PLAIN = (
    rf'(patch_embed\.proj|norm){_LEAF}|cls_token|pos_embed'
    rf'|blocks\.\d+\.(norm[12]|attn\.(qkv|proj)|mlp\.fc[12]){_LEAF}'
)
_TABLE = ((AbsolutePosition,),)


def to_classifier(tensors: Tensors) -> Tensors:
    """Name a classifier's tensors as MMPretrain's with a ``VisionTransformerClsHead`` has them."""
    return {
        f'head.layers.{name}' if name.startswith(CLASS_HEADS) else f'backbone.{name}': value
        for name, value in tensors.items()
    }


def _stem_bias(weights: Weights) -> list[str]:
    """Return the bias of a stem that has none where tokens + PE are normed, unless LN0 is before it."""
    tensors = weights.tensors
    bare = 'norm_pre.weight' in tensors and 'patch_embed.norm0.weight' not in tensors
    return ['a bias of the stem'] if bare and tensors['patch_embed.proj.bias'].any() else []


def _mean_pooling(weights: Weights) -> list[str]:
    """Return the mean of the patches if a head reads it in spite of a class token."""
    mean = weights.heads and 'cls_token' in weights.tensors and weights.recorded.get('out_type') == 'avg_featmap'
    return ["a head on out_type='avg_featmap' beside a class token"] if mean else []


def _clashes_in_timm(weights: Weights) -> list[str]:
    rows = NAMES.tables(weights) and list(table_tokens(weights))
    wrong = 'dist_token' in weights.tensors and rows != ['cls_token', 'dist_token']
    return _stem_bias(weights) + ['a dist_token beside registers or without a row of the PE'] * wrong


TARGETS = {
    'classifier': Target(to_classifier, 'state_dict', part='backbone'),
    'timm': Target(
        to_timm,
        names=rf'{_PLAIN}|dist_token|reg_token|(norm_pre|patch_embed\.norm1){_LEAF}|blocks\.\d+\.gamma[12]'
        rf'|blocks\.\d+\.((attn|mlp)\.norm|attn\.[qk]_norm){_LEAF}',
        encodings=(*_TABLE, ()),
        arguments={
            'pe_joining': ['default'],
            'patch_norm': ['none', 'post', 'post-posemb'],
            'norm_placement': ['sub-ln'],
            **dict.fromkeys(
                (
                    'with_cls_token',
                    'num_registers',
                    'with_prefix_pe',
                    'qkv_bias',
                    'layer_scale_init_value',
                    'final_norm',
                    'norm_cfg',
                    'act_cfg',
                    'out_type',
                )
            ),
        },
        clashes=_clashes_in_timm,
    ),
    'lape': Target(
        to_deit,
        'model',
        names=rf'{_PLAIN}|dist_token|pos_embed\d+|blocks\.\d+\.(attn\.)?pe_norm{_LEAF}'
        r'|blocks\.\d+\.attn\.relative_position_(bias_table|index)',
        encodings=(*_TABLE, ('rpe',)),
        arguments={
            'pe_joining': ['default', 'shared', 'unshared', 'lape'],
            'pe_norm': ['layernorm'],
            'patch_norm': ['none'],
            **dict.fromkeys(('qkv_bias', 'norm_cfg', 'out_type')),
        },
        clashes=_mean_pooling,
    ),
    'big_vision': Target(
        lambda tensors: to_big_vision(to_deit(tensors)),
        names=rf'{_PLAIN}|patch_embed\.norm[01]{_LEAF}',
        encodings=_TABLE,
        arguments={
            'pe_joining': ['default'],
            'patch_norm': ['none', 'dual', 'pre', 'post'],
            'act_cfg': [TANH_GELU],
            **dict.fromkeys(('with_cls_token', 'with_prefix_pe', 'out_type')),
        },
        clashes=lambda weights: other_heads(weights) + _mean_pooling(weights),
        heads=('head.', 'pre_logits.'),
    ),
    'open_clip': Target(
        to_open_clip,
        names=rf'{_PLAIN}|(norm_pre|patch_embed\.norm0){_LEAF}|blocks\.\d+\.gamma[12]',
        encodings=_TABLE,
        arguments={
            'pe_joining': ['default'],
            'patch_norm': ['post-posemb', 'pre-post-posemb'],
            'norm_cfg': [dict(type='LN', eps=1e-5)],
            'act_cfg': [GELU, dict(type='mmpretrain.QuickGELU'), dict(type='QuickGELU')],
            **dict.fromkeys(('layer_scale_init_value', 'out_type')),
        },
        clashes=_stem_bias,
        heads=(),
    ),
}
