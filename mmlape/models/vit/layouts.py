"""Layouts of a plain ViT in public files: how each names its tensors, from and to ours (DeiT's), and what it can hold.

'deit' (DeiT, LaPE, timm and AugReg's files of timm), 'dinov2-giant' (with a gated FFN), 'beit' (unilm's BEiT and
BEiTv2), 'uni-perceiver', the official adapters over those or ours ('vit-adapter', 'beit-adapter',
'uni-perceiver-adapter'), 'mmpretrain', 'mmseg' (mmsegmentation's own ViT), 'jax' (AugReg and big_vision),
'vit-pytorch' and 'open_clip' (its image tower, and OpenAI's).

BEiT's pretraining has one bias table for all layers, which each layer gets a copy of; stored indices of tables follow
from their size, and are left out. Uni-Perceiver's PE is the sum of a table of places and, for one image, the first of
eight rows for times; what belongs to other inputs is left out, and the vector of the kind of input, which the public
adapter does not add.

vit-pytorch's stem has both norms of Dual PatchNorm, and patches of (row, column, channel). open_clip's
``input_patchnorm`` has LN0 only, patches of (channel, row, column), as a convolution's weight has them, and CLIP's own
norm after tokens + PE. The norms of both have eps 1e-5.
"""

import re
from dataclasses import replace

import torch

from mmlape.checkpoint.exact_loading import HALF
from mmlape.checkpoint.key_maps import (
    CLASS_HEADS,
    Layout,
    NameTable,
    Target,
    Tensors,
    Weights,
    rename_keys,
    with_batch_axis,
)
from mmlape.models.base.fitting import TensorNames, Tokens, read_rows
from mmlape.models.base.isotropic import TOKENS
from mmlape.models.position import AbsolutePosition
from mmlape.models.position.relative_bias import INDEX, TABLE
from mmlape.models.vit.big_vision import SIGN, from_jax, patch_side, stem_order

NAMES = TensorNames()

_MMPRETRAIN_NAMES = (
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'^layers\.(\d+)\.ln([12])\.', r'blocks.\1.norm\2.'),
    (r'^layers\.(\d+)\.ffn\.layers\.0\.0\.', r'blocks.\1.mlp.fc1.'),
    (r'^layers\.(\d+)\.ffn\.layers\.1\.', r'blocks.\1.mlp.fc2.'),
    (r'^layers\.(\d+)\.attn\.gamma1\.weight$', r'blocks.\1.gamma1'),
    (r'^layers\.(\d+)\.ffn\.gamma2\.weight$', r'blocks.\1.gamma2'),
    (r'^layers\.(\d+)\.', r'blocks.\1.'),
    (r'^ln1\.', 'norm.'),
    (r'^ln2\.', 'fc_norm.'),
    (r'^pre_norm\.', 'norm_pre.'),
)

# after these names come mmpretrain's; attention is torch's own, whose stacked q, k and v are a fused qkv
_MMSEG_NAMES = (
    (r'^patch_embed\.norm\.', 'patch_embed.norm1.'),
    (r'^layers\.(\d+)\.attn\.attn\.in_proj_', r'blocks.\1.attn.qkv.'),
    (r'^layers\.(\d+)\.attn\.attn\.out_proj\.', r'blocks.\1.attn.proj.'),
    (r'^ln_pre\.', 'norm_pre.'),
    *_MMPRETRAIN_NAMES,
)

