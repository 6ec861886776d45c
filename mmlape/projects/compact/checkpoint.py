"""What ViT-Lite, CVT and CCT say about their checkpoints: the public layout, both ways."""

from collections.abc import Mapping
from typing import Any, ClassVar

from mmlape.checkpoint.key_maps import Layout, NameTable, Target, Tensors, Weights, rename_keys
from mmlape.models.base.checkpoint import CheckpointAdapter
from mmlape.models.base.tensor_names import TensorNames
from mmlape.models.position import AbsolutePosition

CLASS_TOKEN, POOL = 'class_emb', 'attention_pool.'
NAMES = TensorNames('positional_emb', attn='self_attn.')


PUBLIC_NAMES = NameTable({'classifier.fc.': 'head.fc.', 'tokenizer.': 'tokenizer.', 'classifier.': ''})


def _to_public(tensors: Tensors) -> Tensors:
    return PUBLIC_NAMES.write(rename_keys(tensors, [(r'^head\.(?!fc\.)', 'head.fc.')]))


LAYOUTS = (
    Layout(
        'compact-transformers',
        (r'classifier\.blocks\.0\.self_attn\.qkv\.', r'tokenizer\.conv_layers\.'),
        PUBLIC_NAMES.read,
    ),
    Layout('compact', (r'blocks\.0\.self_attn\.qkv\.', r'tokenizer\.conv_layers\.')),
)


def _other_pooling(weights: Weights) -> list[str]:
    """Return what pools the tokens otherwise than by the class token or by sequence pooling."""
    if CLASS_TOKEN not in weights.tensors and not weights.has(POOL):
        return ['a model without pooling']
    pooled = weights.recorded.get('out_type', 'cls_token')
    other = weights.head_tensors and pooled not in ('cls_token', 'sequence_pool')
    return [f'a head on out_type={pooled!r}'] if other else []


PUBLIC = Target(
    _to_public,
    names=r'tokenizer\.conv_layers\.\d+\.0\.\w+|positional_emb|class_emb|(attention_pool|norm)\.\w+'
    r'|blocks\.\d+\.(pre_norm|norm1|linear[12]|self_attn\.(qkv|proj))\.\w+',
    encodings=((AbsolutePosition,), ()),
    arguments={'pe_joining': ['default'], 'patch_norm': ['none'], 'out_type': None},
    clashes=_other_pooling,
)


class CompactCheckpointAdapter(CheckpointAdapter):
    """The public code's names, with ``classifier.`` and without."""

    public_layouts = LAYOUTS
    public_targets: ClassVar[Mapping[str, Target]] = {'compact-transformers': PUBLIC}
    names = NAMES
    assumed_arguments: ClassVar[Mapping[str, Any]] = {'patch_norm': 'none'}

    def notes(self, weights: Weights) -> list[str]:
        """Return what the public weights want."""
        unknown = weights.normalisation is None
        return ["images: the public weights want their dataset's mean and std"] * unknown
