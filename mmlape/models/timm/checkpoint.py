"""Weights of timm's ViTs: files of timm, of the authors and of this package, through timm's own filters."""

import contextlib
import io
import sys
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar

from torch import Tensor, nn

from mmlape.checkpoint.key_maps import Layout, Tensors, Weights, rename_keys
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.checkpoint.targets import Target
from mmlape.errors import CheckpointError
from mmlape.models.adapter.checkpoint import POINTS_ASSUMED, infer_options
from mmlape.models.base.checkpoint import CheckpointAdapter, fit_pe_norms
from mmlape.models.base.tensor_names import Description, TensorNames
from mmlape.models.grid import Grid, square_grid
from mmlape.models.position.base import resize_absolute
from mmlape.models.timm.joined import table_names
from mmlape.models.timm.pretrained import PREFIX_TOKENS
from mmlape.models.vit.layouts import EVA_NAMES, is_beit, table_tokens

VIT = 'vit.'
TABLE = f'{VIT}pos_embed'


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
WITH_ADAPTER = (ADAPTER.name, DINOV3_ADAPTER.name)
OWN = Layout('mmlape-timm', (r'vit\.blocks\.0\.',))
LAYOUTS = (
    ADAPTER,
    OWN,
    Layout('timm', (r'blocks\.0\.', r'patch_embed\.proj\.')),
    Layout('clip', (r'(module\.)?visual\.(conv1|trunk|patch_embed|class_embedding)',)),
)
HEADS = ('head.', 'fc_norm.', 'attn_pool.', 'decoder_')
"""Names of what timm's filters may add, and of MAE's decoder."""
BILINEAR = ('flexi', 'radio')
"""In names of models whose tables timm resizes linearly, without antialiasing."""


def _timm_names(tensors: Tensors) -> Tensors:
    return rename_keys(tensors, [(r'^vit\.', '')])


