"""The checkpoint files of a plain ViT: which are of it, and how they fit a model."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.checkpoint.fetching import local_path
from mmlape.checkpoint.key_maps import Target, Weights, with_batch_axis
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.checkpoint.metadata import config_beside
from mmlape.models.base.checkpoint import CheckpointAdapter
from mmlape.models.base.fitting import Tokens, read_table
from mmlape.models.vit.layouts import (
    ADAPTERS,
    DINOV2_GIANT,
    EVA_NAMES,
    LAYOUTS,
    NAMES,
    OF_UNI_PERCEIVER,
    PYRAMIDS,
    TARGETS,
    is_adapter,
    is_beit,
    is_pyramid,
    possible_tokens,
    prefix_tokens,
)
from mmlape.models.vit.transformers_layouts import LAYOUTS as OF_TRANSFORMERS
from mmlape.models.vit.transformers_layouts import TARGETS as TO_TRANSFORMERS

_NAMES_OF_TRANSFORMERS = tuple(layout.name for layout in OF_TRANSFORMERS)
LAYER_SCALE = r'blocks\.\d+\.gamma[12]$'
TANH_GELU = "act_cfg=dict(type='GELU', approximate='tanh')"


def is_clip(weights: Weights) -> bool:
    """Check for CLIP's stem: no bias (read as zeros), and a norm after the PE; DINOv2's adapter may have both, too."""
    tensors, other = weights.tensors, weights.layout == 'mmseg' or is_adapter(weights)
    return not other and 'norm_pre.weight' in tensors and not tensors['patch_embed.proj.bias'].any()


def of_transformers(weights: Weights) -> bool:
    """Check for a layout of transformers."""
    return weights.layout in _NAMES_OF_TRANSFORMERS


class ViTCheckpointAdapter(CheckpointAdapter):
    """Files of plain ViTs in the layouts of DeiT, LaPE, timm, OpenMMLab, big_vision, open_clip and vit-pytorch."""

    public_layouts = LAYOUTS + OF_TRANSFORMERS
    public_targets: ClassVar[Mapping[str, Target]] = TARGETS | TO_TRANSFORMERS
    names = NAMES
    assumed_arguments: ClassVar[Mapping[str, Any]] = {
        'patch_norm': 'none',
        'norm_cfg': dict(type='LN', eps=1e-6),
        'act_cfg': dict(type='GELU'),
        'window_attn': False,
        'window_size': 14,
        'window_padding': 'after-qkv',
        'n_points': 4,  # of an adapter
    }

    def owns(self, model_class: type, weights: Weights) -> bool:
        """Check for the prefix tokens of this class, and for nothing of timm's other ViTs and their adapters."""
        if self.parts:
            return self.has_parts(weights)
        known = is_beit(weights) or of_transformers(weights) or 'pe_type' in weights.recorded
        # LayerScale by this name, which EVA has by another, beside biases of queries and values
        ours = weights.has(r'blocks\.0\.gamma1') and not weights.has('storage_tokens')
        eva = weights.has(EVA_NAMES) and not (known or ours)
        if eva or any(name.startswith('spm.') for name in weights.dropped):
            return False
        stored = tuple(name for name in prefix_tokens(weights) if name != 'reg_token')
        other = is_adapter(weights) or is_pyramid(weights) or weights.layout == DINOV2_GIANT
        return not other and stored in (model_class.prefix_tokens, ())

    def table_tokens(self, model: nn.Module | type, weights: Weights) -> list[Tokens]:
        """Return the tokens that a file's PE tables can have rows for; none first for a model without such rows."""
        tokens = possible_tokens(weights)
        return tokens if getattr(model, 'with_prefix_pe', True) else tokens[::-1]

    # describe

    def notes(self, weights: Weights) -> list[str]:
        """Return what leaves no trace in files of some layouts."""
        hidden = len(weights.head_tensors.get('pre_logits.weight', ()))
        siglip = weights.layout != 'jax' and 'attn_pool.latent' in weights.dropped
        notes = {
            "images: weights of DeiT and LaPE want ImageNet's mean and std, those of AugReg 127.5 for both": (
                weights.normalisation is None
            ),
            "mmsegmentation's norms have eps 1e-5 unless its config says otherwise": weights.layout == 'mmseg',
            f'weights of big_vision may want {TANH_GELU}, which leaves no trace': weights.layout == 'jax',
            f'some models of SigLIP want {TANH_GELU}, which leaves no trace': siglip,
            f"pre_logits is of the head, dict(type='VisionTransformerClsHead', hidden_dim={hidden}, ...)": hidden,
            "CLIP's norms have eps 1e-5, and OpenAI's own weights want act_cfg=dict(type='mmpretrain.QuickGELU')": (
                is_clip(weights)
            ),
        }
        return super().notes(weights) + [note for note, holds in notes.items() if holds]

    # fit

    def fit(self, model: nn.Module, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors as a model takes them; LayerScale must fit."""
        report.problems += [*_other_base(model, weights), *_other_activation(model, weights)]
        weights = _with_patches_of(model, weights, report)
        _check_layer_scale(model, weights, report)
        if model.position.absolute is not None and model.num_prefix and not model.pe_prefix:
            weights = self._without_prefix_rows(model, weights, options, report)
        return super().fit(model, weights, options, report)

    def _without_prefix_rows(
        self, model: nn.Module, weights: Weights, options: LoadOptions, report: LoadReport
    ) -> Weights:
        """Add the PE's rows of prefix tokens to these tokens, which is the same where the PE joins at the input."""
        tensors, grid = dict(weights.tensors), options.grid or weights.grid
        for name in (name for name in model.stored_tables() if name in tensors):
            table = with_batch_axis(tensors[name])
            stored = read_table(model, name, table, self.table_tokens(model, weights), grid, report.path).tokens
            if stored and not model.position.joining.at_input:
                report.problems.append(
                    f'wrong PE: {name} of the file has rows for {", ".join(stored)}; set with_prefix_pe=True'
                )
            elif stored:
                rows = table[:, : sum(stored.values())].split(list(stored.values()), dim=1)
                tensors |= {token: tensors[token] + row for token, row in zip(stored, rows)}
                report.notes.append(f'the rows of {name} for {", ".join(stored)} were added to the tokens')
        return replace(weights, tensors=tensors)

    def may_be_new(self, model: nn.Module, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor may keep its initial values.

        LayerScale may where the file has none, and over BEiT's weights the table of a LaPE beside its bias.
        """
        if re.match(LAYER_SCALE, name):
            return not weights.has(LAYER_SCALE)
        if name in model.pe_names and options.allow_joining_mismatch and is_beit(weights):
            return not NAMES.tables(weights)
        return super().may_be_new(model, name, weights, options)


def _other_base(model: nn.Module, weights: Weights) -> list[str]:
    """Return what shows that a file is of another base than the model."""
    stored = is_beit(weights)
    model_is_beit = any(name.endswith('attn.q_bias') for name in model.state_dict())
    without_keys = stored or weights.has(r'blocks\.0\.attn\.q_bias')
    rotary = weights.arguments.get('pe_type')
    options = model.position.options().get('pe_type')
    uni_perceiver = weights.layout in OF_UNI_PERCEIVER
    eps, padding = (model.recorded_arguments.get(key) for key in ('norm_cfg', 'window_padding'))
    after_qkv = padding == 'after-qkv' and is_adapter(weights)
    problems = {
        "wrong base: the file is of BEiT, which has qkv_bias='qv' and pe_type='beit'": stored and not model_is_beit,
        "wrong base: qkv_bias='qv' is BEiT's, but the file is of another ViT": model_is_beit and not without_keys,
        f'wrong PE: the file is of DINOv3, which has pe_type={rotary!r}, the model {options!r}': bool(rotary)
        and not _includes(options, rotary),
        "wrong base: the file is of Uni-Perceiver, which has patch_norm='post-posemb', "
        "with_prefix_pe=False and norm_cfg=dict(type='LN', eps=1e-5)": uni_perceiver
        and (model.norm_pre is None or eps.get('eps') != 1e-5),
        "wrong window_padding: the file's windows were padded before the qkv projection; set "
        "window_padding='before-qkv'": after_qkv and (stored or uni_perceiver),
    }
    return [problem for problem, holds in problems.items() if holds]


HIDDEN_ACTS = {
    'gelu': dict(type='GELU'),
    **{name: dict(type='GELU', approximate='tanh') for name in ('gelu_new', 'gelu_fast', 'gelu_pytorch_tanh')},
    'quick_gelu': dict(type='mmpretrain.QuickGELU'),
}
"""What ``hidden_act`` of transformers' configurations is as ``act_cfg``."""


def _other_activation(model: nn.Module, weights: Weights) -> list[str]:
    """Return the activation that the ``config.json`` beside a file of transformers names, if the model has another."""
    config = config_beside(local_path(weights.path)) if of_transformers(weights) and weights.path else {}
    name, built = config.get('vision_config', config).get('hidden_act'), model.recorded_arguments.get('act_cfg')
    wanted = HIDDEN_ACTS.get(name, built)
    kinds = [(str(cfg['type']).rpartition('.')[2], cfg.get('approximate', 'none')) for cfg in (wanted, built)]
    if kinds[0] == kinds[1]:
        return []
    return [f'wrong act_cfg: its config.json has hidden_act={name!r}, which is {wanted}, and the model has {built}']


def _includes(options: Any, wanted: Mapping[str, Any]) -> bool:
    """Check whether a model's ``pe_type`` has some values, whatever else it says."""
    pe_type = options if isinstance(options, Mapping) else dict(type=options)
    return all(pe_type.get(key) == value for key, value in wanted.items())


def _with_patches_of(model: nn.Module, weights: Weights, report: LoadReport) -> Weights:
    """Resize DINOv2's patches of 14 pixels to a model's 16, linearly as the public detection code; its PE stays."""
    name, side = 'patch_embed.proj.weight', model.patch_size
    kernel = weights.tensors[name]
    if 'mask_token' not in weights.dropped or kernel.shape[-1] != 14 or side != 16:
        return weights
    report.resized[name] = f'14x14 -> {side}x{side}'
    kernel = F.interpolate(kernel, (side, side), mode='bilinear', align_corners=False)
    return replace(weights, tensors={**weights.tensors, name: kernel})


def _check_layer_scale(model: nn.Module, weights: Weights, report: LoadReport) -> None:
    """Refuse new LayerScale gammas other than 1: the file was trained with its branches unscaled."""
    if weights.has(LAYER_SCALE):
        return
    values = [value for name, value in model.state_dict().items() if re.match(LAYER_SCALE, name)]
    other = next((float(value[value != 1][0]) for value in values if (value != 1).any()), None)
    if other is not None:
        report.problems.append(
            f'wrong LayerScale: the file has none, and new gammas of {other:g} would scale its '
            'branches; set layer_scale_init_value=1, or 0 for no LayerScale'
        )


ADAPTER_PARTS = ('level_embed', 'spm.', 'interactions.', 'up.', 'norm1.', 'norm2.', 'norm3.', 'norm4.')
"""Beginnings of the names of an adapter's tensors."""
PYRAMID_PARTS = ('norm1.', 'norm2.', 'norm3.', 'norm4.', 'up1.', 'up2.')
OF_VIT = ViTCheckpointAdapter()
OF_ADAPTER = ViTCheckpointAdapter(
    parts=ADAPTER_PARTS, with_parts=ADAPTERS, untold='windows, interaction_indexes, vit_feature_source and n_points'
)
OF_PYRAMID = ViTCheckpointAdapter(parts=PYRAMID_PARTS, with_parts=PYRAMIDS, untold='out_indices and windows')