_VIT_PYTORCH = NameTable(
    {
        'to_patch_embedding.1.': 'patch_embed.norm0.',
        'to_patch_embedding.2.': 'patch_embed.proj.',
        'to_patch_embedding.3.': 'patch_embed.norm1.',
        'pos_embedding': 'pos_embed',
        'transformer.layers.#.0.norm.': 'blocks.#.norm1.',
        'transformer.layers.#.0.to_qkv.': 'blocks.#.attn.qkv.',
        'transformer.layers.#.0.to_out.0.': 'blocks.#.attn.proj.',
        'transformer.layers.#.1.net.0.': 'blocks.#.norm2.',
        'transformer.layers.#.1.net.1.': 'blocks.#.mlp.fc1.',
        'transformer.layers.#.1.net.4.': 'blocks.#.mlp.fc2.',
        'transformer.norm.': 'norm.',
        'mlp_head.': 'head.',
    }
)
_OPEN_CLIP = NameTable(
    {
        'patchnorm_pre_ln.': 'patch_embed.norm0.',
        'conv1.': 'patch_embed.proj.',
        'class_embedding': 'cls_token',
        'positional_embedding': 'pos_embed',
        'ln_pre.': 'norm_pre.',
        'ln_post.': 'norm.',
        'transformer.resblocks.#.ln_1.': 'blocks.#.norm1.',
        'transformer.resblocks.#.ln_2.': 'blocks.#.norm2.',
        'transformer.resblocks.#.attn.in_proj_': 'blocks.#.attn.qkv.',
        'transformer.resblocks.#.attn.out_proj.': 'blocks.#.attn.proj.',
        'transformer.resblocks.#.mlp.c_fc.': 'blocks.#.mlp.fc1.',
        'transformer.resblocks.#.mlp.c_proj.': 'blocks.#.mlp.fc2.',
        'transformer.resblocks.#.ls_1.gamma': 'blocks.#.gamma1',
        'transformer.resblocks.#.ls_2.gamma': 'blocks.#.gamma2',
    }
)
_TIMM = NameTable(
    {
        'blocks.#.ls1.gamma': 'blocks.#.gamma1',
        'blocks.#.ls2.gamma': 'blocks.#.gamma2',
        'patch_embed.norm.': 'patch_embed.norm1.',
    }
)


def as_convolution(tensors: Tensors) -> Tensors:
    """Turn a stem's linear weight (D, C*P*P) into a convolution's (D, C, P, P), and no bias (CLIP's) into zeros."""
    stem = tensors.get('patch_embed.proj.weight')
    if stem is not None and stem.ndim == 2:
        side = patch_side(stem.shape[1])
        tensors['patch_embed.proj.weight'] = stem.unflatten(1, (3, side, side))
    if stem is not None and 'norm_pre.weight' in tensors:
        tensors.setdefault('patch_embed.proj.bias', stem.new_zeros(len(stem)))
    return tensors


def unchunked(tensors: Tensors) -> Tensors:
    """Leave out the numbers of chunks that DINOv2's training puts layers into; those of the layers count through."""
    return rename_keys(tensors, [(r'^blocks\.\d+\.(?=\d+\.)', 'blocks.')])


def _from_deit(tensors: Tensors) -> Tensors:
    """Rename timm's LayerScale and norm of the stem, and what its older versions call ``pre_logits.fc``.

    DINOv2's mask token is of its pretraining only.
    """
    names = [
        (r'^pre_logits\.fc\.', 'pre_logits.'),
        (r'^mask_token$', '/mask_token'),  # of a pretraining by masked patches
    ]
    return as_convolution(rename_keys(_TIMM.read(unchunked(tensors)), names))


def split_gates(tensors: Tensors) -> Tensors:
    """Split the joined first maps of gated FFNs."""
    out = {}
    for name, value in tensors.items():
        if '.mlp.w12.' in name:
            out |= {name.replace('w12', key): half for key, half in zip(('w1', 'w2'), value.chunk(2))}
        else:
            out[name] = value
    return out


def join_gates(tensors: Tensors) -> Tensors:
    """Reverse ``split_gates``."""
    out = dict(tensors)
    for name in [name for name in tensors if '.mlp.w1.' in name]:
        gates = out.pop(name), out.pop(name.replace('.w1.', '.w2.'))
        out[name.replace('.w1.', '.w12.')] = torch.cat(gates)
    return out


SHARED_TABLE = f'rel_pos_bias.{TABLE}'
_PRETRAINING = ('mask_token', 'lm_head.', 'cls_pt_layers.')


