"""Golden data of the Mask2Former segmentor of DINOv3's public code (facebookresearch/dinov3 at 6876159).

    PYTHONPATH=tests/golden python tests/golden/heads/make_dinov3_segmentor.py CHECKOUT

The packages' ``__init__`` files are stubbed, since they import what is not installed; of deformable attention its own
PyTorch formulation is used. Weights are not stored: they follow from their names, see ``uniform`` of ``recording.py``.
"""

import importlib
import sys
import types
from pathlib import Path

import numpy as np
import torch
from recording import call, checkout, image, uniform
from torch import nn

DIMS, HIDDEN, CLASSES, SIDE = 8, 32, 5, 64


def load_classes(folder: str) -> tuple[type, type]:
    """Import the public pixel decoder and transformer decoder."""
    for name in ('eval', 'eval.segmentation', 'eval.segmentation.models', 'eval.segmentation.models.heads'):
        package = types.ModuleType(f'dinov3.{name}')
        package.__path__ = [f'{folder}/dinov3/{name.replace(".", "/")}']
        sys.modules[package.__name__] = package
    functions = importlib.import_module('dinov3.eval.segmentation.models.utils.ms_deform_attn')

    class InPyTorch:
        @staticmethod
        def apply(value, shapes, starts, locations, weights, step):
            return functions.ms_deform_attn_core_pytorch(value, shapes, locations, weights)

    functions.MSDeformAttnFunction = InPyTorch
    heads = 'dinov3.eval.segmentation.models.heads'
    return (
        importlib.import_module(f'{heads}.pixel_decoder').MSDeformAttnPixelDecoder,
        importlib.import_module(f'{heads}.mask2former_transformer_decoder').MultiScaleMaskedTransformerDecoder,
    )


PIXEL_DECODER, PREDICTOR = load_classes(checkout())


class Head(nn.Module):
    """The public head, small, with its module names."""

    def __init__(self):
        super().__init__()
        shapes = {str(i): [DIMS, SIDE // stride, SIDE // stride, 4] for i, stride in enumerate((4, 8, 16, 32), 1)}
        self.pixel_decoder = PIXEL_DECODER(
            shapes,
            transformer_dropout=0.0,
            transformer_nheads=4,
            transformer_dim_feedforward=48,
            transformer_enc_layers=2,
            conv_dim=HIDDEN,
            mask_dim=HIDDEN,
            norm='GN',
            transformer_in_features=list(shapes),
            common_stride=4,
        )
        self.predictor = PREDICTOR(
            HIDDEN,
            num_classes=CLASSES,
            hidden_dim=HIDDEN,
            num_queries=6,
            nheads=4,
            dim_feedforward=48,
            dec_layers=4,
            pre_norm=False,
            mask_dim=HIDDEN,
            enforce_input_project=False,
        )

    def forward(self, maps):
        """Return the logits of classes and masks of the last layer."""
        pixels, _, levels = self.pixel_decoder.forward_features({str(i): m for i, m in enumerate(maps, 1)})
        out = self.predictor(levels, pixels)
        return out['pred_logits'], out['pred_masks']


if __name__ == '__main__':
    head = Head().double()
    state = {f'segmentation_model.1.{name}': value for name, value in head.state_dict().items()}
    weights = {name.removeprefix('segmentation_model.1.'): uniform(name, v.shape) for name, v in state.items()}
    maps = [image(i, 1, DIMS, SIDE // stride, SIDE // stride) for i, stride in enumerate((4, 8, 16, 32))]
    # the pixel decoder casts what it reads to float32, which is a no-op here
    torch.Tensor.float = torch.Tensor.double
    with torch.no_grad():
        classes, masks = call(head, weights, [m.double() for m in maps])
    data = {f'map{i}': m.numpy() for i, m in enumerate(maps)}
    data |= dict(
        names=np.array(list(state)),
        shapes=np.array([' '.join(map(str, value.shape)) for value in state.values()]),
        classes=classes.numpy(),
        masks=masks.numpy(),
    )
    path = Path(__file__).with_name('dinov3_segmentor.npz')
    np.savez_compressed(path, **data)
    print(f'{path.name}: {len(state)} tensors, {path.stat().st_size / 1e3:.0f} kB')
