"""Golden data of Plain-DETR: impiga/Plain-DETR (at 6ad930b), and DINOv3's form of it (at 6876159).

``python tests/golden/make_plain_detr.py PLAIN_DETR DINOV3``, two checkouts. Both detect on two images of odd sizes,
padded to complete patches, through a convolution of patches, in float64, at weights that ``uniform`` makes of the
public names. Kept are a number for each output, each loss, and each parameter's gradient of the sum of the losses, and
what is predicted in evaluation, for originals that were resized by a factor for each axis.
"""

import json
import re
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import torch
from recording import FOLDER, project, uniform
from torch import Tensor, nn

PLAIN, DINOV3 = (str(Path(folder).resolve()) for folder in sys.argv[1:])
sys.path[:0] = [PLAIN, DINOV3]
# the public code computes places, and matches, in float32
torch.float32, Tensor.float, Tensor.cuda = torch.float64, Tensor.double, lambda self: self
for name in ('', '.coco_eval', '.panoptic_eval', '.data_prefetcher', '.samplers'):
    sys.modules[f'datasets{name}'] = MagicMock()
sys.modules.update(wandb=MagicMock(), **{'dinov3.distributed': MagicMock()})

from dinov3.eval.detection.config import DetectionHeadConfig  # noqa: E402
from dinov3.eval.detection.models import detr as theirs  # noqa: E402
from dinov3.eval.detection.models.backbone import build_backbone  # noqa: E402
from dinov3.eval.detection.models.transformer import TransformerReParam  # noqa: E402
from engine import train_hybrid  # noqa: E402
from main import get_args_parser  # noqa: E402
from models import backbone as plain_backbone  # noqa: E402
from models import detr as plain  # noqa: E402
from models.matcher import HungarianMatcher  # noqa: E402
from util.misc import NestedTensor  # noqa: E402

PATCH, LAYERS, CHANNELS, DIMS, QUERIES, MANY, TIMES = 16, 4, 8, 32, 5, 7, 3
SIZES, PADDED, FACTORS = ((97, 131), (61, 159)), (112, 160), (0.5, 0.25)  # rows and columns
OBJECTS = (([[40.0, 30, 50, 40], [90, 60, 30, 60]], [1, 0]), ([[100.0, 30, 80, 35]], [2]))


class Patches(nn.Module):
    """A backbone: maps of four layers."""

    patch_size, n_blocks, embed_dim = PATCH, LAYERS, CHANNELS

    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(3, LAYERS * CHANNELS, PATCH, PATCH)

    def get_intermediate_layers(self, x: Tensor, n: list[int], reshape: bool) -> tuple[Tensor, ...]:
        """Return the maps of layers."""
        maps = self.proj(x).chunk(LAYERS, 1)
        return tuple(maps[number] for number in n)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return the map of the first two layers."""
        return {'0': torch.cat(self.get_intermediate_layers(x, [0, 1], True), 1)}


def plain_model(rpe: str) -> nn.Module:
    """Return Plain-DETR."""
    options = '--with_box_refine --two_stage --mixed_selection --look_forward_twice --reparam --dropout 0'
    options += f' --position_embedding sine_unnorm --decoder_type global_rpe_decomp --decoder_rpe_type {rpe}'
    options += f' --proposal_feature_levels 4 --proposal_in_stride {PATCH} --decoder_rpe_hidden_dim 16'
    options += f' --hidden_dim {DIMS} --nheads 4 --dec_layers 2 --dim_feedforward 48'
    options += f' --num_queries_one2one {QUERIES} --num_queries_one2many {MANY} --num_feature_levels 1'
    args = get_args_parser().parse_args(options.split())

    class Body(plain_backbone.TransformerBackbone):
        def __init__(self, *_):
            nn.Module.__init__(self)
            self.body, self.strides, self.num_channels = Patches(), [PATCH], [2 * CHANNELS]

    plain_backbone.TransformerBackbone = Body
    args.backbone = 'swin'
    return plain.PlainDETRReParam(
        plain.build_backbone(args), plain.build_transformer(args), 3, 1, True, True, True, QUERIES, MANY, True
    )


def dinov3_model() -> nn.Module:
    """Return DINOv3's form, with windows and an encoder."""
    cfg = DetectionHeadConfig(hidden_dim=DIMS, nheads=4, dec_layers=2, dim_feedforward=48, decoder_rpe_hidden_dim=16)
    cfg.num_queries_one2one, cfg.num_queries_one2many, cfg.n_windows_sqrt = QUERIES, MANY, 3
    cfg.proposal_in_stride, cfg.proposal_tgt_strides = PATCH, [8, 16, 32, 64]
    cfg.layers_to_use = list(range(LAYERS))
    transformer = TransformerReParam(
        DIMS, 4, 1, True, QUERIES + MANY, True, cfg.norm_type, cfg.decoder_type, 4, PATCH, cfg.proposal_tgt_strides,
        50, cfg, True, 48, 0.0, num_encoder_layers=2,
    )  # fmt: skip
    return theirs.PlainDETRReParam(
        build_backbone(Patches(), cfg), transformer, 91, 1, True, True, True, QUERIES, MANY, True
    )


