"""The head of Plain-DETR (2308.01904) in plain PyTorch: from one map to boxes with scores, without suppression.

An encoder (DINOv3 has one, Plain-DETR none) reads the map. Of its cells, rescaled to four strides, the
best ones are the first boxes of the queries (two stages); each layer of the decoder refines them. The
gradient of a box reaches the layer before (look forward twice, DINO, 2203.03605). In training, further
queries, which attend only to each other, learn from the objects k times (hybrid matching, 2207.13080).

Boxes are (x, y, w, h) in pixels, by their centre, as differences d from reference boxes r,

    (x, y) = r_xy + r_wh d_xy,   (w, h) = r_wh exp(d_wh),   clipped to the image

so that the loss of a box is relative to its size.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recompute
from torchvision.ops import box_convert

from mmlape.models.grid import Grid
from mmlape.models.named_layers import init_linear
from mmlape.projects.plain_detr.layers import (
    BoxAttention,
    DecoderLayer,
    Perceptron,
    PlainEncoderLayer,
    rescaling,
    sinusoids,
    to_corners,
)

OCTAVES = (-1, 0, 1, 2)
"""Strides of the maps that proposals are of, beside that of the patches."""
PRIOR = 0.01
"""What all scores are at first."""
NORM_GROUPS = 32

LARGEST = abs(math.log(16 / 1000))
"""The largest absolute d_wh: nothing grows or shrinks more than by 62.5."""
MARGIN = 0.1
"""Added in pixels to the sides of references, which may be zero."""


def decode(references: Tensor, deltas: Tensor, sizes: Tensor) -> Tensor:
    """Return the boxes (B, N, 4) of differences; ``sizes`` (B, 1, 2) are width and height of the images."""
    centres = references[..., :2] + references[..., 2:] * deltas[..., :2]
    sides = references[..., 2:] * deltas[..., 2:].clamp(-LARGEST, LARGEST).exp()
    corners = to_corners(torch.cat((centres, sides), -1))
    return box_convert(corners.clamp(min=0).clamp(max=sizes.repeat(1, 1, 2)), 'xyxy', 'cxcywh')


def encode(references: Tensor, boxes: Tensor) -> Tensor:
    """Return the differences that make boxes (..., 4) of references."""
    sides = references[..., 2:] + MARGIN
    return torch.cat(((boxes[..., :2] - references[..., :2]) / sides, (boxes[..., 2:] / sides).log()), -1)


class Boxes(NamedTuple):
    """What one stage predicts of N boxes of each of B images."""

    logits: Tensor  # of each class, (B, N, K)
    boxes: Tensor  # (B, N, 4)
    references: Tensor  # what the boxes are differences from, (B, N, 4)
    deltas: Tensor  # the differences, (B, N, 4)

    def rows(self, which: slice) -> 'Boxes':
        """Return some of the boxes."""
        return Boxes(*(part[:, which] for part in self))


class Detections(NamedTuple):
    """What the head predicts."""

    layers: list[Boxes]  # of each layer of the decoder, for all queries
    proposals: Boxes  # of all cells; its first class says whether there is an object


class PlainDETRNet(nn.Module):
    """The head; images are padded at the right and below.

    Args:
        in_channels: Of the map.
        num_classes: Number of classes.
        patch_size: Pixels from cell to cell.
        num_queries: How many boxes an image gets, at most one of each proposal.
        num_aux_queries: Further queries in training, for hybrid matching.
        embed_dims: Of queries and cells.
        num_heads: Of all attention.
        num_layers: Of the decoder.
        num_encoder_layers: Of the encoder.
        feedforward_channels: Of all MLPs.
        rpb_channels: Of BoxRPB's MLPs.
        normalised_pe: Whether the sinusoids of the map span the image, as in DINOv3, or count cells,
            as in Plain-DETR.
        proposal_size: Side of the proposals at the finest stride, in pixels; it doubles from stride to
            stride, and proposals of 0.99 of a side of the image and more are left out.
        with_cp: Recompute the layers' activations in the backward pass to save memory.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        patch_size: int = 16,
        num_queries: int = 300,
        num_aux_queries: int = 1500,
        embed_dims: int = 256,
        num_heads: int = 8,
        num_layers: int = 6,
        num_encoder_layers: int = 0,
        feedforward_channels: int = 2048,
        rpb_channels: int = 512,
        normalised_pe: bool = False,
        proposal_size: float = 50.0,
        with_cp: bool = False,
    ):
        super().__init__()
        dims, hidden = embed_dims, feedforward_channels
        self.patch_size, self.num_queries, self.num_aux_queries = patch_size, num_queries, num_aux_queries
        self.embed_dims, self.normalised_pe, self.proposal_size = dims, normalised_pe, proposal_size
        self.with_cp = with_cp
        self.input_proj = nn.Sequential(nn.Conv2d(in_channels, dims, 1), nn.GroupNorm(NORM_GROUPS, dims))
        self.level_embed = nn.Parameter(torch.empty(1, dims))
        self.encoder = nn.ModuleList(PlainEncoderLayer(dims, num_heads, hidden) for _ in range(num_encoder_layers))
        self.enc_output_proj = nn.ModuleList(rescaling(dims, octaves) for octaves in OCTAVES)
        self.enc_output, self.enc_output_norm = nn.Linear(dims, dims), nn.LayerNorm(dims)
        self.pos_trans, self.pos_trans_norm = nn.Linear(2 * dims, 2 * dims), nn.LayerNorm(2 * dims)
        self.query_embed = nn.Embedding(num_queries + num_aux_queries, dims)
        self.layers = nn.ModuleList(
            DecoderLayer(dims, num_heads, hidden, BoxAttention(dims, num_heads, rpb_channels, patch_size))
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(dims)
        # the last ones are those of the proposals
        self.class_embed = nn.ModuleList(nn.Linear(dims, num_classes) for _ in range(num_layers + 1))
        self.bbox_embed = nn.ModuleList(Perceptron(dims, 4) for _ in range(num_layers + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as the public code does."""
        for module in (self.encoder, self.enc_output_proj, self.enc_output, self.pos_trans, self.layers):
            for value in module.parameters():
                if value.ndim > 1:
                    nn.init.xavier_uniform_(value)
        nn.init.normal_(self.level_embed)
        self.layers.apply(init_linear)
        nn.init.xavier_uniform_(self.input_proj[0].weight)
        nn.init.zeros_(self.input_proj[0].bias)
        for classes, perceptron in zip(self.class_embed, self.bbox_embed):
            nn.init.constant_(classes.bias, -math.log(1 / PRIOR - 1))
            nn.init.zeros_(perceptron.layers[-1].weight)
            nn.init.zeros_(perceptron.layers[-1].bias)

    def forward(self, features: Tensor, valid: Sequence[Grid] | None = None) -> Detections:
        """Detect objects on maps (B, C, H, W).

        Args:
            features: The maps.
            valid: How many rows and columns of each are no padding; None for all.
        """
        grid: Grid = tuple(features.shape[2:])
        padding = None if valid is None else _padding(valid, grid, features.device)
        x = self.input_proj(features)
        pe = self.encoding(padding, grid, x)
        flat = None if padding is None else padding.flatten(1)
        memory = x.flatten(2).mT  # (B, N, D)
        for layer in self.encoder:
            memory = self.run(layer, memory, pe, flat)
        sizes = self.sizes(padding, grid, memory)
        proposals = self.proposals(memory.mT.unflatten(2, grid), sizes)
        return Detections(self.decode(memory, pe, flat, grid, proposals, sizes), proposals)

    def run(self, layer: nn.Module, *args) -> Tensor:
        """Run a layer."""
        if self.with_cp and torch.is_grad_enabled():
            return recompute(layer, *args, use_reentrant=False)
        return layer(*args)

    def encoding(self, padding: Tensor | None, grid: Grid, x: Tensor) -> Tensor:
        """Return the sinusoids of a map's cells, (1 or B, N, D)."""
        inside = torch.ones(1, *grid, device=x.device) if padding is None else ~padding
        inside = inside.to(_exact(x))
        parts = []
        for axis in (1, 2):
            places = inside.cumsum(axis) - 0.5
            if self.normalised_pe:
                places = places / (inside.sum(axis, keepdim=True) + 1e-6)
            parts.append(sinusoids(places * 2 * math.pi, self.embed_dims // 2))
        return torch.cat(parts, -1).flatten(1, 2).to(x.dtype) + self.level_embed

    def sizes(self, padding: Tensor | None, grid: Grid, memory: Tensor) -> Tensor:
        """Return width and height of the images in pixels, in complete patches, (B, 1, 2)."""
        if padding is None:
            sides = torch.tensor([[grid[::-1]]], dtype=_exact(memory), device=memory.device)
            return sides.expand(memory.shape[0], -1, -1) * self.patch_size
        cells = torch.stack(((~padding[:, 0]).sum(1), (~padding[:, :, 0]).sum(1)), -1)
        return cells[:, None].to(_exact(memory)) * self.patch_size

    def proposals(self, maps: Tensor, sizes: Tensor) -> Boxes:
        """Return a box of each cell of the map (B, D, H, W) at four strides."""
        tokens, boxes = [], []
        for octaves, rescale in zip(OCTAVES, self.enc_output_proj):
            if min(maps.shape[2:]) < 2**octaves:
                continue  # the image is smaller than a cell
            level = rescale(maps)
            rows, columns = (
                torch.arange(cells, dtype=_exact(maps), device=maps.device) + 0.5 for cells in level.shape[2:]
            )
            stride = int(self.patch_size * 2.0**octaves)
            places = torch.stack(torch.meshgrid(columns, rows, indexing='xy'), -1).flatten(0, 1) * stride
            side = self.proposal_size * 2.0 ** (octaves - OCTAVES[0])
            boxes.append(torch.cat((places, torch.full_like(places, side)), -1))
            tokens.append(level.flatten(2).mT)
        proposals, limits = torch.cat(boxes)[None], sizes.repeat(1, 1, 2)
        # those of padding, too, whose centres are beyond the limits
        unused = ~((proposals > 0.01 * limits) & (proposals < 0.99 * limits)).all(-1, keepdim=True)
        far = float(max(maps.shape[2:]) * self.patch_size)
        references = torch.where(unused, far, proposals)
        x = self.enc_output_norm(self.enc_output(torch.cat(tokens, 1).masked_fill(unused, 0.0)))
        deltas = self.bbox_embed[-1](x)
        return Boxes(self.class_embed[-1](x), decode(references, deltas, sizes), references, deltas)

    def decode(
        self, memory: Tensor, pe: Tensor, padding: Tensor | None, grid: Grid, proposals: Boxes, sizes: Tensor
    ) -> list[Boxes]:
        """Refine the best proposals by cells (B, N, D); return the boxes of each layer.

        Small images have fewer proposals than there are queries: the last queries are left out.
        """
        queries = min(self.num_queries, proposals.logits.shape[1])
        count = min(self.num_queries + self.training * self.num_aux_queries, proposals.logits.shape[1])
        groups = [queries, count - queries] if count > queries else [queries]
        best = proposals.logits[..., 0].topk(count, 1).indices
        boxes = shown = proposals.boxes.gather(1, best[..., None].expand(-1, -1, 4)).detach()
        embedded = sinusoids(boxes * 2 * math.pi, self.embed_dims // 2).flatten(2)
        pos = self.pos_trans_norm(self.pos_trans(embedded))[..., : self.embed_dims]
        x = self.query_embed.weight[:count].expand(memory.shape[0], -1, -1)
        keys, found = memory + pe, []
        for layer, classes, perceptron in zip(self.layers, self.class_embed, self.bbox_embed):
            x = self.run(layer, x, pos, boxes, groups, keys, memory, grid, padding)
            normed = self.norm(x)
            deltas = perceptron(normed)
            # the same values, but gradients reach the layer before
            found.append(Boxes(classes(normed), decode(shown, deltas, sizes), shown, deltas))
            shown = decode(boxes, deltas, sizes)
            boxes = shown.detach()
        return found


def _exact(x: Tensor) -> torch.dtype:
    """Return the precision of places in pixels, which autocast has not."""
    return torch.promote_types(x.dtype, torch.float32)


def _padding(valid: Sequence[Grid], grid: Grid, device: torch.device) -> Tensor:
    """Return which cells are padding, (B, H, W)."""
    cells = torch.tensor(valid, device=device)
    rows, columns = (torch.arange(side, device=device) for side in grid)
    return (rows[None, :, None] >= cells[:, :1, None]) | (columns >= cells[:, 1:, None])
