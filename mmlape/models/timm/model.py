"""Plain ViTs of timm as backbones: DINOv2, DINOv3, MAE, CLIP, SigLIP, EVA-02, AugReg and others.

LaPE and Dual PatchNorm are those of ``mmlape.add_lape`` and ``mmlape.add_dual_patchnorm``.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recompute

from mmlape.bf16 import require_right_convolutions
from mmlape.errors import ConfigError
from mmlape.lazy import Lazy
from mmlape.models.base.isotropic import IsotropicBackbone
from mmlape.models.grid import Grid, is_recorded, require_patch
from mmlape.models.position import Joining
from mmlape.models.position.base import resize_absolute
from mmlape.models.timm.dual_patchnorm import add_dual_patchnorm
from mmlape.models.timm.joined import TABLE, Joined, JoinedForward, table_names
from mmlape.models.timm.lape import add_lape
from mmlape.models.timm.pretrained import PREFIX_TOKENS, VIT, TimmNames, build_vit, find_model
from mmlape.param_rules import timm_depth

DTYPES = {'bf16': torch.bfloat16, 'fp16': torch.float16}


class ForwardState(NamedTuple):
    """What the layers and the final norm of one forward need beside the tokens."""

    layers: Sequence[Callable]  # the layers
    rope: Tensor | None  # rotary angles; None without
    norm: Callable[[Tensor], Tensor]  # the final norm, or the identity
    dtype: torch.dtype  # the images'


class TimmViT(IsotropicBackbone):
    """Any plain ViT of timm's registry: its classes ``VisionTransformer`` and ``Eva``.

    timm's model is ``vit``, so names are ``vit.`` and timm's; heads and pooling are left out, and
    layers behind the last one that is asked for. Images of any size of at least one patch work:
    sides are padded with zeros on the right and the bottom to complete patches, and timm resizes
    its PE to the grid. Attention, position encodings and LayerScale are timm's. Arguments not
    listed here are ``VisionTransformer``'s.

    Args:
        model_name: timm's name, with or without the tag of weights, or 'hf-hub:REPOSITORY'.
        pretrained: Load the weights that timm knows for the name: from the Hugging Face cache, else
            downloaded.
        checkpoint: A file or address of timm's or the authors' weights instead; short for
            ``init_cfg``.
        img_size: Side in pixels, or (height, width), that the PE table is made for; by default
            timm's.
        patch_size: Another side of a patch, to which the stem's kernel is resampled; by default
            timm's.
        final_norm: Whether every returned layer goes through the model's own final norm, as
            ``norm=True`` in timm; models whose norm comes after the pooling (EVA-02) have none.
        with_prefix: Whether class token and registers run along.
        frozen: Whether the ViT is not trained: in evaluation mode, without gradients, activations
            and optimiser state.
        frozen_dtype: 'bf16' or 'fp16' runs a frozen ViT under autocast; its weights then keep their
            precision when the model is cast, and what follows gets that of the images.
        remove_position: Takes position out of the patches that a frozen backbone returns:
            ``dict(how='constant', directions=20)``, ``dict(how='ridge', rounds=5)`` or
            ``dict(how='mean')``, see ``mmlape.models.removal``.
        pe_joining: 'default' is timm's own; any other as in ``mmlape.add_lape``. 'pvg' and 'mpvg'
            need ``with_prefix=False``; without a final norm, 'mpvg' joins as 'pvg' does.
        patch_norm: 'none', or a value that ``mmlape.add_dual_patchnorm`` takes.
        model_args: Further arguments of timm's class.

    Raises:
        ConfigError: For a model that is no plain ViT, unknown names, and combinations that cannot
            work.
        StackError: If timm is missing or too old.
    """

    checkpoint_adapter = Lazy('mmlape.models.timm.checkpoint', 'OF_TIMM')
    table_name = VIT + TABLE
    model_names = TimmNames()
    paper_name = None
    prefix_tokens = ()
    layers_name = f'{VIT}blocks'
    embedding_names = (f'{VIT}patch_embed.', f'{VIT}norm_pre.')

    def __init__(
        self,
        model_name: str,
        pretrained: bool = False,
        checkpoint: str | None = None,
        img_size: int | tuple[int, int] | None = None,
        patch_size: int | None = None,
        out_indices: int | Sequence[int] = -1,
        out_type: str = 'featmap',
        final_norm: bool = True,
        with_prefix: bool = True,
        frozen: bool = False,
        frozen_dtype: str | None = None,
        remove_position: dict | None = None,
        drop_path_rate: float = 0.0,
        with_cp: bool = False,
        pe_joining: str = 'default',
        patch_norm: str = 'none',
        model_args: dict | None = None,
        init_cfg: dict | list[dict] | None = None,
    ):
        source = find_model(model_name)
        super().__init__(_init_cfg(source, pretrained, checkpoint, init_cfg))
        self.register_arguments(locals())
        if frozen_dtype is not None and (not frozen or frozen_dtype not in DTYPES):
            raise ConfigError(f'frozen_dtype={frozen_dtype!r}: choose one of {", ".join(DTYPES)}, with frozen=True')
        self.source, self.frozen, self.frozen_dtype, self.with_cp = (source, frozen, frozen_dtype, with_cp)
        options = dict(img_size=img_size, patch_size=patch_size, drop_path_rate=drop_path_rate)
        self.vit = build_vit(source, with_prefix, final_norm, options, model_args or {})
        if patch_norm != 'none':
            add_dual_patchnorm(self.vit, patch_norm)
        if pe_joining != 'default':
            add_lape(self.vit, pe_joining)
        self._is_tried = False  # whether bfloat16 is right here
        self.recorded_arguments = dict(pe_joining=pe_joining, patch_norm=patch_norm)
        self.embed_dims: int = self.vit.embed_dim
        self.patch_size: int = self.vit.patch_embed.patch_size[0]
        self.in_channels: int = self.vit.patch_embed.proj.in_channels
        self.grid: Grid = tuple(self.vit.patch_embed.grid_size)
        self.num_prefix: int = self.vit.num_prefix_tokens
        names = [name for name in PREFIX_TOKENS if getattr(self.vit, name, None) is not None]
        self.prefix_tokens = tuple(VIT + name for name in names)
        self.set_outputs(out_type, out_indices, len(self.vit.blocks))
        if out_type == 'cls_token' and 'cls_token' not in names:
            raise ConfigError(f"{model_name} has no class token for out_type='cls_token': choose another out_type")
        self.keep_layers(max(self.out_indices) + 1)
        self.vit.requires_grad_(not frozen)
        self.complete()
        self.add_removal(remove_position, sorted(set(self.out_indices)), source.normalisation)

    def stored_tables(self) -> list[str]:
        """Return the names of the tables that timm's model has."""
        return [VIT + name for name in table_names(self.vit)]

    def table_tokens(self) -> dict[str, int]:
        """Return the prefix tokens that the tables have rows for: all, or none."""
        names = () if self.vit.no_embed_class else [name.removeprefix(VIT) for name in self.prefix_tokens]
        return {name: getattr(self.vit, name).shape[1] for name in names}

    def resize_table(self, table: Tensor, src: Grid, dst: Grid, num_prefix: int) -> Tensor:
        """Resize a file's table (1, num_prefix + N_src, D) as timm does."""
        mode = 'bilinear' if self.source.is_bilinear else 'bicubic-antialias'
        return resize_absolute(table, src, dst, num_prefix, mode)

    def keep_layers(self, count: int) -> None:
        """Leave out the layers behind the first ``count`` ones."""
        self.whole_depth = len(self.vit.blocks)
        self.vit.blocks = self.vit.blocks[:count]
        if isinstance(self.vit, Joined):
            self.vit.drop_tables()

    @property
    def joining(self) -> Joining:
        """How the layers and the last norm join the PE; timm's own is the default."""
        return self.vit.joining if isinstance(self.vit, Joined) else super().joining

    @property
    def last_norm(self) -> nn.Module:
        """The norm behind the last layer, or the identity."""
        return self.vit.norm

    @property
    def all_layers(self) -> Sequence[nn.Module]:
        """Return the blocks."""
        return self.vit.blocks

    def frozen_modules(self) -> list[nn.Module]:
        """Return the ViT if it is frozen."""
        return [self.vit] if self.frozen else []

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return a parameter's depth as ``timm_depth`` does; what is not the ViT's comes last."""
        name = param_name.removeprefix(prefix)
        if name.startswith(VIT):
            return timm_depth(self.vit, name.removeprefix(VIT))
        return self.num_layers + 1, self.num_layers + 2

    # running

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True):
        """Move or cast all but the weights of a ViT with ``frozen_dtype``, which are moved only."""
        if self.frozen_dtype is None or not recurse:
            return super()._apply(fn, recurse)

        def moved(value: Tensor) -> Tensor:
            new = fn(value)
            return new if new.dtype == value.dtype else value.to(new.device)

        vit = self.vit._apply(moved)
        self._modules['vit'] = None  # which keeps its place among the names
        try:
            return super()._apply(fn)
        finally:
            self._modules['vit'] = vit

    @contextlib.contextmanager
    def vit_mode(self, x: Tensor):
        """Run without gradients, and in the half precision that is asked for, if the ViT is frozen."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            if not self.frozen_dtype:
                yield
                return
            with torch.autocast(x.device.type, DTYPES[self.frozen_dtype]):
                yield

    def embed(self, x: Tensor) -> tuple[Tensor, ForwardState, Grid]:
        """Return the first layer's tokens (B, P + N, D) of images (B, C, H, W), what layers need, and the grid.

        Raises:
            DataError: If a side of the images is smaller than a patch.
            ConfigError: If this processor's bfloat16 is wrong for the patches.
        """
        require_patch(x, self.vit.patch_embed.patch_size[0])
        if _is_empty(x):
            tokens, state, hw = self.embed(x.new_zeros(1, *x.shape[1:]))
            return tokens[:0], state, hw
        dtype, x = (x.dtype, x.float() if self.frozen_dtype else x)  # autocast leaves float64 as it is
        in_bf16 = self.frozen_dtype == 'bf16' and x.device.type == 'cpu'
        if in_bf16 and not self._is_tried and not torch.compiler.is_compiling():
            require_right_convolutions(self.vit.patch_embed)
            self._is_tried = True
        with self.vit_mode(x):
            maps = self.vit.patch_embed(x)  # (B, rows, columns, D)
            hw = int(maps.shape[1]), int(maps.shape[2])
            run = JoinedForward(self.vit) if isinstance(self.vit, Joined) else self.vit
            tokens = run._pos_embed(maps)
            # Eva returns both
            tokens, rope = tokens if isinstance(tokens, tuple) else (tokens, None)
            state = ForwardState(run.blocks, rope, run.norm, dtype)
            return self.vit.norm_pre(tokens), state, hw

    def run_layers(
        self, x: Tensor, state: ForwardState, hw: Grid, start: int, stop: int
    ) -> tuple[Tensor, ForwardState]:
        """Run layers ``start`` to ``stop`` (exclusive) on tokens (B, P + N, D)."""
        if _is_empty(x):
            return x, state
        rope = state.rope
        # trained frequencies, other ones in each layer
        per_layer = getattr(self.vit, 'rope_mixed', False)
        with self.vit_mode(x):
            for number in range(start, stop):
                layer = state.layers[number]
                options = {} if rope is None else dict(rope=rope[number] if per_layer else rope)
                if self.with_cp and torch.is_grad_enabled():
                    x = recompute(layer, x, use_reentrant=False, **options)
                else:
                    x = layer(x, **options)
        return x, state

    def normed(self, x: Tensor, last: bool, state: ForwardState) -> Tensor:
        """Return the tokens (B, P + N, D) of a layer that is returned.

        Through the final norm, in the precision of the images where the ViT had its own.
        """
        with self.vit_mode(x):
            x = state.norm(x)
        # what follows is trained, in its own precision
        return x.to(state.dtype) if self.frozen_dtype else x


def _is_empty(x: Tensor) -> bool:
    """Check for a batch of nothing, whose shape timm's views cannot tell."""
    return not (is_recorded() or len(x))


def _init_cfg(source, pretrained: bool, checkpoint: str | None, init_cfg) -> dict | list[dict] | None:
    if sum(map(bool, (pretrained, checkpoint, init_cfg))) > 1:
        raise ConfigError('TimmViT: pretrained, checkpoint and init_cfg each name weights: give one of them')
    if pretrained or checkpoint:
        return dict(type='Pretrained', checkpoint=checkpoint or source.checkpoint)
    return init_cfg
