"""Layouts of transformers' plain ViTs: names in their files and ours, one table for each architecture.

Files of ViT (with ViTMAE's encoder, I-JEPA and ViT MSN), DeiT, BEiT (with Data2Vec), DINOv2 with and without
registers, DINOv3, and the vision models of CLIP, SigLIP and SigLIP 2. A classifier goes along where it reads one token
or the mean of the patches; poolers, projections, towers of texts and decoders are other parts.

Registers of DINOv2 enter behind the PE, so that its table has no rows for them. The linear stem of SigLIP 2's models
for any size has patches of (row, column, channel).
"""

import re
from collections.abc import Callable, Mapping

import torch

from mmlape.checkpoint.key_maps import Layout, NameTable, Target, Tensors, Weights, rename_keys, with_batch_axis
from mmlape.models.base.transformers_files import EMBEDDINGS, LAYER, NEWER, STEM, layers, read, writer
from mmlape.models.position import AbsolutePosition
from mmlape.models.position.relative_bias import TABLE
from mmlape.models.vit.big_vision import stem_order
from mmlape.models.vit.layouts import (
    CLASS_TOKEN,
    LAST_NORM,
    LEAF,
    OF_TABLE,
    PE_TABLE,
    PLAIN,
    SHARED_TABLE,
    TANH_GELU,
    TOKENS,
    as_convolution,
    copy_shared_table,
    join_gates,
    mean_pooling,
    rowless_tokens,
    split_gates,
    stem_bias,
    table_tokens,
)

_ATTENTION = {theirs: ours for theirs, ours in LAYER.items() if 'attn' in ours}
_GAMMAS = {'layer_scale1.lambda1': 'gamma1', 'layer_scale2.lambda1': 'gamma2'}
_TOKENS = {
    'embeddings.cls_token': 'cls_token',
    'embeddings.distillation_token': 'dist_token',
    'embeddings.register_tokens': 'reg_token',
}
_HUB, _LAST = 'encoder.layer.#.', {'layernorm.': 'norm.'}
_OF_BEIT = {
    f'attention.attention.relative_position_bias.{TABLE}': f'attn.{TABLE}',
    'lambda_1': 'gamma1',
    'lambda_2': 'gamma2',
}
_OF_DINOV2 = {'mlp.weights_in.': 'mlp.w12.', 'mlp.weights_out.': 'mlp.w3.', 'mlp.': 'mlp.', 'norm': 'norm'}
_VIT_EMBEDDINGS = {**_TOKENS, **EMBEDDINGS}
VIT = {**_VIT_EMBEDDINGS, **layers(_HUB, LAYER), **_LAST}
BEIT = {
    **_VIT_EMBEDDINGS,
    **layers(_HUB, {**LAYER, **_OF_BEIT}),
    f'encoder.relative_position_bias.{TABLE}': SHARED_TABLE,
    **_LAST,
}
DINOV2 = {**_VIT_EMBEDDINGS, **layers(_HUB, {**_ATTENTION, **_GAMMAS, **_OF_DINOV2}), **_LAST}
DINOV3 = {
    **_TOKENS,
    'embeddings.patch_embeddings.': 'patch_embed.proj.',
    **layers('layer.#.', {**NEWER, **_GAMMAS, 'norm': 'norm'}),
    'norm.': 'norm.',
}
TOWER = {
    'embeddings.class_embedding': 'cls_token',
    'embeddings.patch_embedding.': 'patch_embed.proj.',
    'embeddings.position_embedding.weight': 'pos_embed',
    'pre_layrnorm.': 'norm_pre.',
    **layers(
        'encoder.layers.#.',
        {
            'self_attn.q_proj.': 'attn.q.',
            'self_attn.k_proj.': 'attn.k.',
            'self_attn.v_proj.': 'attn.v.',
            'self_attn.out_proj.': 'attn.proj.',
            'layer_norm': 'norm',
            'mlp.': 'mlp.',
        },
    ),
    'post_layernorm.': 'norm.',
}
_NEWER_LAYER = {
    **LAYER,
    **NEWER,
    **_GAMMAS,
    **_OF_BEIT,
    f'relative_position_bias.{TABLE}': f'attn.{TABLE}',
    'norm': 'norm',
}
_READ = NameTable(
    {
        **BEIT,
        **DINOV2,
        **TOWER,
        **DINOV3,
        f'shared_position_bias.{TABLE}': SHARED_TABLE,
        **layers('layers.#.', _NEWER_LAYER),
        **layers('model.layer.#.', _NEWER_LAYER),
        **layers(_HUB, _NEWER_LAYER),
    }
)
_GATED = (('.mlp.gate_proj.', '.mlp.w1.'), ('.mlp.up_proj.', '.mlp.w2.'), ('.mlp.down_proj.', '.mlp.w3.'))
_UNGATED = (('.mlp.up_proj.', '.mlp.fc1.'), ('.mlp.down_proj.', '.mlp.fc2.'))