def copy_shared_table(tensors: Tensors) -> Tensors:
    """Give each layer a copy of BEiT's bias table if a file has one for all of them."""
    if SHARED_TABLE not in tensors:
        return tensors
    numbers = dict.fromkeys(match[1] for name in tensors if (match := re.match(r'blocks\.(\d+)\.', name)))
    tables = {f'blocks.{number}.attn.{TABLE}': tensors[SHARED_TABLE].clone() for number in numbers}
    return {name: value for name, value in tensors.items() if name != SHARED_TABLE} | tables


def _from_beit(tensors: Tensors) -> Tensors:
    """Rename LayerScale, copy a shared bias table to each layer, and mark indices and heads as another part's."""
    names = [(r'\.gamma_([12])$', r'.gamma\1'), (r'^fpn1\.', 'up1.'), (r'^fpn2\.0\.', 'up2.')]
    return {
        f'/{name}' if name.endswith(INDEX) or name.startswith(_PRETRAINING) else name: value
        for name, value in rename_keys(copy_shared_table(tensors), names).items()
    }


_UNI_PERCEIVER = (
    (r'^layers\.(\d+)\.self_attn\.in_proj[._]', r'blocks.\1.attn.qkv.'),
    (r'^layers\.(\d+)\.self_attn\.out_proj\.', r'blocks.\1.attn.proj.'),
    (r'^layers\.(\d+)\.linear([12])\.', r'blocks.\1.mlp.fc\2.'),
    (r'^layers\.(\d+)\.gamma_([12])$', r'blocks.\1.gamma\2'),
    (r'^layers\.(\d+)\.', r'blocks.\1.'),
    (r'^(visual|video)_embed\.embeddings_norm\.', 'norm_pre.'),
    (r'^(visual|video)_embed\.(embeddings|patch_embed\.proj)\.', 'patch_embed.proj.'),
    (r'^(visual|video)_embed\.(embeddings_st_pos|patch_embed)\.', ''),
    (r'^(?=token_embed|loss_prepare|.*\.loss_prepare|(visual|video)_embed\.embeddings_type\.)', '/'),
)


def _from_uni_perceiver(tensors: Tensors) -> Tensors:
    """Rename; the PE of an image is that of places plus the first time's."""
    bare = rename_keys(tensors, [(r'^fused_encoder\.', '')])
    out = rename_keys(bare, _UNI_PERCEIVER)
    places, times = (out.pop(f'{name}_pos_embed.weight') for name in ('spatial', 'temporal'))
    return out | {'pos_embed': (places + times[:1])[None], '/temporal_pos_embed.weight[1:]': times[1:]}


def to_deit(tensors: Tensors) -> Tensors:
    """Give a linear head, which MMPretrain calls ``fc``, DeiT's name."""
    return rename_keys(tensors, [(r'^head\.fc\.', 'head.')])


def to_timm(tensors: Tensors) -> Tensors:
    """Give LayerScale and the stem's norm timm's names; where tokens + PE are normed, its stem has no bias."""
    out = _TIMM.write(to_deit(tensors))
    out |= {name: with_batch_axis(value) for name, value in out.items() if name == 'pos_embed'}
    return {k: v for k, v in out.items() if k != 'patch_embed.proj.bias' or 'norm_pre.weight' not in out}


def _from_mmpretrain(tensors: Tensors) -> Tensors:
    """Rename; of BEiT, what its authors' files have besides comes after it."""
    return as_convolution(_from_beit(rename_keys(tensors, _MMPRETRAIN_NAMES)))


def _from_mmseg(tensors: Tensors) -> Tensors:
    """Rename; its stem has no bias unless asked for, which is a bias of zero."""
    out = as_convolution(rename_keys(tensors, _MMSEG_NAMES))
    stem = out['patch_embed.proj.weight']
    out.setdefault('patch_embed.proj.bias', stem.new_zeros(len(stem)))
    return out


