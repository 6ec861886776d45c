"""What a plain ViT says about its checkpoints: tokens, arch, position encodings, joining and stem of a file."""

import re
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from mmlape.checkpoint.key_maps import Layout, Weights
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.checkpoint.targets import Target
from mmlape.errors import CheckpointError
from mmlape.models.base.isotropic import IsotropicBackbone
from mmlape.models.base.stored_position import NAMES, InferredPosition
from mmlape.models.grid import Grid
from mmlape.models.position.stored import with_batch_axis
from mmlape.models.vit.layouts import ADAPTER, LAYOUTS
from mmlape.models.vit.stored import (
    LAYER_SCALE,
    arch_of,
    is_clip,
    norm_placement_of,
    patch_norm_of,
    prefix_tokens,
    table_tokens,
)
from mmlape.models.vit.targets import TARGETS

TANH_GELU = "act_cfg=dict(type='GELU', approximate='tanh')"


def describe(weights: Weights, path: str, model: str) -> tuple[dict, dict, list[str]]:
    """Describe a plain ViT's file, see ``BaseBackbone.describe_checkpoint``.

    Args:
        weights: Of the file.
        path: Its path.
        model: The name of the backbone's class.
    """
    arch, position = arch_of(weights), _position_of(weights)
    rows = {
        'arch': arch['name'] or 'custom',
        **{key: value for key, value in arch.items() if key != 'name'},
        **NAMES.rows(weights, position),
        'patch_norm': patch_norm_of(weights),
        'norm_placement': norm_placement_of(weights),
        'prefix tokens': ', '.join(_counted(weights)) or 'none',
        'LayerScale': 'yes' if weights.has(r'blocks\.0\.gamma1$') else 'no',
        'adapter': 'yes' if weights.layout == 'vit-adapter' else 'no',
    }
    name, side = arch.pop('name'), arch.pop('patch_size')
    arch, notes = NAMES.arch(weights, name, arch)
    options = dict(
        type=f'mmlape.{model}',
        arch=arch,
        **position.img_size(side),
        **NAMES.options(weights, position),
        patch_norm=patch_norm_of(weights),
    )
    notes = NAMES.notes(weights, position) + _notes(weights) + notes
    return rows, dict(options, init_cfg=dict(type='Pretrained', checkpoint=path)), notes


def _position_of(weights: Weights, grid: Grid | None = None) -> InferredPosition:
    if weights.layout == 'jax' and not NAMES.tables(weights):  # big_vision stores no sinusoids
        return InferredPosition('sincos2d-moco', None, False)
    return NAMES.position(weights, sum(table_tokens(weights, grid).values()), grid)


def _counted(weights: Weights) -> list[str]:
    counts = {name: weights.tensors[name].shape[1] for name in prefix_tokens(weights)}
    return [name if count == 1 else f'{name} ({count})' for name, count in counts.items()]


def _notes(weights: Weights) -> list[str]:
    notes = []
    if weights.normalisation is None:
        notes.append("images: weights of DeiT and LaPE want ImageNet's mean and std, those of AugReg 127.5 for both")
    if weights.layout == 'mmseg':
        notes.append("mmsegmentation's norms have eps 1e-5 unless its config says otherwise")
    if weights.layout == 'jax':
        notes.append(f'weights of big_vision may want {TANH_GELU}, which leaves no trace')
    elif 'attn_pool.latent' in weights.dropped:
        notes.append(f'some models of SigLIP want {TANH_GELU}, which leaves no trace')
    if 'pre_logits.weight' in weights.heads:
        hidden = len(weights.heads['pre_logits.weight'])
        notes.append(f"pre_logits is of the head, dict(type='VisionTransformerClsHead', hidden_dim={hidden}, ...)")
    if is_clip(weights):
        notes.append(
            "CLIP's norms have eps 1e-5, and OpenAI's own weights want act_cfg=dict(type='mmpretrain.QuickGELU')"
        )
    return notes


def options_besides(weights: Weights) -> dict:
    """Return what differs from the defaults of ``VisionTransformer``, apart from arch and position."""
    tensors, found = weights.tensors, {}
    patch_size = arch_of(weights)['patch_size']
    if patch_size != 16:
        found['patch_size'] = patch_size
    if 'cls_token' not in tensors:
        found.update(with_cls_token=False, out_type='featmap')
    if 'reg_token' in tensors:
        found['num_registers'] = tensors['reg_token'].shape[1]
    if prefix_tokens(weights) and NAMES.tables(weights) and not table_tokens(weights):
        found['with_prefix_pe'] = False
    if (placement := norm_placement_of(weights)) != 'pre':
        found['norm_placement'] = placement
    if 'blocks.0.attn.qkv.bias' not in tensors:
        found['qkv_bias'] = False
    if 'blocks.0.gamma1' in tensors:
        found['layer_scale_init_value'] = 1e-5
    if weights.layout in ('mmseg', 'vit-pytorch', 'open_clip') or is_clip(weights):
        found['norm_cfg'] = dict(type='LN', eps=1e-5)
    if 'norm.weight' not in tensors:
        found['final_norm'] = False
    return found


