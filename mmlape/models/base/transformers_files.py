"""What the files of transformers have in common: a vision model anywhere in another one, and q, k and v apart.

Files on the hub, which ``save_pretrained`` writes, have the names of transformers 4. ``state_dict()`` of version 5 has
newer ones, and so have files of Lightning or of one's own loop. Both are read, the older ones are written.
"""

import re
from collections.abc import Callable, Mapping

from mmlape.checkpoint.key_maps import NameTable, Tensors, join_qkv, rename_keys, split_qkv
from mmlape.errors import CheckpointError
from mmlape.models.position.relative_bias import INDEX

STEM = r'(.*\.)?embeddings\.patch_embeddings?\.(projection\.)?weight'
"""Matches the name of a stem in each file, behind what stands before its vision model."""
EMBEDDINGS = {
    'embeddings.position_embeddings': 'pos_embed',
    'embeddings.patch_embeddings.projection.': 'patch_embed.proj.',
}
LAYER = {
    'attention.attention.query.': 'attn.q.',
    'attention.attention.key.': 'attn.k.',
    'attention.attention.value.': 'attn.v.',
    'attention.output.dense.': 'attn.proj.',
    'intermediate.dense.': 'mlp.fc1.',
    'output.dense.': 'mlp.fc2.',
    'layernorm_before.': 'norm1.',
    'layernorm_after.': 'norm2.',
}
"""The modules of a layer, and ours."""
NEWER = {
    'attention.q_proj.': 'attn.q.',
    'attention.k_proj.': 'attn.k.',
    'attention.v_proj.': 'attn.v.',
    'attention.o_proj.': 'attn.proj.',
    'mlp.': 'mlp.',
}
"""Other names of these modules in state dicts of transformers 5."""
_CLASSIFIER = r'^/(cls_)?classifier\.'
_OF_OTHERS = ('embeddings.mask_token', 'embeddings.position_ids', 'pooler.', 'head.')
"""What stands in a vision model beside its layers: for pretraining, and behind the tokens."""


def layers(start: str, names: Mapping[str, str], ours: str = 'blocks.#.') -> dict[str, str]:
    """Return names of the modules of layers, which begin with ``start``, and ours."""
    return {start + theirs: ours + our_name for theirs, our_name in names.items()}


def read(tensors: Tensors, names: NameTable) -> Tensors:
    """Translate the one vision model of a file; other parts are marked as such, classifiers get DeiT's names.

    Raises:
        CheckpointError: If there are several vision models.
    """
    towers = dict.fromkeys(stem[1] or '' for stem in (re.match(STEM, key) for key in tensors) if stem)
    if len(towers) > 1:
        raise CheckpointError(
            f'the file has {len(towers)} vision models ({", ".join(map(repr, towers))}): give '
            'mmlape.load_weights a dict with the tensors of one'
        )
    (tower,) = towers
    outer = re.sub(r'[^.]+\.$', '', tower)
    out: Tensors = {}
    for name, value in tensors.items():
        if not name.startswith(tower):
            out[f'/{name.removeprefix(outer)}'] = value
            continue
        inner_name = name.removeprefix(tower)
        beside = inner_name.startswith(_OF_OTHERS) or inner_name.endswith(INDEX)
        out[f'/{inner_name.removeprefix("embeddings.")}' if beside else inner_name] = value
    out = join_qkv(names.read(out))
    tokens = out.get('norm.weight', out['patch_embed.proj.weight'])
    return _with_heads(out, len(tokens))


def _with_heads(tensors: Tensors, width: int) -> Tensors:
    """Name classifiers that read one token or the mean of tokens, which DINOv2's do not, as DeiT does."""
    heads = [name for name in tensors if re.match(_CLASSIFIER, name)]
    if any(tensors[name].ndim == 2 and tensors[name].shape[1] != width for name in heads):
        return tensors
    return rename_keys(tensors, [(_CLASSIFIER, 'head.'), (r'^/distillation_classifier\.', 'head_dist.')])


def writer(
    names: NameTable, model: str, heads: Mapping[str, str], change: Callable[[Tensors], Tensors] = dict
) -> Callable[[Tensors], Tensors]:
    """Return what translates tensors back to the names of one architecture, queries, keys and values apart.

    ``model`` stands before the vision model's names where ``heads``, ours and theirs, go along.
    """

    def write(tensors: Tensors) -> Tensors:
        tensors = rename_keys(tensors, [(r'^head\.fc\.', 'head.')])
        of_heads = {name: value for name, value in tensors.items() if name.startswith('head')}
        of_model = {name: value for name, value in tensors.items() if name not in of_heads}
        prefix = model if of_heads or not heads else ''
        theirs = dict(heads)
        if 'head_dist.' in heads and 'head_dist.weight' not in of_heads:
            theirs['head.'] = 'classifier.'  # one that reads the class token alone
        out = {prefix + name: value for name, value in names.write(split_qkv(change(of_model))).items()}
        return out | rename_keys(of_heads, [(f'^{re.escape(ours)}', their) for ours, their in theirs.items()])

    return write