def _from_vit_pytorch(tensors: Tensors) -> Tensors:
    """Translate; a model that pools by the mean has a class token of no rows."""
    out = _VIT_PYTORCH.read(tensors)
    out['patch_embed.norm0.weight'], out['patch_embed.norm0.bias'] = (
        stem_order(out[f'patch_embed.norm0.{leaf}']) for leaf in ('weight', 'bias')
    )
    kernel = out['patch_embed.proj.weight']  # (D, P*P*C)
    out['patch_embed.proj.weight'] = stem_order(kernel.t()).t()  # (D, C*P*P)
    for name in ('pos_embed', 'cls_token'):
        if name in out:
            out[name] = out[name].reshape(1, -1, out[name].shape[-1])
    if not out['cls_token'].numel():
        del out['cls_token']
    return as_convolution(out)


def _from_open_clip(tensors: Tensors) -> Tensors:
    """Translate the image tower; the text tower and the projections are marked as other parts."""
    towers = any(name.startswith('visual.') for name in tensors)
    image = {name.removeprefix('visual.'): value for name, value in tensors.items() if name.startswith('visual.')}
    out = {f'/{name}': value for name, value in tensors.items() if towers and not name.startswith('visual.')}
    # behind a pooling by attention, the last norm is of what was pooled
    others = ('proj', 'attn_pool.', *(['ln_post.'] if any(name.startswith('attn_pool.') for name in image) else []))
    for name, value in _OPEN_CLIP.read(image if towers else tensors).items():
        out[f'/{name}' if name.startswith(others) else name] = value
    out['cls_token'] = out['cls_token'].reshape(1, 1, -1)
    out['pos_embed'] = out['pos_embed'][None]
    return as_convolution(out)


IMAGES_OF_JAX = replace(HALF, source='AugReg and big_vision')
TORCH_EPS = dict(norm_cfg=dict(type='LN', eps=1e-5))
"""The norms of code that leaves torch's default."""
EVA_NAMES = r'blocks\.0\.(attn\.(q_bias|q_proj|bias_mask)|mlp\.fc1_[gx]|gamma_1)|storage_tokens'
"""Names in timm's other plain ViTs, which look like these but are ``TimmViT``'s."""
DINOV2_GIANT = 'dinov2-giant'
_SPM = r'spm\.stem\.'
_BEIT = (r'blocks\.0\.attn\.q_bias', rf'(blocks\.0\.attn|rel_pos_bias)\.{TABLE}')
_IN_UNI_PERCEIVER = (r'(fused_encoder\.)?layers\.0\.self_attn\.in_proj[._]weight', r'(visual|video)_embed\.')
OF_UNI_PERCEIVER = ('uni-perceiver', 'uni-perceiver-adapter')
ADAPTERS = (
    Layout('beit-adapter', (_SPM, *_BEIT), _from_beit),
    Layout(OF_UNI_PERCEIVER[1], (_SPM, *_IN_UNI_PERCEIVER), _from_uni_perceiver, rows=()),
    Layout('vit-adapter', (_SPM, r'blocks\.0\.attn\.qkv\.'), as_convolution),
)
PYRAMIDS = (
    Layout('beit-baseline', (r'(fpn|up)1\.0\.', *_BEIT), _from_beit),
    Layout('vit-baseline', (r'up1\.0\.', r'blocks\.0\.attn\.qkv\.'), as_convolution),
)
SAM = Layout(
    "SAM's image encoder",
    (r'(.*\.)?(blocks|layers)\.0\.attn\.rel_pos_h',),
    refused='no ViT here has its relative positions of rows and columns; take the weights of MAE that it began with',
)
LAYOUTS = (
    SAM,
    *ADAPTERS,
    *PYRAMIDS,
    Layout('beit', _BEIT, _from_beit),
    Layout(OF_UNI_PERCEIVER[0], _IN_UNI_PERCEIVER, _from_uni_perceiver, rows=()),
    Layout(
        'deit',
        (r'blocks\.0\.(0\.)?attn\.qkv\.', r'blocks\.0\.(0\.)?mlp\.(fc1|w1)\.', r'patch_embed\.proj\.'),
        _from_deit,
    ),
    Layout(
        DINOV2_GIANT,
        (r'blocks\.0\.(0\.)?mlp\.w12\.', r'patch_embed\.proj\.'),
        lambda tensors: split_gates(_from_deit(tensors)),
    ),
    Layout('mmpretrain', (r'layers\.0\.attn\.qkv\.', r'patch_embed\.projection\.'), _from_mmpretrain),
    Layout(
        'mmseg',
        (r'layers\.0\.attn\.attn\.in_proj_weight', r'patch_embed\.projection\.weight'),
        _from_mmseg,
        arguments=TORCH_EPS,
        rows=TOKENS,
    ),
    # AugReg's table has a row for its class token, big_vision's has none
    Layout('jax', (SIGN, r'(.*/)?posembed_input/'), from_jax, IMAGES_OF_JAX, rows=TOKENS),
    Layout('jax', (SIGN, r'(params/|opt/target/)?(img/)?pos_embedding$'), from_jax, IMAGES_OF_JAX, rows=()),
    Layout('jax', (SIGN,), from_jax, IMAGES_OF_JAX),
    Layout(
        'vit-pytorch',
        (r'to_patch_embedding\.2\.', r'transformer\.layers\.0\.0\.to_qkv\.'),
        _from_vit_pytorch,
        arguments=TORCH_EPS,
        rows=TOKENS,
    ),
    Layout(
        'open_clip',
        (r'(visual\.)?conv1\.weight', r'(visual\.)?transformer\.resblocks\.0\.'),
        _from_open_clip,
        arguments=TORCH_EPS,
        rows=TOKENS,
    ),
)


