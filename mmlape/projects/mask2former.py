"""Mask2Former (CVPR 2022): semantic head and pixel decoder of the toolboxes, on this package's deformable attention.

The head takes windows of padded images, too. With class logits c of the queries, their mask logits
m at stride 4, and up, a bilinear resize to the image, it has a choice of order:

    'masks':  sum_q softmax(c_q) sigmoid(up(m_q))        mmsegmentation, DINOv3
    'scores': up(sum_q softmax(c_q) sigmoid(m_q))        the released models of ViT-Adapter and DINOv2

The second resizes as many maps as there are classes instead of queries. The pixel decoder (section
3.2.1) is deformable attention among three maps, then one FPN step:

    y <- y + MSDeformAttn(y + p + e_l, y)        in each encoder layer, p sinusoids, e_l the embedding of level l
    mask features = conv(conv(conv(x_4) + up(y_8)))

The modules are mmdetection's and mmcv's, and so are the parameters and their names. Shapes are
Python numbers here, and no mask of padding is made where nothing is padded.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmcv.cnn.bricks.transformer import FFN as PlainFFN
from mmcv.ops import MultiScaleDeformableAttention as PlainAttention
from mmdet.models.layers import MSDeformAttnPixelDecoder as PlainDecoder
from mmseg.models.decode_heads import Mask2FormerHead as PlainHead
from mmseg.structures import SegDataSample
from torch import Tensor, is_grad_enabled, nn
from torch.utils.checkpoint import checkpoint

from mmlape.errors import ConfigError
from mmlape.models.adapter.deform_attn import FeatureLevels, multi_scale_deformable_attention, sample_weights
from mmlape.models.grid import Grid, cached_tensor, to_maps

UPSAMPLED = ('masks', 'scores')


class Mask2FormerHead(PlainHead):
    """mmsegmentation's head, which also predicts sliding windows of images that were padded.

    Args:
        *args: Of mmsegmentation's head.
        upsampled: What is resized to the image: the 'masks' of the queries before their sigmoid, or
            the 'scores' of the classes, as for the released models.
        with_cp: Recompute the activations of the decoder's FFNs in the backward pass to save
            memory; those of the pixel decoder have a ``with_cp`` of their own.
        **kwargs: Of mmsegmentation's head.

    Raises:
        ConfigError: For another ``upsampled``, or class weights that do not fit ``num_classes``.
    """

    def __init__(self, *args, upsampled: str = 'masks', with_cp: bool = False, **kwargs):
        if upsampled not in UPSAMPLED:
            raise ConfigError(
                f'mmlape.Mask2FormerHead: upsampled={upsampled!r}; choose one of: {", ".join(UPSAMPLED)}'
            )
        super().__init__(*args, **kwargs)
        weights = len(self.class_weight)
        if weights != self.num_classes + 1:
            raise ConfigError(
                f'mmlape.Mask2FormerHead: loss_cls.class_weight has {weights} weights; '
                f'num_classes={self.num_classes} needs {self.num_classes + 1}, the last one for no '
                f'object: [1.0] * {self.num_classes} + [0.1]'
            )
        self.upsampled = upsampled
        if with_cp:
            recompute_ffns(self.transformer_decoder.layers)

    def predict(self, x: tuple[Tensor, ...], batch_img_metas: list[dict], test_cfg: dict) -> Tensor:
        """Return the scores of all classes, (B, classes, H, W), at the size of the window or of the padded image."""
        samples = [SegDataSample(metainfo=meta) for meta in batch_img_metas]
        classes, masks = (of_layers[-1] for of_layers in self(x, samples))
        size = input_size(batch_img_metas[0], test_cfg)
        if self.upsampled == 'masks':
            masks = _resize(masks, size)
        scores = torch.einsum('bqc, bqhw -> bchw', classes.softmax(-1)[..., :-1], masks.sigmoid())
        return scores if self.upsampled == 'masks' else _resize(scores, size)


def input_size(meta: dict, test_cfg: dict) -> Grid:
    """Return the height and width of what the backbone has seen.

    For a window, mmsegmentation changes ``img_shape`` alone, so ``pad_shape`` is that of the
    complete image.
    """
    window = (test_cfg or {}).get('mode') == 'slide'
    return tuple(meta['img_shape'] if window else meta.get('pad_shape') or meta['img_shape'])[:2]


def _resize(maps: Tensor, size: Grid) -> Tensor:
    return F.interpolate(maps, size, mode='bilinear', align_corners=False)


class MultiScaleDeformableAttention(PlainAttention):
    """mmcv's module, its arguments, parameters and initial values, on the fastest backend that is installed.

    Attributes:
        samples: Heads, levels and points, as ``MSDeformAttn`` has them.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.samples = (self.num_heads, self.num_levels, self.num_points)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        identity: Tensor | None = None,
        query_pos: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        reference_points: Tensor | None = None,
        spatial_shapes: Tensor | Sequence[Grid] = (),
        **kwargs,
    ) -> Tensor:
        """Attend with queries (B, Q, D) to a pyramid (B, S, D), and add ``identity``, by default the queries.

        Args:
            query: (B, Q, D), or (Q, B, D) without ``batch_first``.
            key: Not used: the samples have weights of their own.
            value: The pyramid; by default the queries.
            identity: What the result is added to.
            query_pos: Added to the queries.
            key_padding_mask: Which cells are padding, (B, S); they are read as zeros.
            reference_points: (x, y) around which a query samples, in [0, 1], (B, Q, L, 2), or boxes
                (x, y, w, h).
            spatial_shapes: (rows, columns) of each level; Python numbers spare a GPU the wait for
                them.
            **kwargs: Not used.
        """
        value = query if value is None else value
        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        if not self.batch_first:
            query, value = query.transpose(0, 1), value.transpose(0, 1)
        shapes = spatial_shapes.tolist() if isinstance(spatial_shapes, Tensor) else spatial_shapes
        shapes = tuple((int(rows), int(columns)) for rows, columns in shapes)

        values = self.value_proj(value)
        if key_padding_mask is not None:
            values = values.masked_fill(key_padding_mask[..., None], 0.0)
        # (B, Q, heads, L, points, 2)
        offsets = self.sampling_offsets(query).unflatten(-1, (*self.samples, 2))
        weights = sample_weights(self.attention_weights(query), self.samples)
        centres = reference_points[:, :, None, :, None, :2]
        if reference_points.shape[-1] == 2:
            locations = centres + offsets / _sides(shapes, query.device)
        else:
            boxes = reference_points[:, :, None, :, None, 2:]
            locations = centres + offsets * boxes / (2 * self.num_points)
        values = values.unflatten(-1, (self.num_heads, -1))
        out = multi_scale_deformable_attention(values, shapes, locations, weights)
        out = self.output_proj(out)
        return self.dropout(out if self.batch_first else out.transpose(0, 1)) + identity


