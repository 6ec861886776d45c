"""The Plain Mask Decoder as a head of MMSegmentation, with Mask2Former's losses, and how masks vanish in training."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmcv.cnn import build_norm_layer
from mmdet.models.dense_heads.anchor_free_head import AnchorFreeHead
from mmengine import ConfigDict
from mmengine.hooks import Hook
from mmseg.models.decode_heads import Mask2FormerHead
from mmseg.registry import MODELS, TASK_UTILS
from mmseg.structures import SegDataSample
from torch import Tensor

from mmlape.errors import ConfigError
from mmlape.lab.registry import HOOKS
from mmlape.models.grid import Grid
from mmlape.projects.pmt.decoder import PlainMaskDecoder

LOSSES = dict(
    loss_cls=dict(type='mmdet.CrossEntropyLoss', loss_weight=2.0),
    loss_mask=dict(type='mmdet.CrossEntropyLoss', use_sigmoid=True, loss_weight=5.0),
    loss_dice=dict(type='mmdet.DiceLoss', activate=True, naive_dice=True, eps=1.0, loss_weight=5.0),
)
NO_OBJECT = 0.1
"""The weight of a query's class if it is no object."""
TRAINING = dict(
    num_points=12544,
    oversample_ratio=3.0,
    importance_sample_ratio=0.75,
    assigner=dict(
        type='mmdet.HungarianAssigner',
        match_costs=[
            dict(type='mmdet.ClassificationCost', weight=2.0),
            dict(type='mmdet.CrossEntropyLossCost', weight=5.0, use_sigmoid=True),
            dict(type='mmdet.DiceCost', weight=5.0, pred_act=True, eps=1.0),
        ],
    ),
    sampler=dict(type='mmdet.MaskPseudoSampler'),
)


