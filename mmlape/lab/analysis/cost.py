"""Parameters and FLOPs of a model, by part; one multiply-add is one FLOP.

Counted: convolutions, linear maps, both products of attention, and the samples of deformable
attention (four cells and a weight, five multiply-adds a channel). Not counted: norms, activations,
resizing, RoIAlign, post-processing. The auxiliary head of a segmentor trains only, so it has
parameters and no FLOPs. RoI heads run on 1000 boxes, or on a model's own proposals, mask heads on
100, of a cascade in every stage. Nothing is computed: tensors without data go through the model.

mmengine.analysis counts neither fused attention (DeiT-Ti at 224: 1.08 instead of 1.25) nor deformable attention.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from mmlape.errors import ConfigError
from mmlape.lab.config.stored_config import preprocessor_of

BOXES, MASKS = 1000, 100


@dataclass(frozen=True)
class PartCost:
    """What one part of a model costs for one image: its parameters and its multiply-adds."""

    name: str
    params: int
    flops: int


def model_cost(model: nn.Module, shape: tuple[int, int]) -> list[PartCost]:
    """Cost of each part of a model for one image, and for one text of a model that reads texts.

    Args:
        model: a detector, segmentor or classifier, as a configuration builds it; it ends in
            evaluation mode.
        shape: (height, width) of the image.

    Raises:
        ConfigError: if the model is of another kind.
    """
    model = revert_sync_batchnorm(model).eval()
    flops: dict[str, int] = {}

    def run(name: str, part: Callable, *args, **kwargs):
        counter = _Counter(model)
        with counter:
            out = part(*args, **kwargs)
        flops[name] = flops.get(name, 0) + counter.multiply_adds()
        return out

    with FakeTensorMode(allow_non_fake_inputs=True):
        channels = getattr(model.backbone, 'in_channels', 3)
        # windows of an image pass the backbone one by one
        extract = model.extract_feat if hasattr(model, 'best_objects') else model.backbone
        x = run('backbone', extract, torch.zeros(1, channels, *shape))
        if getattr(model, 'with_neck', False):
            x = run('neck', model.neck, x)
        _run_heads(model, run, x, shape)
    costs = []
    for name, part in model.named_children():
        counts = [parameter.numel() for parameter in part.parameters()]
        if counts:
            costs.append(PartCost(name, sum(counts), flops.get(name, 0)))
    return costs


def input_shape(cfg: Config) -> tuple[int, int]:
    """Return the (height, width) that a configuration trains at.

    That is the size that its preprocessor pads to, else its ``crop_size`` or ``img_size``, else 224 x 224.
    """
    size = preprocessor_of(cfg).get('size') or cfg.get('crop_size') or cfg.get('img_size', 224)
    return (size, size) if isinstance(size, int) else tuple(size)


def _run_heads(model: nn.Module, run: Callable, x: tuple[Tensor, ...], shape: tuple[int, int]) -> None:
    if hasattr(model, 'forward_transformer'):  # DETR
        image = SimpleNamespace(batch_input_shape=shape, img_shape=shape)
        encoder, decoder = model.pre_transformer(x, [image])
        queries, head = model.pre_decoder(**run('encoder', model.forward_encoder, **encoder))
        states = run('decoder', model.forward_decoder, **decoder, **queries)
        run('bbox_head', model.bbox_head, **head, **states)
    elif hasattr(model, 'roi_head'):
        _run_roi_head(model, run, x)
    elif hasattr(model, 'panoptic_head'):  # Mask2Former
        run('panoptic_head', model.panoptic_head, x, [])
    elif hasattr(model, 'decode_head'):
        samples = [[]] if hasattr(model.decode_head, 'pixel_decoder') else []
        run('decode_head', model.decode_head, x, *samples)
    elif hasattr(model, 'bbox_head'):  # one stage
        run('bbox_head', model.bbox_head, x)
    elif hasattr(model, 'head'):
        run('head', model.head, x)
    elif hasattr(model, 'tokenizer'):  # LiT: one text
        run('text', model.text, torch.ones(1, model.tokenizer.length, dtype=torch.long))
    else:
        raise ConfigError(
            f'{type(model).__name__}: only detectors with one or two stages, cascades, DETR, '
            'Mask2Former, segmentors with one decode head, classifiers and LiT can be counted'
        )


def _run_roi_head(model: nn.Module, run: Callable, x: tuple[Tensor, ...]) -> None:
    head, proposals = model.roi_head, getattr(model.rpn_head, 'num_proposals', None)
    if proposals is None:
        run('rpn_head', model.rpn_head, x)
    for stage, extractor in zip(_stages(head.bbox_head), _stages(head.bbox_roi_extractor)):
        regions = _pooled(extractor, proposals or BOXES)
        queries = [torch.zeros(1, proposals, regions.shape[1])] if proposals else []  # Sparse R-CNN
        run('roi_head', stage, regions, *queries)
    if getattr(head, 'with_semantic', False):
        run('roi_head', head.semantic_head, x)
    if head.with_mask:
        features = []  # those of the stage before, in Hybrid Task Cascade
        for stage, extractor in zip(_stages(head.mask_head), _stages(head.mask_roi_extractor)):
            out = run('roi_head', stage, _pooled(extractor, MASKS), *features)
            features = [out[1]] if isinstance(out, (list, tuple)) else []


def _stages(part: nn.Module) -> list[nn.Module]:
    return list(part) if isinstance(part, nn.ModuleList) else [part]


def _pooled(extractor: nn.Module, boxes: int) -> Tensor:
    return torch.zeros(boxes, extractor.out_channels, *extractor.roi_layers[0].output_size)


def _attention_flops(query, key, value, *args, out_shape=None, **kwargs) -> int:
    """Both products of (B, heads, N, d) attention.

    Two FLOPs a multiply-add, as the counter has it.
    """
    batch, heads, queries, dims = query
    return 2 * batch * heads * queries * key[2] * (dims + value[3])


class _Counter(FlopCounterMode):
    """Torch's counter, with attention on the CPU and deformable attention added."""

    def __init__(self, model: nn.Module):
        cpu_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        super().__init__(display=False, custom_mapping={cpu_attention: _attention_flops})
        self.modules = [module for module in model.modules() if hasattr(module, 'samples')]
        self.samples = 0

    def __enter__(self):
        self.hooks = [module.register_forward_hook(self._add_samples) for module in self.modules]
        return super().__enter__()

    def __exit__(self, *args):
        for hook in self.hooks:
            hook.remove()
        return super().__exit__(*args)

    def _add_samples(self, module: nn.Module, args: tuple, out: Tensor) -> None:
        _, levels, points = module.samples
        queries = math.prod(out.shape[:2])
        self.samples += 5 * levels * points * queries * module.value_proj.out_features

    def multiply_adds(self) -> int:
        return self.get_total_flops() // 2 + self.samples
