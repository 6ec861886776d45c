"""Golden data of a ViT with Dual PatchNorm: lucidrains/vit-pytorch's (at 69d24fe), whose stem has both norms.

Its patches are (row, column, channel), those of a convolution's weight (channel, row, column): the weights of the stem
are permuted. The ablations of the Dual PatchNorm paper's Table 6 are the same model with a part of the stem taken out
or exchanged. The paper has the stem as a listing of four operations; written here once more in numpy, it is compared
with the public stem first. The paper's norms have flax's eps, 1e-6, and the public ones PyTorch's, 1e-5; the stem with
both norms is recorded with either.
"""

import numpy as np
import torch
from recording import Case, Weights, call, checkout, fill, image, write
from torch import Tensor, nn

checkout()
from vit_pytorch.vit import ViT  # noqa: E402

DEPTH, DIMS, PATCH = 2, 8, 4
PIXELS = 3 * PATCH**2
ARCH = dict(embed_dims=DIMS, num_layers=DEPTH, num_heads=2, feedforward_channels=2 * DIMS)
DROPS = dict(drop_rate=0.1, attn_drop_rate=0.2, drop_path_rate=0.3)  # of no effect in evaluation mode
INPUTS = dict(square=image(0, 2, 3, 16, 16), wide=image(1, 1, 3, 8, 24))
STEM = {1: 'norm0', 2: 'proj', 3: 'norm1'}  # place in the public stem: name in patch_embed
LAYER = {
    '0.norm': 'norm1',
    '0.to_qkv': 'attn.qkv',
    '0.to_out.0': 'attn.proj',
    '1.net.0': 'norm2',
    '1.net.1': 'mlp.fc1',
    '1.net.4': 'mlp.fc2',
}


class Affine(nn.Module):
    """A learnable scale and shift: a LayerNorm's without its standardisation."""

    def __init__(self, dims: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dims)), nn.Parameter(torch.zeros(dims))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


def plain_norm(dims: int) -> nn.Module:
    """Build a LayerNorm without learnable parameters."""
    return nn.LayerNorm(dims, elementwise_affine=False)


# patch_norm: what makes the norm before and the norm after the linear map, and the norm behind the position embedding
STEMS = {
    'none': (None, None, None),
    'dual': (nn.LayerNorm, nn.LayerNorm, None),
    'pre': (nn.LayerNorm, None, None),
    'post': (None, nn.LayerNorm, None),
    'post-posemb': (None, None, nn.LayerNorm),
    'learnable-only': (Affine, Affine, None),
    'no-learnable': (plain_norm, plain_norm, None),
    'rms': (nn.RMSNorm, nn.RMSNorm, None),
}


def set_eps(model: nn.Module, eps: float) -> nn.Module:
    """Set the eps of all norms, and return the model."""
    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            module.eps = eps
    return model


def build(patch_norm: str, eps: float, size: tuple[int, int]) -> nn.Module:
    """Build the public model, returning all normed tokens."""
    model = ViT(
        image_size=size,
        patch_size=PATCH,
        num_classes=0,
        dim=DIMS,
        depth=DEPTH,
        heads=2,
        dim_head=DIMS // 2,
        mlp_dim=2 * DIMS,
    )
    before, after, behind = STEMS[patch_norm]
    model.to_patch_embedding[1] = before(PIXELS) if before else nn.Identity()
    model.to_patch_embedding[3] = after(DIMS) if after else nn.Identity()
    if behind:
        model.dropout = behind(DIMS)  # which follows the sum of tokens and PE, and is none in evaluation mode
    return set_eps(model, eps)


def our_name(name: str) -> str:
    """Return the name that a public parameter has here."""
    first, _, rest = name.partition('.')
    if first == 'to_patch_embedding':
        place, _, leaf = rest.partition('.')
        return f'patch_embed.{STEM[int(place)]}.{leaf}'
    if rest.startswith('layers.'):
        _, number, part = rest.split('.', 2)
        part, _, leaf = part.rpartition('.')
        return f'blocks.{number}.{LAYER[part]}.{leaf}'
    whole = {'pos_embedding': 'pos_embed', 'transformer.norm.': 'norm.', 'dropout.': 'norm_pre.'}
    for public, ours in whole.items():
        name = name.replace(public, ours)
    return name


def to_ours(name: str, value: Tensor) -> Tensor:
    """Convert a public weight to our layout."""
    if name == 'to_patch_embedding.2.weight':
        return value.view(DIMS, PATCH, PATCH, 3).permute(0, 3, 1, 2)
    if name.startswith('to_patch_embedding.1.'):
        return value.view(PATCH, PATCH, 3).permute(2, 0, 1).flatten()
    return value[None, :] if name == 'pos_embedding' else value[None] if name == 'cls_token' else value


def to_public(name: str, value: Tensor) -> Tensor:
    """Convert back: the inverse of ``to_ours``."""
    if name == 'to_patch_embedding.2.weight':
        return value.permute(0, 2, 3, 1).flatten(1)
    if name.startswith('to_patch_embedding.1.'):
        return value.view(3, PATCH, PATCH).permute(1, 2, 0).flatten()
    return value[0] if name in ('pos_embedding', 'cls_token') else value


def vit_case(patch_norm: str, eps: float, key: str) -> Case:
    """Return the case of one stem, with the input of one size."""
    size = tuple(INPUTS[key].shape[2:])
    model = build(patch_norm, eps, size)
    base = model.state_dict()

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        return [call(model, {name: to_public(name, weights[our_name(name)]) for name in base}, x)]

    kwargs = dict(
        arch=ARCH,
        img_size=size,
        patch_size=PATCH,
        out_type='raw',
        qkv_bias=False,
        patch_norm=patch_norm,
        **({} if eps == 1e-6 else dict(norm_cfg=dict(type='LN', eps=eps))),
        **DROPS,
    )
    weights = fill({our_name(name): to_ours(name, value).contiguous() for name, value in base.items()})
    return Case(f'{patch_norm}-{eps:.0e}-{key}', 'VisionTransformer', kwargs, weights, run, inputs=[key])


def listing(x: np.ndarray, weights: dict[str, np.ndarray], eps: float) -> np.ndarray:
    """Compute the paper's listing: rearrange (row, column, channel) patches, LayerNorm, dense, LayerNorm."""

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
        return scaled * weights[f'{name}.weight'] + weights[f'{name}.bias']

    batch, channels, height, width = x.shape
    rows, columns = height // PATCH, width // PATCH
    x = x.transpose(0, 2, 3, 1).reshape(batch, rows, PATCH, columns, PATCH, channels)
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows * columns, PATCH * PATCH * channels)
    return norm(norm(x, '1') @ weights['2.weight'].T + weights['2.bias'], '3')


def check_listing() -> None:
    """Check that the public stem computes the paper's listing."""
    for eps in (1e-5, 1e-6):
        stem = build('dual', eps, (16, 16)).to_patch_embedding
        weights = {name: value.double() for name, value in fill(stem.state_dict()).items()}
        for x in INPUTS.values():
            ours = listing(x.double().numpy(), {name: value.numpy() for name, value in weights.items()}, eps)
            np.testing.assert_allclose(call(stem, weights, x.double()).numpy(), ours, atol=1e-12, rtol=0)


if __name__ == '__main__':
    check_listing()
    both = [vit_case('dual', eps, key) for eps in (1e-5, 1e-6) for key in INPUTS]
    write('vit_pytorch', INPUTS, [*both, *(vit_case(name, 1e-6, 'wide') for name in STEMS if name != 'dual')])
