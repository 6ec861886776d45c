"""Golden data of LaPE's public code (Ingrid725/LaPE at e188f7e): every joining and PE, and the distilled model.

As published, the models with a relative PE and the distilled ones raise. Two repairs from outside make them run: their
blocks return the pair that the loop over the layers unpacks, and the distilled model gets the attribute that it reads
the joining from. The code has no 'lape-shared' and none of the norms of Table 8; those run as the published default
model with a zero PE, and hooks add the normed PE to attention's input. The same hooks, given LaPE's own chain, are
compared with the published LaPE model first.

The public models take one image size. For another grid, the model of that size gets the table resized, bicubically and
without moving the rows of class and distillation token.
"""

from functools import partial

import torch
import torch.nn.functional as F
from recording import Case, Weights, call, checkout, fill, image, write
from torch import Tensor, nn

checkout()
from models import DistilledVisionTransformer  # noqa: E402
from vision_transformer import VisionTransformer  # noqa: E402

DEPTH, DIMS, PATCH, SIDE = 3, 8, 4, 16
ARCH = dict(embed_dims=DIMS, num_layers=DEPTH, num_heads=2, feedforward_channels=2 * DIMS)
DROPS = dict(drop_rate=0.1, attn_drop_rate=0.2, drop_path_rate=0.3)  # of no effect in evaluation mode
INPUTS = dict(square=image(0, 2, 3, SIDE, SIDE), wide=image(1, 1, 3, 8, 24))
TYPES = {'1D_sin': 'sincos1d', '2D_sin': 'sincos2d', 'learnable': 'learnable', '2D_RPE': 'rpe'}
JOININGS = {'basic': 'default', 'share': 'shared', 'unshare': 'unshared', 'LaPE': 'lape', 'LN': 'lape'}


def build(cls, size: tuple[int, int], pe: str, join_type: str) -> nn.Module:
    """Build the public model as its DeiT sizes are configured, but without a classifier; it returns all tokens."""
    model = cls(
        img_size=size,
        patch_size=PATCH,
        embed_dim=DIMS,
        depth=DEPTH,
        num_heads=2,
        mlp_ratio=2,
        qkv_bias=True,
        num_classes=0,
        norm_layer=partial(nn.LayerNorm, eps=1e-6),
        pe=pe,
        join_type=join_type,
    )
    model.adding_type = join_type
    if pe == '2D_RPE':
        for block in model.blocks:
            block.register_forward_hook(lambda module, args, out: (out, None))
    tokens = []
    model.norm.register_forward_hook(lambda module, args, out: tokens.append(out))
    model.register_forward_hook(lambda module, args, out: tokens.pop())
    return model


