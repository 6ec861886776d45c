"""Weights of timm's ViTs: files of timm, of the authors and of this package, through timm's own filters."""

import contextlib
import io
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from inspect import signature
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import ANY  # equals everything

import torch
from torch import Tensor, nn

from mmlape.checkpoint.key_maps import Layout, Target, Tensors, Weights, rename_keys
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.errors import CheckpointError
from mmlape.models.base.checkpoint import CheckpointAdapter, Size, recorded_config
from mmlape.models.base.fitting import Tokens, fit_pe_norms, fit_table, read_table
from mmlape.models.timm.joined import TABLE, Proxy, table_names
from mmlape.models.timm.pretrained import PREFIX_TOKENS, VIT
from mmlape.models.vit.checkpoint import ADAPTER_PARTS
from mmlape.models.vit.layouts import EVA_NAMES, SAM, is_beit, join_gates, to_timm, unchunked
from mmlape.models.vit.transformers_layouts import LAYOUTS as OF_TRANSFORMERS
from mmlape.models.vit.transformers_layouts import from_transformers

PATCHES = 'patch_embed.proj.weight'


_IN_SEGMENTOR = r'(segmentation_model\.0\.)?'
_META_NAMES = (
    (rf'^{_IN_SEGMENTOR}backbone\.', VIT),
    (r'^segmentation_model\.0\.', ''),
    (r'^segmentation_model\.', '/segmentation_model.'),  # the head
)
ADAPTER = Layout('timm-adapter', (r'vit\.blocks\.0\.', r'spm\.stem\.'), absent=r'vit\.storage_tokens')
DINOV3_ADAPTER = Layout(
    'dinov3-adapter',
    (rf'{_IN_SEGMENTOR}(backbone\.blocks\.0\.|vit\.storage_tokens)', rf'{_IN_SEGMENTOR}spm\.stem\.'),
    lambda tensors: rename_keys(tensors, _META_NAMES),
    beside=True,
)
DINOV3_PARTS = Layout(
    "DINOv3's adapter without its ViT",
    (rf'{_IN_SEGMENTOR}interactions\.0\.extractor\.', rf'{_IN_SEGMENTOR}spm\.stem\.'),
    absent=rf'{_IN_SEGMENTOR}(backbone|vit|blocks)\.',
    beside=True,
    refused="put the tensors of its ViT's file beside them, 'backbone.' in front of each name (behind what 'spm.stem' "
    'has in front), and load that file',
)
_GAMMAS = (r'\.gamma([12])$', r'.ls\1.gamma')
_OF_DINOV2 = (_GAMMAS, (r'^reg_token$', 'register_tokens'), (r'^/mask_token$', 'mask_token'))
_OF_DINOV3 = (_GAMMAS, (r'^reg_token$', 'storage_tokens'))


def _from_transformers(tensors: Tensors) -> Tensors:
    """Give a file of transformers the authors' names, which timm's filters read."""
    out = from_transformers(tensors)
    if 'pos_embed' not in out and 'blocks.0.attn.q_bias' in out:
        for name in [name for name in out if name.endswith('.attn.q_bias')]:
            q, v = out.pop(name), out.pop(name.replace('q_bias', 'v_bias'))
            out[name.replace('q_bias', 'qkv.bias')] = torch.cat((q, torch.zeros_like(q), v))
        return rename_keys(out, _OF_DINOV3)
    if '/mask_token' not in out:
        return to_timm(out)
    return rename_keys(join_gates(out), _OF_DINOV2)


OWN = Layout('mmlape-timm', (r'vit\.blocks\.0\.',))
LAYOUTS = (
    SAM,
    ADAPTER,
    OWN,
    Layout('timm', (r'blocks\.0\.', r'patch_embed\.proj\.'), unchunked),
    Layout('clip', (r'(module\.)?visual\.(conv1|trunk|patch_embed|class_embedding)',)),
    *(replace(layout, rename=_from_transformers) for layout in OF_TRANSFORMERS if layout.rename),
)
HEADS = ('head.', 'fc_norm.', 'attn_pool.', 'decoder_')
"""Names of what timm's filters may add, and of MAE's decoder."""


def _timm_names(tensors: Tensors) -> Tensors:
    return rename_keys(tensors, [(r'^vit\.', '')])


class _WithAnyTable(Proxy):
    """A model as timm's filters see it, into which every table fits: they would guess the grid that it has."""

    pos_embed = SimpleNamespace(shape=(1, ANY))

    @property
    def patch_embed(self) -> SimpleNamespace:
        """The stem, to which filters resize a kernel."""
        return SimpleNamespace(proj=self.module.patch_embed.proj, grid_size=ANY)


