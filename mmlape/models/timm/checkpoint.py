"""Weights of timm's ViTs: files of timm, of the authors and of this package, through timm's own filters."""

import contextlib
import io
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmlape.checkpoint.key_maps import Layout, Tensors, Weights, rename_keys
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.checkpoint.lookup import Candidate, Size
from mmlape.checkpoint.targets import Target
from mmlape.errors import CheckpointError
from mmlape.models.base.checkpoint import CheckpointAdapter
from mmlape.models.base.fitting import fit_pe_norms
from mmlape.models.base.recording import recorded_config
from mmlape.models.grid import Grid, square_grid
from mmlape.models.position.base import resize_absolute
from mmlape.models.timm.joined import table_names
from mmlape.models.timm.pretrained import PREFIX_TOKENS
from mmlape.models.vit.layouts import EVA_NAMES, is_beit, table_tokens, to_timm
from mmlape.models.vit.transformers_layouts import LAYOUTS as OF_TRANSFORMERS
from mmlape.models.vit.transformers_layouts import from_transformers

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
    for name in [name for name in out if '.mlp.w1.' in name]:
        gates = (out.pop(name), out.pop(name.replace('.w1.', '.w2.')))
        out[name.replace('.w1.', '.w12.')] = torch.cat(gates)
    return rename_keys(out, _OF_DINOV2)