def is_adapter(weights: Weights) -> bool:
    """Check for the layout of an adapter."""
    return weights.layout in [layout.name for layout in ADAPTERS]


def is_pyramid(weights: Weights) -> bool:
    """Check for the layout of a baseline with a pyramid."""
    return weights.layout in [layout.name for layout in PYRAMIDS]


def is_beit(weights: Weights) -> bool:
    """Check for BEiT's attention."""
    return all(weights.has(sign) for sign in _BEIT)


def prefix_tokens(weights: Weights) -> tuple[str, ...]:
    """Return the names of the tokens before the patches."""
    return tuple(name for name in TOKENS if name in weights.tensors)


def possible_tokens(weights: Weights) -> list[Tokens]:
    """Return the tokens that the PE tables of a file can have rows for, the usual ones first.

    An adapter or a pyramid need not have a class token, but keeps its row; where no layout says so, registers may have
    none, as DINOv2's, or no token, as DeiT III's.
    """
    tokens = {name: weights.tensors[name].shape[1] for name in prefix_tokens(weights)}
    if is_adapter(weights) or is_pyramid(weights):
        tokens = tokens or {'cls_token': 1}
    if weights.rows is not None:
        return [{name: count for name, count in tokens.items() if name in weights.rows}]
    every = [tokens, {name: count for name, count in tokens.items() if name != 'reg_token'}, {}]
    return [some for number, some in enumerate(every) if some not in every[:number]]


def table_tokens(weights: Weights) -> Tokens:
    """Return the tokens that the PE tables of a file have rows for, and how many each; none without a table.

    Raises:
        CheckpointError: If nothing tells it.
    """
    for name in NAMES.tables(weights):
        rows = with_batch_axis(weights.tensors[name]).shape[1]
        known, table = [weights.grid] if weights.grid else [], f'checkpoint {weights.path}: {name}'
        remedy = 'loading it into its model with grid=(rows, columns), and saving model.state_dict()'
        return read_rows(rows, possible_tokens(weights), known, [], table, remedy).tokens
    return {}