@cached_tensor(maxsize=256)
def _sides(shapes: tuple[Grid, ...], device: torch.device) -> Tensor:
    """Return (columns, rows) of each level, (L, 1, 2)."""
    return torch.tensor([[(columns, rows)] for rows, columns in shapes], dtype=torch.float32, device=device)


class MSDeformAttnPixelDecoder(PlainDecoder):
    """mmdetection's pixel decoder on our deformable attention.

    Arguments, parameters and their names are the same.

    Args:
        in_channels: Channels of each map, finest first.
        *args: Of mmdetection's decoder.
        with_cp: Recompute the FFNs' activations in the backward pass to save memory.
        **kwargs: Of mmdetection's decoder.

    Raises:
        ConfigError: There are fewer maps than levels of the encoder.
    """

    def __init__(self, in_channels: Sequence[int] = (256, 512, 1024, 2048), *args, with_cp: bool = False, **kwargs):
        super().__init__(in_channels, *args, **kwargs)
        if self.num_input_levels < self.num_encoder_levels:
            raise ConfigError(
                f'mmlape.MSDeformAttnPixelDecoder: self_attn_cfg.num_levels={self.num_encoder_levels}, but '
                f'in_channels={list(in_channels)} are {self.num_input_levels} maps: give as many or more'
            )
        for layer in self.encoder.layers:
            layer.self_attn = MultiScaleDeformableAttention(**layer.self_attn_cfg)
        if with_cp:
            recompute_ffns(self.encoder.layers)

    def forward(self, feats: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the mask features at the finest stride, and ``num_outs`` maps, coarsest first.

        Args:
            feats: Maps (B, C_l, H_l, W_l), finest first.
        """
        fine = self.num_input_levels - self.num_encoder_levels
        maps = [project(feat) for project, feat in zip(self.input_convs, reversed(feats[fine:]))]
        cells = FeatureLevels.of([tuple(m.shape[-2:]) for m in maps], maps[0].device)
        tokens = torch.cat([m.flatten(2).transpose(1, 2) for m in maps], dim=1)  # (B, S, D)
        memory = self.encoder(
            query=tokens,
            query_pos=self._embeddings(maps),
            key_padding_mask=None,
            spatial_shapes=cells.spatial_shapes,
            level_start_index=None,
            valid_ratios=None,
            reference_points=cells.reference_points[None, :, None],
        )
        sizes = [rows * columns for rows, columns in cells.spatial_shapes]
        outs = [to_maps(part, shape) for part, shape in zip(memory.split(sizes, dim=1), cells.spatial_shapes)]
        for feat, lateral, output in zip(reversed(feats[:fine]), self.lateral_convs, self.output_convs):
            finer = lateral(feat)
            size = finer.shape[-2:]
            larger = F.interpolate(outs[-1], size, mode='bilinear', align_corners=False)
            outs.append(output(finer + larger))
        return self.mask_feature(outs[-1]), outs[: self.num_outs]

    def _embeddings(self, maps: list[Tensor]) -> Tensor:
        """Return sinusoids plus the level's embedding for every cell, (1, S, D)."""
        parts = []
        for m, level in zip(maps, self.level_encoding.weight):
            nothing = m.new_zeros((1, *m.shape[-2:]), dtype=torch.bool)
            parts.append(self.postional_encoding(nothing).flatten(2).transpose(1, 2) + level)
        return torch.cat(parts, dim=1)


class RecomputedFFN(PlainFFN):
    """An FFN that keeps its input alone; arguments and parameters are mmcv's."""

    def forward(self, x: Tensor, identity: Tensor | None = None) -> Tensor:
        """Return x (or ``identity``) plus the branch, (B, N, D)."""
        if not is_grad_enabled():
            return super().forward(x, identity)
        return checkpoint(super().forward, x, identity, use_reentrant=False)


def recompute_ffns(layers: nn.ModuleList) -> None:
    """Make the ``ffn`` of each layer compute its activations again.

    Weights and random numbers stay as they are.
    """
    for layer in layers:
        layer.ffn.__class__ = RecomputedFFN