class TimmCheckpointAdapter(CheckpointAdapter):
    """Files of timm, of the authors and of this package, for a model of timm that is ``vit``."""

    public_layouts = LAYOUTS
    public_targets: ClassVar[Mapping[str, Target]] = {
        'timm': Target(_timm_names, names=r'vit\..*', encodings=((),), arguments={'model_name': None})
    }

    def owns(self, kind: type, weights: Weights) -> bool:
        """Check for this package's names, or for those of a timm model that ``VisionTransformer`` is not."""
        if any(name.startswith('spm.') for name in weights.dropped):
            return False  # an adapter stands beside it
        plain = weights.has(r'blocks\.0\.attn\.qkv\.') and weights.has(r'blocks\.0\.mlp\.fc1\.')
        eva = weights.has(EVA_NAMES) and not is_beit(weights)
        return weights.layout == OWN.name or (weights.layout == 'timm' and (eva or not plain))

    def table_prefix(self, kind: type, weights: Weights, grid: Grid | None) -> dict[str, int]:
        """Return how many rows for prefix tokens each PE table of a file begins with."""
        start = VIT if weights.has(VIT) else ''
        vit = replace(weights, tensors=weights.below(start))
        count = sum(table_tokens(vit, grid).values())
        return {start + name: count for name in self.names.tables(vit)}

    def infer(self, kind: type, weights: Weights) -> Description:
        """Infer the width and the recorded model; the name is the user's to know where none is recorded."""
        name, tensors = weights.recorded.get('timm_model'), _timm_names(weights.tensors)
        layers = {key.split('.')[1] for key in tensors if key.startswith('blocks.')}
        stem = tensors['patch_embed.proj.weight']
        rows = {'timm model': name or 'unknown', 'width': str(len(stem)), 'layers': str(len(layers))}
        config: dict[str, Any] = dict(model_name=name or '?')
        config |= _changes(weights)
        if name:
            config['patch_size'] = stem.shape[-1]
            config |= {'img_size': tuple(side * stem.shape[-1] for side in weights.grid)} if weights.grid else {}
        notes = [] if name else ["the file does not name timm's model: put its name for '?'"]
        return Description(rows, config, notes)

    def record(self, model: nn.Module) -> dict[str, Any]:
        """Return timm's name of the model, which decides what keys do not tell, the grid of its table, and changes."""
        grid = {'grid': list(model.grid)} if table_names(model.vit) else {}
        return {'timm_model': model.source.architecture, **grid, **model.recorded_arguments}

    def fit(self, model: nn.Module, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors as a model takes them: through timm's filter if they have not its names."""
        report.normalisation = report.normalisation or model.source.normalisation
        own, below = weights.layout in (ADAPTER.name, OWN.name), weights.has(VIT)
        vit = weights.below(VIT) if below else weights.tensors
        rest = {key: value for key, value in weights.tensors.items() if below and not key.startswith(VIT)}
        vit = self._without_prefix(model, dict(vit), options.grid or weights.grid, report)
        stored = {key: value.shape for key, value in vit.items()}
        if table_names(model.vit):
            joining = model.recorded_arguments['pe_joining']
            fit_pe_norms(model.vit, joining, vit, _absent_norms(model), options, report)
        vit |= self._table_per_layer(model, vit, options, report)
        names = table_names(model.vit)
        tables = {name: self._resized(model, vit.get(name), options.grid or weights.grid) for name in names}
        vit = vit if own else self._filtered(model, vit, report)
        for name, table in tables.items():
            if table is not None:
                vit[name] = table[:, -vit[name].shape[1] :] if not own else table
        self._note_resized(model, stored, vit, options.grid or weights.grid, report)
        wanted = model.state_dict()
        for key in [key for key in vit if VIT + key not in wanted and self._unused(model, key)]:
            report.dropped.append(key)
            del vit[key]
        return {**rest, **{VIT + key: value for key, value in vit.items()}}

    def _unused(self, model: nn.Module, key: str) -> bool:
        """Check whether a tensor belongs to what this model leaves out: tokens, heads, the final norm, last layers."""
        layer = int(key.split('.')[1]) if key.startswith('blocks.') else -1
        norm = key.startswith(_absent_norms(model))
        token = not model.num_prefix and key in PREFIX_TOKENS
        return norm or token or key.startswith(HEADS) or model.num_layers <= layer < model.whole_depth

    def _without_prefix(self, model: nn.Module, tensors: Tensors, grid: Grid | None, report: LoadReport) -> Tensors:
        """Leave out prefix tokens, and their rows of the table, where this model has been built without them."""
        if model.num_prefix:
            return tensors
        found = {key: tensors.pop(key) for key in PREFIX_TOKENS if key in tensors}
        report.dropped += list(found)
        if tensors.pop('register_tokens', None) is not None:  # DINOv2's own name: the table has no rows for them
            report.dropped.append('register_tokens')
        table, count = tensors.get('pos_embed'), sum(value.shape[1] for value in found.values())
        if table is not None and count and not (grid or square_grid(table.shape[1])):
            tensors['pos_embed'] = table[:, count:]
        elif table is not None and grid:
            tensors['pos_embed'] = table[:, table.shape[1] - grid[0] * grid[1] :]
        return tensors

    def _table_per_layer(
        self, model: nn.Module, tensors: Tensors, options: LoadOptions, report: LoadReport
    ) -> Tensors:
        """Return a table for each layer from a file's one, which is taken out; nothing where the model has one too."""
        names, table = table_names(model.vit), tensors.get('pos_embed')
        if table is None or not names or 'pos_embed' in names:
            return {}
        if not options.allow_joining_mismatch:
            raise CheckpointError(
                f"checkpoint {report.path} has one table, and pe_joining='unshared' one for each layer: set the "
                'pe_joining that it was trained with, or pass allow_joining_mismatch=True in init_cfg to start every '
                'layer from that table'
            )
        prefix = getattr(model.vit, names[0]).shape[1] - model.grid[0] * model.grid[1]
        src = options.grid or square_grid(table.shape[1] - prefix)
        if src is None:
            raise CheckpointError(f'checkpoint {report.path}: its PE is of no square grid, pass grid=(rows, columns)')
        table = resample_table(tensors.pop('pos_embed'), src, model.grid, prefix)
        return {name: table.clone() for name in names}

    def _resized(self, model: nn.Module, table: Tensor | None, grid: Grid | None) -> Tensor | None:
        """Return a table whose grid is known on the model's grid; None where timm's filter has to do it."""
        if table is None or grid is None:
            return None
        rows = table.shape[1] - grid[0] * grid[1]
        if rows < 0:
            raise CheckpointError(f'pos_embed has {table.shape[1]} rows, which is no grid of {grid[0]} x {grid[1]}')
        return resample_table(table, grid, model.grid, rows)

    def _filtered(self, model: nn.Module, tensors: Tensors, report: LoadReport) -> Tensors:
        """Call timm's filter of the model's file."""
        convert = sys.modules[type(model.vit).__module__].checkpoint_filter_fn
        kind = getattr(model.vit, 'plain', type(model.vit)).__name__
        if not hasattr(convert, '__wrapped__') and kind == 'VisionTransformerDistilled':
            from timm.models.vision_transformer import checkpoint_filter_fn as convert
        known = signature(convert).parameters
        extra = {'adapt_layer_scale': True} if 'adapt_layer_scale' in known else {}
        if any(part in model.source.architecture for part in BILINEAR):
            extra |= dict(interpolation='bilinear', antialias=False)
        self._check_bias(model, tensors, report)
        with contextlib.redirect_stdout(io.StringIO()):  # one line for each bias that a model does without
            try:
                out = convert(dict(tensors), model.vit, **extra)
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
                report.problems.append(
                    f"{key} is not zero, and {model.source.architecture} has no such bias: take timm's "
                    f'{model.source.architecture.removesuffix("_qkvb")}_qkvb'
                )
                return

    def _note_resized(
        self, model: nn.Module, stored: dict, vit: Tensors, grid: Grid | None, report: LoadReport
    ) -> None:
        patch = 'patch_embed.proj.weight'
        before, after = stored.get(patch), vit.get(patch)
        if before is not None and after is not None and len(before) == 4 and before != after.shape:
            report.resized[VIT + patch] = f'{before[2]}x{before[3]} -> {after.shape[2]}x{after.shape[3]}'
        for table in table_names(model.vit):
            if table not in stored or table not in vit:
                continue
            prefix = getattr(model.vit, table).shape[1] - model.grid[0] * model.grid[1]
            src = grid or square_grid(stored[table][1]) or square_grid(stored[table][1] - max(prefix, 1))
            if src and src != model.grid:
                report.resized[VIT + table] = f'{src[0]}x{src[1]} -> {model.grid[0]}x{model.grid[1]}'

    def may_be_new(self, model: nn.Module, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor that a file lacks may keep its initial values: norms of the PE, if so allowed."""
        return options.allow_joining_mismatch and '.pe_norm.' in name

    def resize_tables(
        self, model: nn.Module, stored: dict[str, Tensor], grid: Grid | None, resized: dict[str, str]
    ) -> dict[str, Tensor]:
        """Return the table of such a model on this grid."""
        out = {}
        for name in table_names(model.vit):
            table, own = stored.get(VIT + name), getattr(model.vit, name)
            prefix = own.shape[1] - model.grid[0] * model.grid[1]
            src = None if table is None else grid or square_grid(table.shape[1] - prefix)
            if src in (None, model.grid) or src[0] * src[1] + prefix != table.shape[1]:
                continue
            resized[VIT + name] = f'{src[0]}x{src[1]} -> {model.grid[0]}x{model.grid[1]}'
            out[VIT + name] = resample_table(table, src, model.grid, prefix)
        return out


class TimmViTAdapterCheckpointAdapter(TimmCheckpointAdapter):
    """Files of a ViT of timm under an adapter, DINOv3's own among them."""

    public_layouts = (DINOV3_ADAPTER, DINOV3_PARTS, *LAYOUTS)

    def owns(self, kind: type, weights: Weights) -> bool:
        """Check for the adapter's own parts."""
        return weights.layout in WITH_ADAPTER

    def infer(self, kind: type, weights: Weights) -> Description:
        """Infer the ViT, and the mode."""
        rows, vit, notes = super().infer(kind, weights)
        mode = 'inject' if weights.has(r'interactions\.0\.injector\.') else 'read-only'
        config = dict(vit=vit, mode=mode)
        if vit.get('patch_size', 16) != 16:
            config['patch14'] = 'resize-image'
        defaults = dict(deform_num_heads=16, deform_ratio=0.5) if mode == 'read-only' else {}
        config |= infer_options(weights, int(rows['width']), defaults)
        notes = ['layers and vit_feature_source leave no trace in a file', POINTS_ASSUMED, *notes]
        return Description(rows, config, notes)

    def may_be_new(self, model: nn.Module, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor may keep its initial values: over a plain ViT the adapter's own parts may."""
        if name.startswith(VIT):
            return super().may_be_new(model, name, weights, options)
        return weights.layout not in WITH_ADAPTER


def _absent_norms(model: nn.Module) -> tuple[str, ...]:
    """Return what the names of the final norms begin with, if the model has none."""
    return ('norm.', 'pe_norm.') if isinstance(model.vit.norm, nn.Identity) else ()


def _changes(weights: Weights) -> dict[str, str]:
    """Return the joining and the norms of the stem where they are not timm's; the usual ones of those that fit."""
    tensors = _timm_names(weights.tensors)
    joining = TensorNames().infer_joinings(replace(weights, tensors=tensors))[0]
    norm = None
    if weights.has(r'.*patch_embed\.norm0\.'):  # the norm behind may be timm's own
        after = 'dual' if weights.has(r'.*patch_embed\.norm0\.bias$') else 'rms'
        norm = after if weights.has(r'.*patch_embed\.norm\.') else 'pre'
    told = dict(pe_joining=joining)
    told['patch_norm'] = weights.recorded.get('patch_norm') or norm or 'none'
    return {key: value for key, value in told.items() if value not in ('default', 'none')}


def resample_table(table: Tensor, src: Grid, dst: Grid, prefix: int) -> Tensor:
    """Resize a table (1, prefix + N, D) as timm does: bicubic, antialiased, in float32."""
    return resize_absolute(table.float(), src, dst, prefix, 'bicubic-antialias').to(table.dtype)
