"""Golden data of PMT's public code (tue-mps/pmt at 54d73c9): its decoder over a small DINOv2 of timm.

    PYTHONPATH=tests/golden python tests/golden/heads/make_pmt.py CHECKOUT/image

It runs where transformers 5 and timm are. Weights are not stored: they follow from their names, see ``uniform`` of
``recording.py``. Rotary angles, which the public code computes in float32, are computed in float64.
"""

from pathlib import Path

import numpy as np
import timm
import torch
from recording import checkout, image, uniform
from torch import nn

HEIGHT, WIDTH, PATCH = 56, 84, 14
VIT = dict(embed_dim=32, depth=4, num_heads=2, img_size=(HEIGHT, WIDTH))
checkout()


class Encoder(nn.Module):
    """What the public code asks of its frozen ViT."""

    is_dinov3, is_frozen, image_size = False, True, (HEIGHT, WIDTH)
    pixel_mean, pixel_std = 0.0, 1.0

    def __init__(self):
        super().__init__()
        self.backbone = timm.create_model('vit_small_patch14_reg4_dinov2', num_classes=0, **VIT)


def build() -> nn.Module:
    """Return the public model, small."""
    from models.pmt import PMT

    return PMT(Encoder(), num_classes=5, num_q=6, num_blocks=3, interaction_indices=[1, 3], hidden_dim=48)


if __name__ == '__main__':
    torch.float32 = torch.float64
    model = build().double().eval()
    state = model.state_dict()
    fixed = ('attn_mask_probs', 'num_batches_tracked')
    names = [name for name in state if not name.endswith(fixed)]
    model.load_state_dict({name: uniform(name, state[name].shape) for name in names}, strict=False)
    data = dict(
        names=np.array(names),
        shapes=np.array([' '.join(map(str, state[name].shape)) for name in names]),
        image=image(3, 2, 3, HEIGHT, WIDTH).numpy(),
    )
    for share in (1, 0):
        model.decoder.attn_mask_probs.fill_(share)
        with torch.no_grad():
            masks, classes = model(torch.from_numpy(data['image']).double())
        chosen = range(len(masks)) if share else [-1]
        data[f'classes{share}'] = torch.stack([classes[number] for number in chosen]).numpy()
        # of the large maps, every third row and column
        data[f'masks{share}'] = torch.stack([masks[number][..., ::3, ::3] for number in chosen]).numpy()
    path = Path(__file__).with_name('pmt.npz')
    np.savez_compressed(path, **data)
    print(f'{path.name}: {len(names)} tensors, {path.stat().st_size / 1e3:.0f} kB')