def record(name: str, model: nn.Module) -> dict[str, np.ndarray]:
    """Return what a model computes of the images, and its names and shapes."""
    shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
    weights = {
        key: uniform(key, shape) * (0.02 if re.search(r'cpb_mlp\d\.0\.weight', key) else 1)
        for key, shape in shapes.items()
    }
    model.double().train().load_state_dict(weights)
    own = dict(model.named_parameters())  # without what is twice in the state dict
    pixels, mask = torch.zeros(len(SIZES), 3, *PADDED).double(), torch.ones(len(SIZES), *PADDED, dtype=torch.bool)
    for image, outside, (height, width) in zip(pixels, mask, SIZES):
        image[:, :height, :width], outside[:height, :width] = uniform(f'tall image {name}', (3, height, width)), False
    images = (theirs.NestedTensor if name == 'dinov3' else NestedTensor)(pixels, mask)
    out = model(images)
    best = out['enc_outputs']['pred_logits'][..., 0].topk(QUERIES + MANY + 1).values
    assert (best.diff().abs() > 1e-6).all(), 'equal proposals, whose order is nowhere'
    targets = [dict(boxes=torch.tensor(boxes), labels=torch.tensor(labels)) for boxes, labels in OBJECTS]
    targets = [dict(each, boxes=each['boxes'].double()) for each in targets]
    criterion = plain.SetCriterion(
        out['pred_logits'].shape[-1], HungarianMatcher(2, 1, 2, 'reparam'), {}, ['labels', 'boxes'], reparam=True
    )
    found = {key: value for key, value in train_hybrid(out, targets, TIMES, criterion, 0.5).items() if 'loss' in key}
    factors = dict(loss_ce=2, loss_bbox=1, loss_giou=2)
    found = {key: next(f for k, f in factors.items() if key.startswith(k)) * value for key, value in found.items()}
    parts = [dict(out)] + out['aux_outputs'] + [out['enc_outputs']]
    parts += out['aux_outputs_one2many']
    outputs = [project([part['pred_logits'], part['pred_boxes']]) for part in parts]
    outputs.append(project([out['pred_logits_one2many'], out['pred_boxes_one2many']]))
    trained = {key: value for key, value in own.items() if value.requires_grad}
    total = sum(found.values())
    gradients = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    gradients = {key: 0.0 if g is None else project([g]).item() for key, g in zip(trained, gradients)}
    data = dict(
        shapes=shapes,
        losses={key: value.item() for key, value in found.items()},
        outputs=[value.item() for value in outputs],
        gradients=gradients,
    )
    model.eval()
    model.num_queries = model.transformer.two_stage_num_proposals = QUERIES
    with torch.no_grad():
        out = model(images)
    predicted = plain.PostProcess(6, True)(out, torch.tensor(SIZES), torch.tensor(SIZES) / torch.tensor(FACTORS))
    data['predicted'] = [{key: value.tolist() for key, value in each.items()} for each in predicted]
    data['logits'], data['boxes'] = (out[f'pred_{key}'].tolist() for key in ('logits', 'boxes'))
    print(name, {key: round(value, 3) for key, value in data['losses'].items()})
    return data


if __name__ == '__main__':
    cases = dict(plain=plain_model('linear'), dinov3=dinov3_model())
    data = {name: record(name, model) for name, model in cases.items()}
    np.savez_compressed(FOLDER / 'plain_detr.npz', data=np.array(json.dumps(data)))
    print((FOLDER / 'plain_detr.npz').stat().st_size)
