"""Swin Transformer (ICCV 2021) with a choice of position encodings, their joining (LaPE) and Dual PatchNorm.

attention input of layer l:  LN(x) + w_l
from stage to stage:         x <- merge(x), w <- merge(w) or a table of its own
"""

import itertools
from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from mmlape.errors import ConfigError, require_choice
from mmlape.lazy import Lazy
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid, contiguous, to_maps
from mmlape.models.layers.patch_embed import PatchEmbed, norms_around
from mmlape.models.layers.transformer_layer import TransformerEncoderLayer, build_layers, full_precision, growing_rates
from mmlape.models.model_names import VARIANTS, name_models, resolve_arch
from mmlape.models.named_layers import build_norm, init_linear
from mmlape.models.position import (
    AttentionSlot,
    NormPlaces,
    Position,
    PositionType,
    Stream,
    joinings,
    resolve_position,
)
from mmlape.models.swin.layers import PatchMerging, ShiftedWindowAttention, SwinStage, merged_grid, table_windows


def _arch(embed_dims: int, third: int, num_heads: int) -> dict:
    return dict(embed_dims=embed_dims, depths=(2, 2, third, 2), num_heads=tuple(num_heads * 2**i for i in range(4)))


ARCHS = {'tiny': _arch(96, 6, 3), 'small': _arch(96, 18, 3), 'base': _arch(128, 18, 4)}
HIERARCHIES = ('merge', 'stage')