def _replaced(tensors: Tensors, pairs: tuple[tuple[str, str], ...]) -> Tensors:
    return rename_keys(tensors, [(re.escape(old), new) for old, new in pairs])


def from_transformers(tensors: Tensors) -> Tensors:
    """Translate the vision model of a file; vectors and tables of an embedding get a batch axis."""
    out = read(tensors, _READ)
    gated = any('.mlp.gate_proj.' in name for name in out)
    out = copy_shared_table(split_gates(_replaced(out, _GATED if gated else _UNGATED)))
    # masked modelling norms behind the model
    if 'norm.weight' not in out:
        out = rename_keys(out, [(r'^/layernorm\.', 'norm.')])
    if 'cls_token' in out:
        out['cls_token'] = out['cls_token'].reshape(1, 1, -1)
    if 'pos_embed' in out:
        out['pos_embed'] = with_batch_axis(out['pos_embed'])
    kernel = out['patch_embed.proj.weight']
    if kernel.ndim == 2:
        out['patch_embed.proj.weight'] = stem_order(kernel.t()).t()  # (D, C*P*P)
    return as_convolution(out)


def _to_dinov2(tensors: Tensors) -> Tensors:
    """Join the maps of a gated FFN, and add a mask token, which no image needs."""
    mask = tensors['cls_token'].new_zeros(1, tensors['cls_token'].shape[-1])
    return join_gates(tensors) | {'embeddings.mask_token': mask}


def _without_rows_of_registers(weights: Weights, tensors: Tensors) -> Tensors:
    """Add the rows of registers to them, as DINOv2's table has none for them."""
    rows = table_tokens(weights).get('reg_token')
    if not rows:
        return tensors
    table = with_batch_axis(tensors['pos_embed'])
    without = torch.cat((table[:, :1], table[:, 1 + rows :]), dim=1)
    return {**tensors, 'reg_token': tensors['reg_token'] + table[:, 1 : 1 + rows], 'pos_embed': without}


def _to_dinov3(tensors: Tensors) -> Tensors:
    gated = any('.mlp.w1.' in name for name in tensors)
    pairs = _GATED if gated else _UNGATED
    out = _replaced(tensors, tuple((ours, theirs) for theirs, ours in pairs))
    return out | {'embeddings.mask_token': torch.zeros_like(tensors['cls_token'])}


def _to_tower(tensors: Tensors) -> Tensors:
    """Flatten vectors and tables of embeddings; CLIP's stem has no bias."""
    out = {**tensors, 'pos_embed': with_batch_axis(tensors['pos_embed'])[0]}
    if 'cls_token' in out:
        out['cls_token'] = out['cls_token'].flatten()
        del out['patch_embed.proj.bias']
    return out


ROPE = dict(type='rope', coordinates='normalised', pairs='half')
"""DINOv3's; angles have base 100 unless a configuration says otherwise."""


def _other_rope(weights: Weights) -> list[str]:
    """Return a recorded rotary encoding that is not DINOv3's."""
    stored = weights.recorded.get('pe_type', ROPE)
    rope = stored if isinstance(stored, Mapping) else dict(type=stored)
    different = any(rope.get(key) != value for key, value in ROPE.items())
    return [f'pe_type={stored!r} (only {ROPE})'] if different else []


def _eps(eps: float) -> dict:
    return dict(norm_cfg=dict(type='LN', eps=eps))


def _layer(pattern: str) -> str:
    """Return the sign of a name in the first layer, behind what stands before the vision model."""
    return rf'(.*\.)?(encoder\.|model\.)?layers?\.0\.{pattern}'


def _layout(name: str, *signs: str, absent: str | None = None, rows: tuple[str, ...] = TOKENS, **arguments) -> Layout:
    return Layout(name, (STEM, *signs), from_transformers, arguments=arguments, absent=absent, rows=rows)


_QUERY = r'attention\.(attention\.query|q_proj)\.'
_NO_CLASS = dict(with_cls_token=False, out_type='avg_featmap')
LAYOUTS = (
    Layout(
        "transformers' hybrid ViT",
        (r'(.*\.)?embeddings\.patch_embeddings\.backbone\.',),
        refused='a convolutional network stands before its layers; take a ViT without one',
    ),
    Layout(
        "transformers' YOLOS",
        (STEM, r'(.*\.)?embeddings\.detection_tokens'),
        refused='its tokens of detections and PE of each layer have no place in '
        'mmlape.VisionTransformer; take a file of the ViT or DeiT that it was trained from',
    ),
    _layout(
        'transformers-dinov3',
        r'(.*\.)?embeddings\.patch_embeddings\.weight',
        _layer(r'attention\.q_proj\.'),
        pe_type=ROPE,
        **_eps(1e-5),
    ),
    _layout(
        'transformers-clip',
        r'(.*\.)?embeddings\.class_embedding',
        r'(.*\.)?pre_layrnorm\.',
        patch_norm='post-posemb',
        **_eps(1e-5),
    ),
    _layout(
        'transformers-siglip',
        r'(.*\.)?embeddings\.patch_embedding\.weight',
        _layer(r'self_attn\.q_proj\.'),
        absent=r'(.*\.)?embeddings\.class_embedding',
        act_cfg=TANH_GELU,
        **_NO_CLASS,
        **_eps(1e-6),
    ),
    _layout('transformers-dinov2', _layer(r'layer_scale1\.'), _layer(_QUERY), rows=('cls_token',), **_eps(1e-6)),
    _layout(
        'transformers-beit',
        _layer(rf'{_QUERY}bias'),
        absent=_layer(r'attention\.(attention\.key|k_proj)\.bias'),
        **_eps(1e-12),
    ),
    _layout('transformers-vit', _layer(_QUERY), **_eps(1e-12)),
)
_SCALED = {'LayerScale': r'blocks\.\d+\.gamma1'}
_BIASED = {'a bias of queries, keys and values': r'blocks\.0\.attn\.qkv\.bias'}
_GAMMA, _GATES = r'blocks\.\d+\.gamma[12]', rf'blocks\.\d+\.mlp\.w[123]{LEAF}'
_QV = r'blocks\.\d+\.attn\.[qv]_bias'