OWN = Layout('mmlape-timm', (r'vit\.blocks\.0\.',))
LAYOUTS = (
    ADAPTER,
    OWN,
    Layout('timm', (r'blocks\.0\.', r'patch_embed\.proj\.')),
    Layout('clip', (r'(module\.)?visual\.(conv1|trunk|patch_embed|class_embedding)',)),
    *(replace(layout, rename=_from_transformers) for layout in OF_TRANSFORMERS if layout.rename),
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
        'timm': Target(
            _timm_names,
            names=r'vit\.(?!.*(pe_norm|norm0|pos_embed\d)).*',
            encodings=((),),
            arguments=dict.fromkeys(('model_name', 'model_args', 'with_prefix', 'final_norm', 'out_type')),
        )
    }

    def owns(self, model_class: type, weights: Weights) -> bool:
        """Check for this package's names, or for those of a timm model that ``VisionTransformer`` is not."""
        if any(name.startswith('spm.') for name in weights.dropped):
            return False  # an adapter stands beside it
        plain = weights.has(r'blocks\.0\.attn\.qkv\.') and weights.has(r'blocks\.0\.mlp\.fc1\.')
        eva = weights.has(EVA_NAMES) and not is_beit(weights)
        return weights.layout == OWN.name or (weights.layout == 'timm' and (eva or not plain))

    def table_prefix(self, model_class: type, weights: Weights, grid: Grid | None) -> dict[str, int]:
        """Return how many rows for prefix tokens each PE table of a file begins with."""
        start = VIT if weights.has(VIT) else ''
        vit = replace(weights, tensors=weights.below(start))
        count = sum(table_tokens(vit, grid).values())
        return {start + name: count for name in self.names.tables(vit)}

    def size(self, weights: Weights) -> Size:
        """Return the width of the tokens and the number of layers."""
        tensors = _timm_names(weights.tensors)
        layers = {key.split('.')[1] for key in tensors if key.startswith('blocks.')}
        return len(tensors['patch_embed.proj.weight']), len(layers)

    def candidates(self, model_class: type, weights: Weights) -> Iterator[Candidate]:
        """Yield the model of timm that an older file records; timm's names are not built one after the other."""
        if 'timm_model' in weights.recorded:
            yield Candidate('', {'type': f'mmlape.{model_class.__name__}', **_recorded_vit(weights)})

    def notes(self, weights: Weights) -> list[str]:
        """Return what only the user knows of a file of timm."""
        return [] if weights.recorded else ["the file does not name timm's model: give it as model_name"]

    def record(self, model: nn.Module) -> dict[str, Any]:
        """Return timm's name of the model, the grid of its table, changes, and the complete configuration."""
        grid = {'grid': list(model.grid)} if table_names(model.vit) else {}
        changes = {**model.recorded_arguments, 'config': recorded_config(model)}
        return {'timm_model': model.source.architecture, **grid, **changes}

    def fit(self, model: nn.Module, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors as a model takes them: through timm's filter if they have not its names."""
        report.normalisation = report.normalisation or model.source.normalisation
        grid = options.grid or weights.grid
        vit, of_adapter = _vit_and_adapter(weights)
        if not model.num_prefix:
            vit = _without_prefix(vit, grid, report)
        stored = {key: value.shape for key, value in vit.items()}
        names = table_names(model.vit)
        if names:
            joining = model.recorded_arguments['pe_joining']
            fit_pe_norms(model.vit, joining, vit, _absent_norms(model), options, report)
            vit = _one_table_per_layer(model, vit, options, report)
        # timm's filter takes every grid for a square
        tables = {name: _on_grid(model, vit[name], grid) for name in names if name in stored and grid}
        if weights.layout not in (ADAPTER.name, OWN.name):
            vit = self._filtered(model, vit, report)
            tables = {name: table[:, -vit[name].shape[1] :] for name, table in tables.items()}
        vit |= tables
        self._note_resized(model, stored, vit, grid, report)
        state = model.state_dict()
        unused = [key for key in vit if VIT + key not in state and self._unused(model, key)]
        report.dropped += unused
        kept = {VIT + key: value for key, value in vit.items() if key not in unused}
        return {**of_adapter, **kept}

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
                name = model.source.architecture
                with_bias = f'{name.removesuffix("_qkvb")}_qkvb'
                report.problems.append(f"{key} is not zero, and {name} has no such bias: take timm's {with_bias}")
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
            prefix = _prefix_rows(model, table)
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
            table, prefix = stored.get(VIT + name), _prefix_rows(model, name)
            src = None if table is None else grid or square_grid(table.shape[1] - prefix)
            if src in (None, model.grid) or src[0] * src[1] + prefix != table.shape[1]:
                continue
            resized[VIT + name] = f'{src[0]}x{src[1]} -> {model.grid[0]}x{model.grid[1]}'
            out[VIT + name] = resample_table(table, src, model.grid, prefix)
        return out


class TimmViTAdapterCheckpointAdapter(TimmCheckpointAdapter):
    """Files of a ViT of timm under an adapter, DINOv3's own among them."""

    public_layouts = (DINOV3_ADAPTER, DINOV3_PARTS, *LAYOUTS)

    def owns(self, model_class: type, weights: Weights) -> bool:
        """Check for the adapter's own parts."""
        return weights.layout in WITH_ADAPTER

    def candidates(self, model_class: type, weights: Weights) -> Iterator[Candidate]:
        """Yield both modes over the model of timm that an older file records."""
        if 'timm_model' in weights.recorded:
            for mode in ('inject', 'read-only'):
                yield Candidate(
                    '', {'type': f'mmlape.{model_class.__name__}', 'vit': _recorded_vit(weights), 'mode': mode}
                )

    def notes(self, weights: Weights) -> list[str]:
        """Return what leaves no trace in a file, too."""
        trace = 'layers, vit_feature_source and n_points leave no trace in a file'
        return [*([] if weights.recorded else [trace]), *super().notes(weights)]

    def may_be_new(self, model: nn.Module, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor may keep its initial values: over a plain ViT the adapter's own parts may."""
        if name.startswith(VIT):
            return super().may_be_new(model, name, weights, options)
        return weights.layout not in WITH_ADAPTER


def _absent_norms(model: nn.Module) -> tuple[str, ...]:
    """Return what the names of the final norms begin with, if the model has none."""
    return ('norm.', 'pe_norm.') if isinstance(model.vit.norm, nn.Identity) else ()


def _recorded_vit(weights: Weights) -> dict[str, Any]:
    """Return the arguments of ``TimmViT`` that an older file records, with the sizes that its tensors have."""
    side = _timm_names(weights.tensors)['patch_embed.proj.weight'].shape[-1]
    changes = {key: weights.recorded[key] for key in ('pe_joining', 'patch_norm') if key in weights.recorded}
    size = {'img_size': tuple(cells * side for cells in weights.grid)} if weights.grid else {}
    return dict(model_name=weights.recorded['timm_model'], patch_size=side, **size, **changes)


def _vit_and_adapter(weights: Weights) -> tuple[Tensors, Tensors]:
    """Return the tensors of the ViT under timm's or the authors' names, and those of an adapter around it."""
    if not weights.has(VIT):
        return dict(weights.tensors), {}
    adapter = {key: value for key, value in weights.tensors.items() if not key.startswith(VIT)}
    return weights.below(VIT), adapter


def _without_prefix(vit: Tensors, grid: Grid | None, report: LoadReport) -> Tensors:
    """Leave out prefix tokens, and their rows of the table, for a model that is built without them."""
    # 'register_tokens' is DINOv2's own name, whose table has no rows for them
    names = [key for key in (*PREFIX_TOKENS, 'register_tokens') if key in vit]
    report.dropped += names
    out = {key: value for key, value in vit.items() if key not in names}
    table, count = (out.get('pos_embed'), sum(vit[key].shape[1] for key in names if key in PREFIX_TOKENS))
    if table is not None and grid:
        out['pos_embed'] = table[:, table.shape[1] - grid[0] * grid[1] :]
    elif table is not None and count and not square_grid(table.shape[1]):
        out['pos_embed'] = table[:, count:]
    return out


def _prefix_rows(model: nn.Module, name: str) -> int:
    """Return how many rows for prefix tokens a table of a model begins with."""
    return getattr(model.vit, name).shape[1] - model.grid[0] * model.grid[1]


def _one_table_per_layer(model: nn.Module, vit: Tensors, options: LoadOptions, report: LoadReport) -> Tensors:
    """Start the table of each layer from a file's one; nothing changes where the model has one table too.

    Raises:
        CheckpointError: If that is not allowed, or the grid of the file's table is unknown.
    """
    names, table = table_names(model.vit), vit.get('pos_embed')
    if table is None or 'pos_embed' in names:
        return vit
    if not options.allow_joining_mismatch:
        raise CheckpointError(
            f"checkpoint {report.path} has one table, and pe_joining='unshared' one for each "
            'layer: set the pe_joining that it was trained with, or pass '
            'allow_joining_mismatch=True in init_cfg to start every layer from that table'
        )
    prefix = _prefix_rows(model, names[0])
    source = options.grid or square_grid(table.shape[1] - prefix)
    if source is None:
        raise CheckpointError(f'checkpoint {report.path}: its PE is of no square grid, pass grid=(rows, columns)')
    table = resample_table(table, source, model.grid, prefix)
    others = {key: value for key, value in vit.items() if key != 'pos_embed'}
    return others | {name: table.clone() for name in names}


def _on_grid(model: nn.Module, table: Tensor, grid: Grid) -> Tensor:
    """Return a table of a known grid on the model's.

    Raises:
        CheckpointError: If it has not so many rows.
    """
    prefix = table.shape[1] - grid[0] * grid[1]
    if prefix < 0:
        raise CheckpointError(f'pos_embed has {table.shape[1]} rows, which is no grid of {grid[0]} x {grid[1]}')
    return resample_table(table, grid, model.grid, prefix)


def resample_table(table: Tensor, src: Grid, dst: Grid, prefix: int) -> Tensor:
    """Resize a table (1, prefix + N, D) as timm does: bicubic, antialiased, in float32."""
    return resize_absolute(table.float(), src, dst, prefix, 'bicubic-antialias').to(table.dtype)
