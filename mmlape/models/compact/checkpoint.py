"""What ViT-Lite, CVT and CCT say about their checkpoints: the public layout, and what a file tells of a model."""

import re
from typing import Any, ClassVar

from torch import Tensor

from mmlape.checkpoint.key_maps import Layout, Tensors, Weights, rename_keys
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.checkpoint.targets import Target
from mmlape.errors import CheckpointError
from mmlape.models.base.isotropic import IsotropicBackbone
from mmlape.models.base.stored_position import InferredPosition, TensorNames
from mmlape.models.compact.options import ARCHS, patch_side
from mmlape.models.grid import Grid
from mmlape.models.position import AbsolutePosition
from mmlape.models.vit.stored import patch_norm_of

CLASS_TOKEN, POOL = 'class_emb', 'attention_pool.'
NAMES = TensorNames('positional_emb', attn='self_attn.')


def _from_public(tensors: Tensors) -> Tensors:
    return rename_keys(tensors, [(r'^classifier\.fc\.', 'head.fc.'), (r'^classifier\.', '')])


def _to_public(tensors: Tensors) -> Tensors:
    return rename_keys(tensors, [(r'^head\.(fc\.)?', 'classifier.fc.'), (r'^(?!tokenizer\.)', 'classifier.')])


LAYOUTS = (
    Layout(
        'compact-transformers', (r'classifier\.blocks\.0\.self_attn\.qkv\.', r'tokenizer\.conv_layers\.'), _from_public
    ),
    Layout('compact', (r'blocks\.0\.self_attn\.qkv\.', r'tokenizer\.conv_layers\.')),
)


def _other_pooling(weights: Weights) -> list[str]:
    """Return what pools the tokens otherwise than by the class token or by sequence pooling."""
    if CLASS_TOKEN not in weights.tensors and not weights.has(POOL):
        return ['a model without pooling']
    pooled = weights.known.get('out_type', 'cls_token')
    other = weights.heads and pooled not in ('cls_token', 'sequence_pool')
    return [f'a head on out_type={pooled!r}'] if other else []


PUBLIC = Target(
    _to_public,
    names=r'tokenizer\.conv_layers\.\d+\.0\.\w+|positional_emb|class_emb|(attention_pool|norm)\.\w+'
    r'|blocks\.\d+\.(pre_norm|norm1|linear[12]|self_attn\.(qkv|proj))\.\w+',
    encodings=((AbsolutePosition,), ()),
    arguments={'pe_joining': ['default'], 'patch_norm': ['none'], 'out_type': None},
    clashes=_other_pooling,
)


def _patch_norm(weights: Weights) -> str:
    return patch_norm_of(weights, 'tokenizer')


def arch_of(weights: Weights) -> tuple[str | None, dict]:
    """Return the name of an arch, or None, and its values apart from the heads."""
    tensors = weights.tensors
    stems = [name for name in tensors if re.fullmatch(r'tokenizer\.conv_layers\.\d+\.0\.weight', name)]
    side = tensors[stems[0]].shape[-1]
    patches = 'tokenizer.conv_layers.0.0.bias' in tensors
    hidden, dims = tensors['blocks.0.linear1.weight'].shape
    arch = dict(
        embed_dims=dims,
        num_layers=1 + max(int(m[1]) for name in tensors if (m := re.match(r'blocks\.(\d+)\.', name))),
        feedforward_channels=hidden,
        tokenizer=dict(type='patch', patch_size=side)
        if patches
        else dict(type='conv', kernel_size=side, num_convs=len(stems)),
        pooling='cls_token' if CLASS_TOKEN in tensors else 'sequence_pool',
    )
    heads = NAMES.heads(weights)
    fitting = (name for name, known in ARCHS.items() if dict(arch, num_heads=heads or known['num_heads']) == known)
    return next(fitting, None), arch


class CompactCheckpoints(IsotropicBackbone):
    """The half of ``CompactTransformer`` that deals with checkpoints."""

    stored_names = NAMES
    untraced: ClassVar[dict[str, Any]] = {'patch_norm': 'none'}

    @classmethod
    def checkpoint_layouts(cls) -> tuple[Layout, ...]:
        """Return the public code's layout and ours."""
        return LAYOUTS

    @classmethod
    def checkpoint_targets(cls) -> dict[str, Target]:
        """Return this package's layout, and that of the public code."""
        return {**super().checkpoint_targets(), 'compact-transformers': PUBLIC}

    @classmethod
    def stored_position(cls, weights: Weights, grid: Grid | None = None) -> InferredPosition:
        """Return a file's position encodings; ``grid`` is of the stored PE, None for a square."""
        return NAMES.position(weights, int(CLASS_TOKEN in weights.tensors), grid)

    @classmethod
    def describe_checkpoint(cls, weights: Weights, path: str) -> tuple[dict[str, str], dict, list[str]]:
        """Describe arch, position encodings and stem."""
        name, arch = arch_of(weights)
        position = cls.stored_position(weights)
        rows = {
            'arch': name or 'custom',
            **arch,
            **NAMES.rows(weights, position),
            'patch_norm': _patch_norm(weights),
        }
        config, notes = cls._config(weights, position)
        notes += NAMES.notes(weights, position)
        if weights.normalisation is None:
            notes.append("images: the public weights want their dataset's mean and std")
        return rows, dict(config, init_cfg=dict(type='Pretrained', checkpoint=path)), notes

    @classmethod
    def _config(cls, weights: Weights, position: InferredPosition) -> tuple[dict, list[str]]:
        """Return the arguments that a file tells, and notes."""
        name, shape = arch_of(weights)
        arch, notes = NAMES.arch(weights, name, shape)
        channels = weights.tensors['tokenizer.conv_layers.0.0.weight'].shape[1]
        config = dict(type=f'mmlape.{cls.__name__}', arch=arch)
        if position.grid:
            side = patch_side(shape['tokenizer'])
            rows, columns = (cells * side for cells in position.grid)
            config['img_size'] = rows if rows == columns else (rows, columns)
        if channels != 3:
            config['in_channels'] = channels
        if CLASS_TOKEN not in weights.tensors and not weights.has(POOL):
            config['out_type'] = 'featmap'
        config.update(NAMES.options(weights, position), patch_norm=_patch_norm(weights))
        return config, notes

    @classmethod
    def config_to_view(cls, weights: Weights, grid: Grid | None, path: str) -> dict:
        """Return a model with the file's stem, norms and PE."""
        position = cls.stored_position(weights, grid)
        if position.needs_grid:
            raise CheckpointError(
                f'checkpoint {path}: its position embedding is of no square grid, pass --grid ROWS COLUMNS'
            )
        return cls._config(weights, position)[0]

    def stored_tokens(self, weights: Weights, grid: Grid | None) -> dict[str, int]:
        """Return the class token of a file, which its PE has a row for."""
        return dict.fromkeys(self.optional_tokens(weights), 1)

    def fit_checkpoint(self, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors without the pooling where this model has none."""
        tensors = super().fit_checkpoint(weights, options, report)
        if self.attention_pool is None:
            for name in [name for name in tensors if name.startswith(POOL)]:
                del tensors[name]
                report.dropped.append(name)
        return tensors