class PlainMaskHead(Mask2FormerHead):
    """PMT's decoder over the maps, or the tokens with class token and registers, of some layers of a ViT.

    Losses are those of MMSegmentation's ``Mask2FormerHead``.

    Args:
        in_channels: Channels of each level.
        num_classes: Number of classes.
        num_heads: Of the decoder's attention.
        patch_size: Of the ViT.
        num_queries: Number of masks.
        num_layers: Of the decoder.
        feedforward_channels: Of its MLPs; by default four times the channels.
        num_prefix: Class tokens and registers of the levels, if they are tokens.
        norm_cfg: The norm of each level.
        loss_cls: The losses of classes and masks, by default Mask2Former's; the last class weight is
            that of no object.
        loss_mask: See ``loss_cls``.
        loss_dice: See ``loss_cls``.
        train_cfg: Changes of assigner, sampler and numbers of points, which are Mask2Former's.
        test_cfg: Unused.
        ignore_index: Label of pixels that are left out.
        init_cfg: As of any module.

    Raises:
        ConfigError: The levels have different channels, or class weights do not fit.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_classes: int,
        num_heads: int,
        patch_size: int,
        loss_cls: dict | None = None,
        loss_mask: dict | None = None,
        loss_dice: dict | None = None,
        num_queries: int = 100,
        num_layers: int = 6,
        feedforward_channels: int | None = None,
        num_prefix: int = 0,
        norm_cfg: dict | None = None,
        train_cfg: dict | None = None,
        test_cfg: dict | None = None,
        ignore_index: int = 255,
        init_cfg: dict | None = None,
    ):
        # the parts of Mask2Former are not built
        super(AnchorFreeHead, self).__init__(init_cfg=init_cfg)
        loss_cls = {'class_weight': [1.0] * num_classes + [NO_OBJECT], **(loss_cls or LOSSES['loss_cls'])}
        weights = list(loss_cls['class_weight'])
        if len(set(in_channels)) != 1:
            raise ConfigError(f'mmlape.PlainMaskHead: in_channels={list(in_channels)}: give equal ones')
        if len(weights) != num_classes + 1:
            raise ConfigError(
                f'mmlape.PlainMaskHead: loss_cls.class_weight has {len(weights)} weights; '
                f'num_classes={num_classes} needs {num_classes + 1}, the last one for no object'
            )
        self.num_classes = self.out_channels = num_classes
        self.num_queries = num_queries
        self.patch_size, self.num_prefix = patch_size, num_prefix
        self.ignore_index = ignore_index
        self.align_corners = False
        norm = norm_cfg or dict(type='SyncBN', requires_grad=True)
        self.decoder = PlainMaskDecoder(
            in_channels[0],
            num_heads,
            len(in_channels),
            num_classes,
            num_queries,
            num_layers,
            feedforward_channels,
            patch_size,
            lambda channels: build_norm_layer(norm, channels)[1],
        )
        self.train_cfg, self.test_cfg = ConfigDict(TRAINING | (train_cfg or {})), test_cfg
        self.assigner = TASK_UTILS.build(self.train_cfg.assigner)
        self.sampler = TASK_UTILS.build(self.train_cfg.sampler, default_args=dict(context=self))
        self.num_points = self.train_cfg.num_points
        self.oversample_ratio = self.train_cfg.oversample_ratio
        self.importance_sample_ratio = self.train_cfg.importance_sample_ratio
        self.class_weight = weights
        self.loss_cls = MODELS.build(loss_cls)
        self.loss_mask = MODELS.build(loss_mask or LOSSES['loss_mask'])
        self.loss_dice = MODELS.build(loss_dice or LOSSES['loss_dice'])

    def init_weights(self) -> None:
        """Keep the initial values of the layers."""

    def forward(
        self, x: Sequence[Tensor], batch_data_samples: Sequence[SegDataSample] = ()
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the logits of classes (B, Q, K + 1) and masks (B, Q, H, W), before each layer and at the end.

        Args:
            x: Maps (B, D, h, w) of each level, or tokens (B, P + N, D).
            batch_data_samples: The first says how large the images are, if x are tokens; without
                one they are square.
        """
        if x[0].ndim == 4:
            grid: Grid = tuple(x[0].shape[2:])
            return self.decoder([maps.flatten(2).mT for maps in x], grid)
        shapes = _shapes(batch_data_samples)
        grids = [tuple(-(-side // self.patch_size) for side in shape) for shape in shapes]
        patches = x[0].shape[1] - self.num_prefix
        for grid in grids or [(math.isqrt(max(patches, 0)),) * 2]:
            if grid[0] * grid[1] == patches:
                return self.decoder(x, grid)
        raise ConfigError(
            f'mmlape.PlainMaskHead: {x[0].shape[1]} tokens are not num_prefix={self.num_prefix} and '
            f'the patches of {self.patch_size} pixels of an image of {shapes[:1]}: set num_prefix '
            'and patch_size to those of the backbone'
        )

    def predict(self, x: Sequence[Tensor], batch_img_metas: list[dict], test_cfg: dict) -> Tensor:
        """Return the scores of all classes, (B, classes, H, W), at stride 4; what calls it resizes them."""
        samples = [SegDataSample(metainfo=meta) for meta in batch_img_metas]
        classes, masks = (of_layers[-1] for of_layers in self(x, samples))
        meta = batch_img_metas[0]
        window = (test_cfg or {}).get('mode') == 'slide'
        size = meta['img_shape'] if window else meta.get('pad_shape') or meta['img_shape']
        masks = F.interpolate(masks, tuple(size[:2]), mode='bilinear', align_corners=False)
        return torch.einsum('bqc,bqhw->bchw', classes.softmax(-1)[..., :-1], masks.sigmoid())


def _shapes(samples: Sequence[SegDataSample]) -> list[Grid]:
    """Return the sizes that the images may have: of a window, else padded."""
    meta = samples[0].metainfo if samples else {}
    names = ('img_shape', 'pad_shape', 'batch_input_shape')
    return [tuple(meta[name][:2]) for name in names if name in meta]


@HOOKS.register_module()
class MaskAnnealingHook(Hook):
    """Set the share of masked queries of each layer of the plain mask decoders, after each iteration.

    It is 1 until a layer's start, 0 from its end, and (1 - progress)^power between.

    Args:
        starts: Of each layer, as a share of the iterations of training.
        ends: The same.
        power: Of the fall.

    Raises:
        ConfigError: There is no such decoder, or it has another number of layers.
    """

    def __init__(self, starts: Sequence[float], ends: Sequence[float], power: float = 0.9):
        self.starts, self.ends, self.power = list(starts), list(ends), power
        if len(starts) != len(ends) or not all(0 <= a < b <= 1 for a, b in zip(starts, ends)):
            raise ConfigError(
                f'MaskAnnealingHook: starts={self.starts}, ends={self.ends}: give a start and a '
                'later end between 0 and 1 for each layer'
            )

    def before_train(self, runner) -> None:
        """Find the decoders."""
        self.decoders = [one for one in runner.model.modules() if isinstance(one, PlainMaskDecoder)]
        depths = {len(one.layers) for one in self.decoders}
        if depths != {len(self.starts)}:
            raise ConfigError(
                f'MaskAnnealingHook has shares for {len(self.starts)} layers, and the plain mask '
                f'decoders of the model have {sorted(depths) or "none"}'
            )

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Set the shares of the next iteration."""
        done = (runner.iter + 1) / runner.max_iters
        left = [(end - done) / (end - start) for start, end in zip(self.starts, self.ends)]
        for decoder in self.decoders:
            decoder.set_shares([min(max(share, 0.0), 1.0) ** self.power for share in left])