def plain_config(weights: Weights, grid: Grid | None, path: str) -> dict:
    """Return the configuration of a plain ViT with a file's stem, norms and PE, to look at those.

    Args:
        weights: Of the file; an adapter's own parts are left out.
        grid: (rows, columns) of the stored PE; None for a square.
        path: The file.

    Raises:
        CheckpointError: If the PE is of no square grid and ``grid`` is None.
    """
    arch, position = arch_of(weights), _position_of(weights, grid)
    if position.needs_grid:
        raise CheckpointError(
            f'checkpoint {path}: its position embedding is of no square grid, pass --grid ROWS COLUMNS'
        )
    del arch['name']
    side, options = arch.pop('patch_size'), NAMES.options(weights, position)
    if len(NAMES.norms(weights)) > 1:  # a guess would be drawn as if known
        options.pop('pe_norm', None)
    return dict(
        type='mmlape.VisionTransformer',
        arch=dict(arch, num_heads=NAMES.heads(weights) or 1),
        **position.img_size(side),
        patch_size=side,
        in_channels=weights.tensors['patch_embed.proj.weight'].shape[1],
        out_type='raw',
        with_cls_token=bool(prefix_tokens(weights)),
        **options,
        patch_norm=patch_norm_of(weights),
        norm_cfg=options_besides(weights).get('norm_cfg'),
    )


class ViTCheckpoints(IsotropicBackbone):
    """The half of a ViT that deals with checkpoints."""

    untraced: ClassVar[dict[str, Any]] = {
        'patch_norm': 'none',
        'norm_cfg': dict(type='LN', eps=1e-6),
        'act_cfg': dict(type='GELU'),
        'window_attn': False,
        'window_size': 14,
    }

    @classmethod
    def checkpoint_layouts(cls) -> tuple[Layout, ...]:
        """Return the layouts of plain ViTs."""
        return LAYOUTS

    @classmethod
    def checkpoint_targets(cls) -> dict[str, Target]:
        """Return this package's layout and the public ones."""
        return {**super().checkpoint_targets(), **TARGETS}

    @classmethod
    def owns_checkpoint(cls, weights: Weights) -> bool:
        """Check for the prefix tokens of this class."""
        stored = tuple(name for name in prefix_tokens(weights) if name != 'reg_token')
        return weights.layout != ADAPTER.name and stored in (cls.prefix_tokens, ())

    @classmethod
    def describe_checkpoint(cls, weights: Weights, path: str) -> tuple[dict[str, str], dict, list[str]]:
        """Describe arch, position encodings and stem."""
        rows, config, notes = describe(weights, path, cls.__name__)
        init = config.pop('init_cfg')
        return rows, dict(config, **options_besides(weights), init_cfg=init), notes

    @classmethod
    def config_to_view(cls, weights: Weights, grid: Grid | None, path: str) -> dict:
        """Return a plain ViT with the file's stem, norms and PE."""
        return plain_config(weights, grid, path)

    def stored_tokens(self, weights: Weights, grid: Grid | None) -> dict[str, int]:
        """Return the prefix tokens that a file's PE tables have rows for, and how many each."""
        return table_tokens(weights, grid)

    def fit_checkpoint(self, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors as this model takes them; LayerScale must fit."""
        self._check_layer_scale(weights, report)
        if self.position.absolute is not None and self.num_prefix and not self.pe_prefix:
            weights = self._without_prefix_rows(weights, options, report)
        return super().fit_checkpoint(weights, options, report)

    def _without_prefix_rows(self, weights: Weights, options: LoadOptions, report: LoadReport) -> Weights:
        """Add the PE's rows of prefix tokens to these tokens, which is the same where the PE joins at the input."""
        stored = self.stored_tokens(weights, options.grid or weights.grid)
        tensors = dict(weights.tensors)
        for name in NAMES.tables(weights) if stored else ():
            if not self.position.joining.at_input:
                report.problems.append(
                    f'wrong PE: {name} of the file has rows for {", ".join(stored)}; set with_prefix_pe=True'
                )
                continue
            rows = with_batch_axis(tensors[name])[:, : sum(stored.values())].split(list(stored.values()), dim=1)
            for token, row in zip(stored, rows):
                tensors[token] = tensors[token] + row
            report.notes.append(f'the rows of {name} for {", ".join(stored)} were added to the tokens')
        return replace(weights, tensors=tensors)

    def optional_tokens(self, weights: Weights) -> tuple[str, ...]:
        """Return the class, distillation and register tokens of a file."""
        return prefix_tokens(weights)

    def _check_layer_scale(self, weights: Weights, report: LoadReport) -> None:
        """Refuse new LayerScale gammas other than 1: the file was trained with its branches unscaled."""
        if weights.has(LAYER_SCALE):
            return
        values = [value for name, value in self.state_dict().items() if re.match(LAYER_SCALE, name)]
        other = next((float(value[value != 1][0]) for value in values if (value != 1).any()), None)
        if other is not None:
            report.problems.append(
                f'wrong LayerScale: the file has none, and new gammas of {other:g} would scale its branches; set '
                'layer_scale_init_value=1, or 0 for no LayerScale'
            )

    def may_be_new(self, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor may keep its initial values: LayerScale may, where the file has none."""
        if re.match(LAYER_SCALE, name):
            return not weights.has(LAYER_SCALE)
        return super().may_be_new(name, weights, options)