class TimmCheckpointAdapter(CheckpointAdapter):
    """Files of timm, of the authors and of this package, for a model of timm that is ``vit``."""

    public_targets: ClassVar[Mapping[str, Target]] = {
        'timm': Target(
            _timm_names,
            names=r'vit\.(?!.*(pe_norm|norm0|pos_embed\d)).*',
            encodings=((),),
            arguments=dict.fromkeys(('model_name', 'model_args', 'with_prefix', 'final_norm', 'out_type')),
        )
    }

    def layouts(self, model_class: type) -> tuple[Layout, ...]:
        """Return timm's and the authors' layouts; those of DINOv3's adapter before them, for one."""
        return (DINOV3_ADAPTER, DINOV3_PARTS, *LAYOUTS) if self.parts else LAYOUTS

    def owns(self, model_class: type, weights: Weights) -> bool:
        """Check for this package's names, or for those of a timm model that ``VisionTransformer`` is not."""
        if self.parts:
            return self.has_parts(weights)
        if any(name.startswith('spm.') for name in weights.dropped):
            return False  # an adapter stands beside it
        plain = weights.has(r'blocks\.0\.attn\.qkv\.') and weights.has(r'blocks\.0\.mlp\.fc1\.')
        eva = weights.has(EVA_NAMES) and not is_beit(weights)
        return weights.layout == OWN.name or (weights.layout == 'timm' and (eva or not plain))

    def tables(self, weights: Weights) -> list[str]:
        """Return the names of a file's tables of the absolute PE."""
        start = VIT if weights.has(VIT) else ''
        return [start + name for name in self.names.tables(replace(weights, tensors=weights.below(start)))]

    def table_tokens(self, model: nn.Module | type, weights: Weights) -> list[Tokens]:
        """Return the tokens that a file's tables can have rows for, which a model of timm knows: all, or none."""
        vit = _timm_names(weights.tensors)
        every = {name: vit[name].shape[1] for name in PREFIX_TOKENS if name in vit}
        if isinstance(model, type):
            return [every, {}] if every else [{}]
        return [{} if model.vit.no_embed_class else every]

    def size(self, weights: Weights) -> Size:
        """Return the width of the tokens and the number of layers."""
        tensors = _timm_names(weights.tensors)
        layers = {key.split('.')[1] for key in tensors if key.startswith('blocks.')}
        return len(tensors['patch_embed.proj.weight']), len(layers)

    def candidates(self, model_class: type, weights: Weights) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield nothing: timm's models are not built one after the other."""
        return iter(())

    def notes(self, weights: Weights) -> list[str]:
        """Return what only the user knows of a file of timm."""
        unnamed = [] if weights.is_described else ["the file does not name timm's model: give it as model_name"]
        return super().notes(weights) + unnamed

    def record(self, model: nn.Module) -> dict[str, Any]:
        """Return timm's name of the model, the grid of its table, changes, and the complete configuration."""
        grid = {'grid': list(model.grid)} if table_names(model.vit) else {}
        changes = {**model.recorded_arguments, 'config': recorded_config(model)}
        return {'timm_model': model.source.architecture, **grid, **changes}

    def fit(self, model: nn.Module, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors as a model takes them: through timm's filter if they have not its names."""
        report.normalisation = report.normalisation or model.source.normalisation
        vit, of_adapter = _vit_and_adapter(weights)
        patches = vit.get(PATCHES)
        if table_names(model.vit):
            joining = model.recorded_arguments['pe_joining']
            fit_pe_norms(model.vit, joining, vit, _absent_norms(model), options, report)
        if weights.layout not in (ADAPTER.name, OWN.name):
            vit = self._filtered(model, vit, report)
        vit = self._fit_tables(model, replace(weights, tensors=vit), options, report)
        before, after = (None if kernel is None else kernel.shape[2:] for kernel in (patches, vit.get(PATCHES)))
        if before and after and before != after:
            report.resized[VIT + PATCHES] = f'{before[0]}x{before[1]} -> {after[0]}x{after[1]}'
        state = model.state_dict()
        unused = [key for key in vit if VIT + key not in state and self._unused(model, key)]
        report.dropped += unused
        kept = {VIT + key: value for key, value in vit.items() if key not in unused}
        return {**of_adapter, **kept}

    def _fit_tables(
        self, model: nn.Module, weights: Weights, options: LoadOptions, report: LoadReport
    ) -> dict[str, Tensor]:
        """Return the tensors of a ViT with its tables on the model's grid.

        Where each layer has a table, a file's one is where all of them start.

        Raises:
            CheckpointError: If that is not allowed, or nothing tells the grid of the file's table.
        """
        vit, names, grid = dict(weights.tensors), table_names(model.vit), options.grid or weights.grid
        if TABLE in vit and names and TABLE not in names:
            if not options.allow_joining_mismatch:
                raise CheckpointError(
                    f"checkpoint {report.path} has one table, and pe_joining='unshared' one for each "
                    'layer: set the pe_joining that it was trained with, or pass '
                    'allow_joining_mismatch=True in init_cfg to start every layer from that table'
                )
            table = vit.pop(TABLE)
            vit |= {name: table.clone() for name in names}
        for name in (name for name in names if name in vit):
            reading = read_table(model, VIT + name, vit[name], self.table_tokens(model, weights), grid, report.path)
            vit[name] = fit_table(model, VIT + name, vit[name], reading, report)
        return vit

    def _unused(self, model: nn.Module, key: str) -> bool:
        """Check whether a tensor belongs to what this model leaves out: tokens, heads, the final norm, last layers."""
        layer = int(key.split('.')[1]) if key.startswith('blocks.') else -1
        norm = key.startswith(_absent_norms(model))
        token = not model.num_prefix and key in PREFIX_TOKENS
        return norm or token or key.startswith(HEADS) or model.num_layers <= layer < model.whole_depth

    def _filtered(self, model: nn.Module, tensors: Tensors, report: LoadReport) -> Tensors:
        """Call timm's filter of the model's file."""
        convert = sys.modules[type(model.vit).__module__].checkpoint_filter_fn
        model_class = getattr(model.vit, 'plain', type(model.vit)).__name__
        if not hasattr(convert, '__wrapped__') and model_class == 'VisionTransformerDistilled':
            from timm.models.vision_transformer import checkpoint_filter_fn as convert
        known = signature(convert).parameters
        extra = {'adapt_layer_scale': True} if 'adapt_layer_scale' in known else {}
        if model.source.is_bilinear:
            extra |= dict(interpolation='bilinear', antialias=False)
        self._check_bias(model, tensors, report)
        with contextlib.redirect_stdout(io.StringIO()):  # one line for each bias that a model does without
            try:
                out = convert(dict(tensors), _WithAnyTable(model.vit), **extra)
            except (KeyError, AttributeError, RuntimeError, ValueError) as error:
                raise CheckpointError(
                    f'checkpoint {report.path}: not of the architecture {model.source.architecture} ({error})'
                ) from error
        kept = {value.untyped_storage().data_ptr() for value in out.values()}
        report.dropped += [
            key for key, value in tensors.items() if key not in out and value.untyped_storage().data_ptr() not in kept
        ]
        return out

    def _check_bias(self, model: nn.Module, tensors: Tensors, report: LoadReport) -> None:
        """Refuse what the filter would leave out in silence: DINOv3's biases, if they are not zero."""
        if 'storage_tokens' not in tensors or 'vit.blocks.0.attn.q_bias' in model.state_dict():
            return
        for key, value in tensors.items():
            parts = value.chunk(3) if key.endswith('qkv.bias') else ()
            if parts and (parts[0].any() or parts[2].any()):
                name = model.source.architecture
                with_bias = f'{name.removesuffix("_qkvb")}_qkvb'
                report.problems.append(f"{key} is not zero, and {name} has no such bias: take timm's {with_bias}")
                return

    def may_be_new(self, model: nn.Module, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor that a file lacks may keep its initial values: norms of the PE, if so allowed."""
        if name.startswith(VIT):
            return options.allow_joining_mismatch and '.pe_norm.' in name
        if name.startswith('removal.'):
            return True
        return bool(self.parts) and not self.has_parts(weights)


def _absent_norms(model: nn.Module) -> tuple[str, ...]:
    """Return what the names of the final norms begin with, if the model has none."""
    return ('norm.', 'pe_norm.') if isinstance(model.vit.norm, nn.Identity) else ()


def _vit_and_adapter(weights: Weights) -> tuple[Tensors, Tensors]:
    """Return the tensors of the ViT under timm's or the authors' names, and those of an adapter around it."""
    if not weights.has(VIT):
        return dict(weights.tensors), {}
    adapter = {key: value for key, value in weights.tensors.items() if not key.startswith(VIT)}
    return weights.below(VIT), adapter


OF_TIMM = TimmCheckpointAdapter()
OF_TIMM_ADAPTER = TimmCheckpointAdapter(
    parts=ADAPTER_PARTS, with_parts=(ADAPTER, DINOV3_ADAPTER), untold='layers, vit_feature_source and n_points'
)