TANH_GELU = dict(type='GELU', approximate='tanh')
LEAF = r'\.(weight|bias)'
PLAIN = (
    rf'(patch_embed\.proj|norm){LEAF}|cls_token|pos_embed'
    rf'|blocks\.\d+\.(norm[12]|attn\.(qkv|proj)|mlp\.fc[12]){LEAF}'
)
OF_TABLE = ((AbsolutePosition,),)
CLASS_TOKEN = {'a class token': 'cls_token'}
LAST_NORM = {'a last norm': r'norm\.weight'}
PE_TABLE = {'a table of an absolute PE': 'pos_embed'}


def to_classifier(tensors: Tensors) -> Tensors:
    """Name a classifier's tensors as MMPretrain's with a ``VisionTransformerClsHead`` has them."""
    return {
        f'head.layers.{name}' if name.startswith(CLASS_HEADS) else f'backbone.{name}': value
        for name, value in tensors.items()
    }


def stem_bias(weights: Weights) -> list[str]:
    """Return the bias of a stem that has none where tokens + PE are normed, unless LN0 is before it."""
    tensors = weights.tensors
    bare = 'norm_pre.weight' in tensors and 'patch_embed.norm0.weight' not in tensors
    return ['a bias of the stem'] if bare and tensors['patch_embed.proj.bias'].any() else []


def mean_pooling(weights: Weights) -> list[str]:
    """Return the mean of the patches if a head reads it in spite of a class token."""
    with_token = weights.head_tensors and 'cls_token' in weights.tensors
    mean = with_token and weights.recorded.get('out_type') == 'avg_featmap'
    return ["a head on out_type='avg_featmap' beside a class token"] if mean else []


def rowless_tokens(weights: Weights) -> list[str]:
    """Return tokens before the patches if no table has rows for them."""
    rowless = prefix_tokens(weights) and NAMES.tables(weights) and not table_tokens(weights)
    return ['tokens without a row of the PE'] if rowless else []


def _clashes_in_timm(weights: Weights) -> list[str]:
    rows = NAMES.tables(weights) and list(table_tokens(weights))
    wrong = 'dist_token' in weights.tensors and rows != ['cls_token', 'dist_token']
    return stem_bias(weights) + ['a dist_token beside registers or without a row of the PE'] * wrong


TARGETS = {
    'classifier': Target(to_classifier, 'state_dict', part='backbone'),
    'timm': Target(
        to_timm,
        names=rf'{PLAIN}|dist_token|reg_token|(norm_pre|patch_embed\.norm1){LEAF}|blocks\.\d+\.gamma[12]'
        rf'|blocks\.\d+\.((attn|mlp)\.norm|attn\.[qk]_norm){LEAF}',
        encodings=(*OF_TABLE, ()),
        arguments={
            'pe_joining': ['default'],
            'patch_norm': ['none', 'post', 'post-posemb'],
            'norm_placement': ['sub-ln'],
            **dict.fromkeys(
                ('with_cls_token', 'num_registers', 'with_prefix_pe', 'qkv_bias', 'layer_scale_init_value')
            ),
            **dict.fromkeys(('final_norm', 'norm_cfg', 'act_cfg', 'out_type')),
        },
        clashes=_clashes_in_timm,
    ),
    'lape': Target(
        to_deit,
        'model',
        needed={**CLASS_TOKEN, **LAST_NORM, 'a position encoding': rf'pos_embed\d*|blocks\.0\.attn\.{TABLE}'},
        names=rf'{PLAIN}|dist_token|pos_embed\d+|blocks\.\d+\.(attn\.)?pe_norm{LEAF}'
        r'|blocks\.\d+\.attn\.relative_position_(bias_table|index)',
        encodings=(*OF_TABLE, ('rpe',)),
        arguments={
            'pe_joining': ['default', 'shared', 'unshared', 'lape'],
            'pe_norm': ['layernorm'],
            'patch_norm': ['none'],
            **dict.fromkeys(('qkv_bias', 'norm_cfg', 'out_type')),
        },
        clashes=lambda weights: mean_pooling(weights) + rowless_tokens(weights),
    ),
}