class SwinTransformer(BaseBackbone):
    """Swin; the default arguments are those of Swin-T, ``pe_type='learnable', pe_joining='lape'`` makes it LaPE's.

    Images of any size of at least one patch work: images are padded to complete patches, maps to
    complete windows and to even sides before merging, always with zeros on the right and the
    bottom, and cropped again. An absolute PE is resized to the grid once per forward. Parameter
    names are the official ones, with ``pe_norm`` beside each ``norm1`` and, where a PE is merged,
    beside ``downsample.norm``.

    Arguments that are not listed are those of ``VisionTransformer``.

    Args:
        arch: 'tiny', 'small', 'base', or a dict with ``embed_dims``, ``depths`` and ``num_heads``
            of the stages.
        img_size: Side in pixels, or (height, width), that the PE tables are made for.
        patch_size: Side of a patch in pixels.
        window_size: Side of a window in tokens; one value, or one for each stage.
        pad_small_map: What happens to maps whose short side is at most a window: True pads and
            shifts them, as mmdetection and mmsegmentation do; False shrinks the windows to that
            side and does not shift them, as Microsoft's classifier does. Bias tables are made for
            the windows of ``img_size``.
        out_indices: Stages to return, each through a norm of its own; negative ones count from the
            end.
        out_type: 'avg_featmap', the mean of the tokens (B, D); 'raw' all tokens (B, N, D);
            'featmap' (B, D, rows, columns).
        pe_type: 'rpe' (Swin's own, a bias table for each layer), 'learnable', 'sincos2d', 'none' or
            another kind in ``POSITION_ENCODINGS`` that works in windows; a dict with ``type`` and
            arguments; or a list of those with at most one absolute kind, such as ['learnable',
            'rpe'].
        pe_joining: How the absolute PE meets the tokens: 'default', 'shared', 'lape',
            'lape-shared', 'pvg' or 'mpvg'; the last norm of 'mpvg' is that of the last stage, and
            its PE the one that this stage received.
        pe_norm: What norms the PE in 'lape', 'lape-shared', 'pvg' and 'mpvg' (LaPE, Table 8).
        pe_hierarchy: What the absolute PE is in later stages: 'merge', the PE of the stage before,
            merged as the tokens are, with a norm of its own in 'lape' and 'lape-shared'; 'stage', a
            table of each stage.
        patch_norm: Norms of the stem: 'post', Swin's own; 'dual', Dual PatchNorm; or another of
            DPN's Table 6.
        norm_cfg: Of the norms; LayerNorm with eps 1e-5 by default.
        frozen_stages: -1 trains everything, 0 freezes the embeddings, k the first k stages too.

    Raises:
        ConfigError: For unknown names and for combinations that cannot work; the message has the
            valid choices.
    """

    archs = ARCHS
    checkpoint_adapter = Lazy('mmlape.models.swin.checkpoint', 'OF_SWIN')
    layers_name = 'layers'
    table_name = 'absolute_pos_embed'
    embedding_names = ('patch_embed.',)
    model_names = name_models('swin-{}', ARCHS, {**VARIANTS, 'lape': dict(pe_type='learnable', pe_joining='lape')})
    paper_name = 'Swin'
    paper_sizes = {'tiny': 'T'}

    def __init__(
        self,
        arch: str | dict = 'tiny',
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 4,
        in_channels: int = 3,
        window_size: int | Sequence[int] = 7,
        pad_small_map: bool = False,
        out_indices: int | Sequence[int] = -1,
        out_type: str = 'avg_featmap',
        qkv_bias: bool = True,
        pe_type: PositionType = 'rpe',
        pe_joining: str = 'default',
        pe_norm: str = 'layernorm',
        pe_hierarchy: str = 'merge',
        patch_norm: str = 'post',
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        norm_cfg: dict | None = None,
        interpolate_mode: str = 'bicubic',
        with_cp: bool = False,
        frozen_stages: int = -1,
        init_cfg: dict | list[dict] | None = None,
    ):
        super().__init__(init_cfg)
        self.register_arguments(locals())
        self.in_channels = in_channels
        self.arch = _resolve_arch(arch)
        self.embed_dims, self.patch_size = self.arch['embed_dims'], patch_size
        stages = len(self.arch['depths'])
        self.window_sizes = (window_size,) * stages if isinstance(window_size, int) else tuple(window_size)
        if len(self.window_sizes) != stages:
            raise ConfigError(f'window_size has {len(self.window_sizes)} values, the model {stages} stages')
        size = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
        if min(size) < patch_size:
            raise ConfigError(f'img_size={size} has a side smaller than patch_size={patch_size}')
        norms_around(patch_norm)  # refuses norms of tokens + PE
        self.grid: Grid = self.grid_of(size)
        self.set_outputs(out_type, out_indices, stages, 'stage')
        self.strides = tuple(patch_size * 2**i for i in self.out_indices) if out_type == 'featmap' else ()
        self.interpolate_mode, self.frozen_stages, self.pe_hierarchy = (interpolate_mode, frozen_stages, pe_hierarchy)
        self.norm_cfg = norm_cfg or dict(type='LN')
        self.position = _resolve_swin_position(pe_type, pe_joining, pe_norm, pe_hierarchy)

        eps = self.norm_cfg.get('eps', 1e-5)
        norm_cfg = {**self.norm_cfg, 'eps': eps}
        self.recorded_arguments = dict(patch_norm=patch_norm, norm_cfg=norm_cfg, pad_small_map=pad_small_map)
        self.patch_embed = PatchEmbed(in_channels, self.embed_dims, patch_size, patch_norm, eps, post_name='norm')
        self.add_tables(stages)
        self.pos_drop = nn.Dropout(drop_rate)
        self.table_windows = table_windows(self.window_sizes, self.grid, pad_small_map)
        attn = dict(
            qkv_bias=qkv_bias, attn_drop_rate=attn_drop_rate, proj_drop_rate=drop_rate, pad_small_map=pad_small_map
        )
        options = dict(drop_rate=drop_rate, norm_cfg=self.norm_cfg, with_cp=with_cp)
        self.layers = nn.ModuleList(self._build_stages(attn, drop_path_rate, options))
        for stage in sorted(set(self.out_indices)):
            setattr(self, f'norm{stage}', build_norm(self.norm_cfg, self.dims_of(stage)))
        self.layers.apply(init_linear)
        self.complete()

    # building

    def dims_of(self, stage: int) -> int:
        """Return the width of a stage's tokens."""
        return self.embed_dims * 2**stage

    def _build_stages(self, attn: dict, drop_path_rate: float, options: dict) -> Iterator[SwinStage]:
        """Build the stages; ``attn`` are arguments of every attention, ``options`` of every layer."""
        depths, heads = self.arch['depths'], self.arch['num_heads']
        rates = growing_rates(drop_path_rate, sum(depths))
        first = 0  # the number of the stage's first layer, counted over all stages
        for stage, depth in enumerate(depths):
            dims, window, side = (self.dims_of(stage), self.window_sizes[stage], self.table_windows[stage])
            slots = [
                AttentionSlot(
                    layer=first + i,
                    grid=(side, side),
                    normed=self.position.normed,
                    interpolate_mode=self.interpolate_mode,
                    window=True,
                    num_layers=sum(depths),
                )
                for i in range(depth)
            ]
            attn = dict(attn, embed_dims=dims, num_heads=heads[stage], window_size=window)
            attns = [dict(attn, shift=window // 2 if i % 2 else 0, slot=slot) for i, slot in enumerate(slots)]
            blocks = build_layers(
                TransformerEncoderLayer,
                ShiftedWindowAttention,
                attns,
                self.position,
                rates[first : first + depth],
                embed_dims=dims,
                feedforward_channels=4 * dims,
                **options,
            )
            merges = self.pe_hierarchy == 'merge' and self.position.joining.merged_by_own_norm
            pe_norm = self.position.pe_norm if merges else None
            last = stage == len(depths) - 1
            yield SwinStage(blocks, None if last else PatchMerging(dims, self.norm_cfg, pe_norm))
            first += depth

    # position

    def add_tables(self, num_layers: int) -> None:
        """Add the table of the absolute PE, or one for each of ``num_layers`` stages."""
        if self.position.absolute is None or self.pe_names:
            return
        count = 1 if self.pe_hierarchy == 'merge' else num_layers
        self.pe_names = [f'{self.table_name}{stage or ""}' for stage in range(count)]
        for stage, name in enumerate(self.pe_names):
            self.add_table(name, self.dims_of(stage))

    def _table(self, stage: int, grid: Grid) -> Stream:
        """Return a stage's own PE on a grid, (1 or B, N, D); None without an absolute PE."""
        if self.position.absolute is None:
            return None
        return self.read_table(self.pe_names[stage], grid, 0)

    def position_stream(self, grid: Grid, num_prefix: int) -> Stream:
        """Read the first stage's PE for a grid; there are no prefix tokens."""
        return self._table(0, grid)

    def next_position(self, stage: int, x: Tensor, pe: Stream, grid: Grid) -> tuple[Tensor, Stream]:
        """Return the tokens (B, N, D) and the PE that a stage's first layer receives.

        They come from the merged tokens, and the PE as the last stage, of ``grid``, passed it on.
        """
        if self.pe_hierarchy == 'merge':
            merging = self.layers[stage - 1].downsample

            def merge(table: Tensor) -> Tensor:
                return merging.merge_position(table, grid)

            return x, self.position.joining.change_grid(pe, merge)
        pe = self._table(stage, merged_grid(grid))
        return self.position.joining.enter(x, pe), pe

    def layer_grids(self, grid: Grid) -> list[Grid]:
        """Return the grid of each layer's tokens."""
        grids = []
        for depth in self.arch['depths']:
            grids += [grid] * depth
            grid = merged_grid(grid)
        return grids

    def change_stage(self, number: int, x: Tensor, pe: Stream, grid: Grid) -> tuple[Tensor, Stream]:
        """Return tokens and PE behind a layer, merged where a stage ends."""
        ends = [*itertools.accumulate(self.arch['depths'][:-1])]
        if number + 1 not in ends:
            return x, pe
        stage = ends.index(number + 1)
        return self.next_position(stage + 1, self.layers[stage].downsample(x, grid), pe, grid)

    def table_grid(self, name: str, grid: Grid) -> Grid:
        """Return the grid of a PE table; the number behind its name is that of its stage."""
        for _ in range(int(name.removeprefix(self.table_name) or 0)):
            grid = merged_grid(grid)
        return super().table_grid(name, grid)

    def absent_parts(self) -> tuple[str, ...]:
        """Return the norms of the stages whose output is not asked for."""
        norms = tuple(f'norm{stage}.' for stage in range(len(self.layers)) if stage not in self.out_indices)
        return norms + (('pe_norm.',) if self.last_norm is None else ())

    # running

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return one output per out index of images (B, C, H, W), each through a norm of its own."""
        x, grid = self.patch_embed(x)
        pe = self.position_stream(grid, 0)
        x = self.pos_drop(full_precision(self.position.joining.enter(x, pe), self))
        outs, last = {}, max(self.out_indices)
        for number in range(last + 1):
            stage, stage_pe = self.layers[number], pe
            for layer in stage.blocks:
                x, pe = layer(x, pe, grid)
            if number in self.out_indices:
                outs[number] = self.format(self.normed(x, number, stage_pe), grid)
            if number < last:
                x = stage.downsample(x, grid)
                x, pe = self.next_position(number + 1, x, pe, grid)
                grid = merged_grid(grid)
        return tuple(outs[index] for index in self.out_indices)

    def normed(self, x: Tensor, stage: int, pe: Stream) -> Tensor:
        """Return a stage's tokens (B, N, D) through the norm of its output.

        ``pe`` is what the stage received.
        """
        norm = getattr(self, f'norm{stage}')
        if norm is not self.last_norm:
            return norm(x)
        return self.position.joining.finish(x, pe, norm, self.pe_norm)

    def format(self, x: Tensor, grid: Grid) -> Tensor:
        """Return a stage's tokens (B, N, D) in the form that ``out_type`` says."""
        if self.out_type == 'raw':
            return x
        return x.mean(dim=1) if self.out_type == 'avg_featmap' else contiguous(to_maps(x, grid))

    # structure

    @property
    def last_norm(self) -> nn.Module | None:
        """The norm of the last stage's output, if that is asked for."""
        return getattr(self, f'norm{len(self.layers) - 1}', None)

    def norm_places(self) -> NormPlaces:
        """Return where there are norms of the PE, with those of the merging."""
        has_table = self.position.absolute is not None
        merges = self.pe_hierarchy == 'merge' and has_table and len(self.layers) > 1
        merging = self.layers[0].downsample.pe_norm is not None if merges else None
        return super().norm_places()._replace(merging=merging)

    @property
    def all_layers(self) -> Sequence[nn.Module]:
        """The layers of all stages, in the order in which they run."""
        return [layer for stage in self.layers for layer in stage.blocks]

    @property
    def layer_names(self) -> list[str]:
        """What the parameter names of each layer begin with."""
        depths = self.arch['depths']
        return [f'layers.{stage}.blocks.{i}.' for stage, depth in enumerate(depths) for i in range(depth)]

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return the depth of a parameter for layer-wise learning rates.

        A merging has that of the layer before it.
        """
        stage, _, rest = param_name.removeprefix(prefix).removeprefix('layers.').partition('.')
        if rest.startswith('downsample.'):
            return sum(self.arch['depths'][: int(stage) + 1]), self.num_layers + 2
        return super().get_layer_depth(param_name, prefix)

    def frozen_modules(self) -> list[nn.Module]:
        """Return the embeddings, and the first ``frozen_stages`` stages with the norms of their outputs."""
        if self.frozen_stages < 0:
            return []
        norms = [getattr(self, f'norm{stage}') for stage in self.out_indices if stage < self.frozen_stages]
        if self.pe_norm is not None and self.frozen_stages == len(self.layers):
            norms.append(self.pe_norm)
        return [self.patch_embed, self.pos_drop, *self.layers[: self.frozen_stages], *norms]


def _resolve_arch(arch: str | dict) -> dict:
    """Return ``embed_dims``, ``depths`` and ``num_heads`` of a name or a dict."""
    arch = resolve_arch(arch, ARCHS)
    depths, heads = tuple(arch['depths']), tuple(arch['num_heads'])
    if len(depths) != len(heads):
        raise ConfigError(f'arch: depths has {len(depths)} stages, num_heads {len(heads)}')
    for stage, count in enumerate(heads):
        dims = arch['embed_dims'] * 2**stage
        if dims % count:
            raise ConfigError(f'arch: the width {dims} of stage {stage} is not a multiple of its {count} heads')
    return dict(embed_dims=arch['embed_dims'], depths=depths, num_heads=heads)


def _resolve_swin_position(pe_type: PositionType, pe_joining: str, pe_norm: str, pe_hierarchy: str) -> Position:
    """Look position encodings and their joining up; they must fit windows and stages."""
    position = resolve_position(pe_type, pe_joining, pe_norm, staged=True)
    if position.joining.table_per_layer:
        one_table = {name: other for name, other in joinings().items() if not other.table_per_layer}
        absolute = position.absolute
        fitting = [name for name, other in one_table.items() if absolute is None or other.fits(absolute)]
        raise ConfigError(
            f'pe_joining={pe_joining!r} has a table for each layer, which cannot go from stage to '
            f'stage; choose pe_joining from: {", ".join(fitting)}'
        )
    unfit = position.unfit_for_windows()
    if unfit:
        raise ConfigError(f'pe_type: {", ".join(unfit)} does not work in windows; leave it out')
    require_choice('pe_hierarchy', pe_hierarchy, HIERARCHIES)
    if pe_hierarchy != 'merge' and position.absolute is None:
        raise ConfigError(
            f'pe_hierarchy={pe_hierarchy!r} would have no effect without an absolute kind in '
            f"pe_type={pe_type!r}; leave it at its default, 'merge'"
        )
    return position