def resized(table: Tensor, prefix: int, size: tuple[int, int]) -> Tensor:
    """Resize a table of the square grid to that of an image of another size."""
    grid = table[..., prefix:, :].reshape(1, SIDE // PATCH, SIDE // PATCH, DIMS).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, (size[0] // PATCH, size[1] // PATCH), mode='bicubic', align_corners=False)
    patches = grid.flatten(2).transpose(1, 2).reshape(*table.shape[:-2], -1, DIMS)
    return torch.cat((table[..., :prefix, :], patches), dim=-2)


def at_size(weights: Weights, prefix: int, size: tuple[int, int]) -> Weights:
    """Return the weights with every table resized for an image of that size."""
    if size == (SIDE, SIDE):
        return weights
    return {k: resized(v, prefix, size) if k.startswith('pos_embed') else v for k, v in weights.items()}


def public_case(cls, pe: str, join_type: str) -> Case:
    """Return the case of a model that the public code has."""
    sizes = {tuple(x.shape[2:]) for x in INPUTS.values()} if pe != '2D_RPE' else {(SIDE, SIDE)}
    distilled = cls is DistilledVisionTransformer
    base = build(cls, (SIDE, SIDE), pe, join_type).state_dict()
    # the public 2-D sinusoids know square images only; at another size only their resized table is used
    models = {size: build(cls, size, pe if 'sin' not in pe else '1D_sin', join_type) for size in sizes}
    fixed = [n for n in base if n.endswith('position_index') or (n == 'pos_embed' and 'sin' in pe)]

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        size = tuple(x.shape[2:])
        return [call(models[size], at_size(weights, 1 + distilled, size), x)]

    kwargs = dict(pe_type=TYPES[pe], pe_joining=JOININGS[join_type])
    name = '-'.join((*(['distilled'] if distilled else []), *kwargs.values()))
    return Case(
        name,
        cls.__name__,
        dict(arch=ARCH, img_size=SIDE, patch_size=PATCH, out_type='raw', **kwargs, **DROPS),
        fill(base, fixed),
        run,
        fixed,
        inputs=['square'] if pe == '2D_RPE' else None,
    )


def norm_pe(kind: str, w: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Apply one of Table 8's norms to a PE."""
    if 'norm' in kind:
        w = (w - w.mean(-1, keepdim=True)) / (w.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()
    w = w if weight is None else w * weight
    return w if bias is None else w + bias


def hooked_case(pe: str, chain: bool, kind: str) -> Case:
    """Return a case that hooks make of the public default model.

    Args:
        pe: The public kind of PE.
        chain: Whether a layer norms what the layer before it added, and not the table.
        kind: The norm, one of Table 8.
    """
    sizes = {tuple(x.shape[2:]) for x in INPUTS.values()}
    base = build(VisionTransformer, (SIDE, SIDE), pe, 'basic').state_dict()
    fixed = ['pos_embed'] if 'sin' in pe else []
    scale = dict(scalar=1, channel=DIMS).get(kind.partition('-')[0], DIMS if kind in ('affine', 'layernorm') else 0)
    for i in range(DEPTH):
        if scale:
            base[f'blocks.{i}.pe_norm.weight'] = torch.ones(scale)
        if kind in ('affine', 'layernorm'):
            base[f'blocks.{i}.pe_norm.bias'] = torch.zeros(DIMS)
    models = {size: build(VisionTransformer, size, '1D_sin' if 'sin' in pe else pe, 'basic') for size in sizes}

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        size = tuple(x.shape[2:])
        rest = at_size(weights, 1, size)
        own = {name: rest.pop(name) for name in list(rest) if 'pe_norm' in name}
        model, w, hooks = models[size], rest['pos_embed'], []
        for i, block in enumerate(model.blocks):
            normed = norm_pe(kind, w, *(own.get(f'blocks.{i}.pe_norm.{leaf}') for leaf in ('weight', 'bias')))
            hooks.append(block.norm1.register_forward_hook(lambda module, args, out, w=normed: out + w))
            w = normed if chain else w
        out = call(model, {**rest, 'pos_embed': torch.zeros_like(rest['pos_embed'])}, x)
        for hook in hooks:
            hook.remove()
        return [out]

    kwargs = dict(pe_type=TYPES[pe], pe_joining='lape' if chain else 'lape-shared')
    kwargs.update({} if kind == 'layernorm' else dict(pe_norm=kind))
    ours = dict(arch=ARCH, img_size=SIDE, patch_size=PATCH, out_type='raw', **kwargs, **DROPS)
    only = None if kind == 'layernorm' else ['wide']
    return Case('-'.join(kwargs.values()), 'VisionTransformer', ours, fill(base, fixed), run, fixed, gradients=only)


def check_hooks() -> None:
    """Check that the hooks make the published LaPE of the published default model."""
    published = public_case(VisionTransformer, 'learnable', 'LaPE')
    hooked = hooked_case('learnable', True, 'layernorm')
    for x in INPUTS.values():
        weights = {name: value.double() for name, value in published.weights.items()}
        one, other = (case.run(dict(weights), x.double())[0] for case in (published, hooked))
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


if __name__ == '__main__':
    check_hooks()
    norms = ('identity', 'scalar', 'channel', 'affine', 'norm', 'scalar-norm', 'channel-norm')
    write(
        'lape',
        INPUTS,
        [
            *(public_case(VisionTransformer, pe, join) for join in ('basic', 'share', 'LaPE')
              for pe in ('learnable', '1D_sin', '2D_sin')),
            public_case(VisionTransformer, 'learnable', 'unshare'),
            public_case(VisionTransformer, '2D_RPE', 'basic'),
            public_case(VisionTransformer, '2D_RPE', 'LN'),
            *(public_case(DistilledVisionTransformer, 'learnable', join) for join in ('basic', 'LaPE')),
            *(hooked_case(pe, False, 'layernorm') for pe in ('learnable', '1D_sin', '2D_sin')),
            *(hooked_case('learnable', True, kind) for kind in norms),
            hooked_case('learnable', False, 'scalar-norm'),
        ],
    )  # fmt: skip
