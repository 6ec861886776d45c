"""An isotropic backbone with archs by name and one stem: what its files tell, and what describes them."""

import re
from typing import Any, ClassVar

from mmlape.checkpoint.key_maps import Weights
from mmlape.errors import CheckpointError
from mmlape.models.backbones.isotropic import IsotropicBackbone
from mmlape.models.backbones.stored_position import NAMES
from mmlape.models.layers.grid import Grid

_NORM_NAMES = {
    ('norm0.weight', 'norm0.bias', 'norm1.weight', 'norm1.bias'): 'dual',
    ('norm0.weight', 'norm0.bias'): 'pre',
    ('norm1.weight', 'norm1.bias'): 'post',
    ('norm0.weight', 'norm1.weight'): 'rms',
}


class NamedArchBackbone(IsotropicBackbone):
    """The half of such a backbone that deals with checkpoints; a class token is the only one before the patches.

    Attributes:
        archs: Arguments by name.
        stem: The name of the module that makes tokens of an image.
        stored_widths: Keys of an arch, and the tensor whose first axis is so long.
    """

    archs: ClassVar[dict[str, dict]] = {}
    stem: ClassVar[str] = ''
    stored_widths: ClassVar[dict[str, str]] = {}
    untraced: ClassVar[dict[str, Any]] = {'patch_norm': 'none'}
    patch_size = 16

    @classmethod
    def stored_options(cls, weights: Weights) -> dict:
        """Return the arguments that a file tells besides arch, position encodings and ``patch_norm``."""
        return {}

    @classmethod
    def describe_checkpoint(cls, weights: Weights, path: str) -> tuple[dict[str, str], dict, list[str]]:
        """Describe arch, position encodings and stem."""
        widths, name, position = *cls._stored_arch(weights), NAMES.position(weights, 1)
        joinings, norms = NAMES.joinings(weights), NAMES.norms(weights)
        options, grid = cls.stored_options(weights), position.grid
        rows = {
            'arch': name or 'custom',
            **widths,
            **options,
            'pe_type': position.pe_type,
            'pe grid': f'{grid[0]} x {grid[1]}' if grid else '',
            'pe_joining': ' or '.join(joinings),
            'pe_norm': ' or '.join(norms) or 'none',
            'patch_norm': cls._stored_patch_norm(weights),
        }
        init = dict(type='Pretrained', checkpoint=path)
        notes = [] if name else ['num_heads leaves no trace in a file']
        if position.needs_grid:
            init['grid'] = ('?', '?')
            notes.append('the PE is of no square grid: its rows and columns are those of the pretraining')
        if NAMES.tables(weights):
            notes += [
                f'the file does not say whether {key} is {" or ".join(values)}'
                for key, values in (('pe_joining', joinings), ('pe_norm', norms))
                if len(values) > 1
            ]
        return rows, dict(cls._config(weights, position.pe_type), **options, init_cfg=init), notes

    @classmethod
    def config_to_view(cls, weights: Weights, grid: Grid | None, path: str) -> dict:
        """Return a model with the file's stem, norms and PE, to look at those."""
        position = NAMES.position(weights, 1, grid)
        if position.needs_grid:
            raise CheckpointError(
                f'checkpoint {path}: its position embedding is of no square grid, pass --grid ROWS COLUMNS'
            )
        config, options = cls._config(weights, position.pe_type), cls.stored_options(weights)
        if isinstance(config['arch'], dict):
            config['arch']['num_heads'] = NAMES.heads(weights) or 1
        size = tuple(side * cls.patch_size for side in position.grid or (14, 14))
        return dict(config, **{**options, 'out_type': 'raw'}, img_size=size)

    @classmethod
    def _stored_arch(cls, weights: Weights) -> tuple[dict[str, int], str | None]:
        """Return widths and depth, and their name; the number of heads leaves no trace in a file."""
        found = {key: len(weights.tensors[name]) for key, name in cls.stored_widths.items()}
        found['num_layers'] = len({m[1] for name in weights.tensors if (m := re.match(r'blocks\.(\d+)\.', name))})
        fitting = (name for name, arch in cls.archs.items() if found.items() <= arch.items())
        return found, next(fitting, None)

    @classmethod
    def _stored_patch_norm(cls, weights: Weights) -> str:
        stored = weights.below(f'{cls.stem}.')
        names = tuple(name for keys in _NORM_NAMES for name in keys if name in stored)
        return next((kind for keys, kind in _NORM_NAMES.items() if set(keys) == set(names)), 'none')

    @classmethod
    def _config(cls, weights: Weights, pe_type: str | list[str]) -> dict:
        widths, name = cls._stored_arch(weights)
        norm, patch_norm = next(iter(NAMES.norms(weights)), 'layernorm'), cls._stored_patch_norm(weights)
        return dict(
            type=f'mmlape.{cls.__name__}',
            arch=name or dict(widths, num_heads='?'),
            pe_type=pe_type,
            pe_joining=NAMES.joinings(weights)[0] if pe_type != 'none' else 'default',
            **({} if norm == 'layernorm' else {'pe_norm': norm}),
            **({} if patch_norm == 'none' else {'patch_norm': patch_norm}),
        )
