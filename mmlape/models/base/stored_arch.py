"""An isotropic backbone with archs by name and one stem: what its files tell, and what describes them."""

import re
from typing import Any, ClassVar

from mmlape.checkpoint.key_maps import Weights
from mmlape.errors import CheckpointError
from mmlape.models.base.isotropic import IsotropicBackbone
from mmlape.models.base.stored_position import NAMES, InferredPosition
from mmlape.models.grid import Grid

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
    def infer_options(cls, weights: Weights) -> dict:
        """Return the arguments that a file tells besides arch, position encodings and ``patch_norm``."""
        return {}

    @classmethod
    def describe_checkpoint(cls, weights: Weights, path: str) -> tuple[dict[str, str], dict, list[str]]:
        """Describe arch, position encodings and stem."""
        widths, name, position = *cls._stored_arch(weights), NAMES.position(weights, 1)
        options = cls.infer_options(weights)
        rows = {
            'arch': name or 'custom',
            **widths,
            **options,
            **NAMES.rows(weights, position),
            'patch_norm': cls._stored_patch_norm(weights),
        }
        config, notes = cls._config(weights, position)
        config |= {
            **position.img_size(cls.patch_size),
            **options,
            'init_cfg': dict(type='Pretrained', checkpoint=path),
        }
        return rows, config, notes + NAMES.notes(weights, position)

    @classmethod
    def config_to_view(cls, weights: Weights, grid: Grid | None, path: str) -> dict:
        """Return a model with the file's stem, norms and PE, to look at those."""
        position = NAMES.position(weights, 1, grid)
        if position.needs_grid:
            raise CheckpointError(
                f'checkpoint {path}: its position embedding is of no square grid, pass --grid ROWS COLUMNS'
            )
        options = cls._config(weights, position)[0] | position.img_size(cls.patch_size)
        return {**options, **cls.infer_options(weights), 'out_type': 'raw'}

    @classmethod
    def _stored_arch(cls, weights: Weights) -> tuple[dict[str, int], str | None]:
        """Return widths and depth, and their name."""
        found = {key: len(weights.tensors[name]) for key, name in cls.stored_widths.items()}
        found['num_layers'] = len({m[1] for name in weights.tensors if (m := re.match(r'blocks\.(\d+)\.', name))})
        heads = NAMES.heads(weights)
        told = found | ({'num_heads': heads} if heads else {})
        fitting = (name for name, arch in cls.archs.items() if told.items() <= arch.items())
        return found, next(fitting, None)

    @classmethod
    def _stored_patch_norm(cls, weights: Weights) -> str:
        stored = weights.below(f'{cls.stem}.')
        names = tuple(name for keys in _NORM_NAMES for name in keys if name in stored)
        return next((kind for keys, kind in _NORM_NAMES.items() if set(keys) == set(names)), 'none')

    @classmethod
    def _config(cls, weights: Weights, position: InferredPosition) -> tuple[dict, list[str]]:
        """Return the arguments that a file tells, and notes."""
        widths, name = cls._stored_arch(weights)
        arch, notes = NAMES.arch(weights, name, widths)
        norm = cls._stored_patch_norm(weights)
        config = dict(type=f'mmlape.{cls.__name__}', arch=arch, **NAMES.options(weights, position))
        return dict(config, **({} if norm == 'none' else {'patch_norm': norm})), notes