def _target(
    rename: Callable[[Tensors], Tensors],
    names: str,
    needed: Mapping[str, str],
    encodings: tuple[tuple[str | type, ...], ...] = OF_TABLE,
    clashes: Callable[[Weights], list[str]] = rowless_tokens,
    heads: tuple[str, ...] = (),
    rename_table: Callable[[Weights, Tensors], Tensors] | None = None,
    **arguments: list | None,
) -> Target:
    """Return a target, whose norms and activation are said by the ``config.json`` of a model that reads it."""
    free = dict.fromkeys(('norm_cfg', 'act_cfg', 'out_type'))
    return Target(
        rename,
        names=names,
        needed=needed,
        encodings=encodings,
        arguments={'pe_joining': ['default'], 'patch_norm': ['none'], **free, **arguments},
        clashes=clashes,
        head_names=heads,
        rename_table=rename_table,
    )


def _of_one_token(weights: Weights) -> list[str]:
    return mean_pooling(weights) + rowless_tokens(weights)


_OF_VIT = {**CLASS_TOKEN, **LAST_NORM, **PE_TABLE}
_ANY = dict.fromkeys(('layer_scale_init_value', 'num_registers', 'ffn_type'))
TARGETS = {
    'transformers-vit': _target(
        writer(NameTable(VIT), 'vit.', {'head.': 'classifier.'}),
        PLAIN,
        _OF_VIT,
        clashes=_of_one_token,
        heads=('head.',),
        qkv_bias=[True, False],
    ),
    'transformers-deit': _target(
        writer(NameTable(VIT), 'deit.', {'head.': 'cls_classifier.', 'head_dist.': 'distillation_classifier.'}),
        rf'{PLAIN}|dist_token',
        {'a distillation token': 'dist_token', **_OF_VIT},
        clashes=_of_one_token,
        heads=('head.', 'head_dist.'),
        qkv_bias=[True, False],
    ),
    'transformers-beit': _target(
        writer(NameTable(BEIT), '', {}),
        rf'{PLAIN}|{_QV}|{_GAMMA}|blocks\.\d+\.attn\.{TABLE}',
        {**CLASS_TOKEN, 'biases of queries and values alone': r'blocks\.0\.attn\.q_bias'},
        ((), ('beit',), *OF_TABLE, (AbsolutePosition, 'beit')),
        qkv_bias=['qv'],
        **dict.fromkeys(('layer_scale_init_value', 'final_norm', 'window_padding')),
    ),
    'transformers-dinov2': _target(
        writer(NameTable(DINOV2), '', {}, _to_dinov2),
        rf'{PLAIN}|reg_token|{_GAMMA}|{_GATES}',
        {**_OF_VIT, **_SCALED},
        rename_table=_without_rows_of_registers,
        qkv_bias=[True, False],
        **_ANY,
    ),
    'transformers-dinov3': _target(
        writer(NameTable(DINOV3), '', {}, _to_dinov3),
        rf'(?!pos_embed)({PLAIN}|reg_token|{_GAMMA}|{_GATES}|{_QV})',
        {**CLASS_TOKEN, **LAST_NORM, **_SCALED},
        (('rope',),),
        _other_rope,
        qkv_bias=None,
        **_ANY,
    ),
    'transformers-clip': _target(
        writer(NameTable(TOWER), 'vision_model.', {}, _to_tower),
        rf'{PLAIN}|norm_pre{LEAF}',
        {**_OF_VIT, **_BIASED, 'a norm after the PE': r'norm_pre\.weight'},
        clashes=lambda weights: stem_bias(weights) + rowless_tokens(weights),
        patch_norm=['post-posemb'],
    ),
    'transformers-siglip': _target(
        writer(NameTable(TOWER), 'vision_model.', {}, _to_tower),
        rf'(?!cls_token)({PLAIN})',
        {**LAST_NORM, **PE_TABLE, **_BIASED},
        with_cls_token=[False],
    ),
}
