"""Golden data of Compact Transformers' public code (SHI-Labs/Compact-Transformers at cd11f09): ViT-Lite, CVT, CCT.

The code has the default joining only. LaPE is its default model with a PE of zeros and hooks that add the chain of
normed PEs to the output of every ``pre_norm``, as ``make_lape.py`` does for DeiT, where it is compared with published
code. The public models take one image size: for another grid, the model of that size gets the table resized by that
code's own function, which it loads files with.

The sinusoids of CVT and CCT are given to the classes: the public factories swallow that argument.
"""

import torch
import torch.nn.functional as F
from recording import Case, Weights, call, checkout, fill, image, write
from torch import Tensor, nn

checkout()
from src.cct import CCT  # noqa: E402
from src.cvt import CVT  # noqa: E402
from src.utils.helpers import resize_pos_embed  # noqa: E402
from src.vit import ViTLite  # noqa: E402

DEPTH, DIMS, HEADS, SIDE = 3, 8, 2, 16
INPUTS = dict(square=image(0, 2, 3, SIDE, SIDE), large=image(1, 1, 3, 24, 24))
WIDTHS = dict(embed_dims=DIMS, num_layers=DEPTH, num_heads=HEADS, feedforward_channels=2 * DIMS)
PATCHES = dict(type='patch', patch_size=4)
ARCHS = {
    'vit-lite': (ViTLite, dict(tokenizer=PATCHES, pooling='cls_token'), dict(kernel_size=4)),
    'cvt': (CVT, dict(tokenizer=PATCHES, pooling='sequence_pool'), dict(kernel_size=4)),
    'cct-3x1': (
        CCT,
        dict(tokenizer=dict(type='conv', kernel_size=3, num_convs=1), pooling='sequence_pool'),
        dict(kernel_size=3, stride=1, padding=1, n_conv_layers=1),
    ),
    'cct-7x2': (
        CCT,
        dict(tokenizer=dict(type='conv', kernel_size=7, num_convs=2), pooling='sequence_pool'),
        dict(kernel_size=7, stride=2, padding=3, n_conv_layers=2),
    ),
}
TYPES = {'learnable': 'learnable', 'sine': 'sincos1d', 'none': 'none'}
TABLE = 'classifier.positional_emb'


def build(name: str, side: int, pe: str) -> nn.Module:
    """Build a public model that returns the classifier's features."""
    cls, _, options = ARCHS[name]
    model = cls(
        img_size=side,
        embedding_dim=DIMS,
        num_layers=DEPTH,
        num_heads=HEADS,
        mlp_ratio=2,
        positional_embedding=pe,
        **options,
    )
    model.classifier.fc = nn.Identity()
    return model


def ours(name: str) -> str:
    """Return this package's name of a tensor."""
    return name.removeprefix('classifier.')


def case(name: str, pe: str, joining: str, inputs: list[str] | None = None) -> Case:
    """Return the case of a model; LaPE is made by hooks."""
    models = {x.shape[2]: build(name, x.shape[2], pe) for x in INPUTS.values()}
    base = {ours(key): value for key, value in models[SIDE].state_dict().items()}
    fixed = ['positional_emb'] if pe == 'sine' else []
    if joining == 'lape':
        for i in range(DEPTH):
            base[f'blocks.{i}.pe_norm.weight'], base[f'blocks.{i}.pe_norm.bias'] = torch.ones(DIMS), torch.zeros(DIMS)
    prefix = int(name == 'vit-lite')

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        model = models[x.shape[2]]
        state = {key: weights[ours(key)] for key in model.state_dict()}
        hooks = []
        if TABLE in state:
            state[TABLE] = w = resize_pos_embed(state[TABLE], model.state_dict()[TABLE], prefix)
        if joining == 'lape':
            state[TABLE] = torch.zeros_like(w)
            for i, block in enumerate(model.classifier.blocks):
                w = F.layer_norm(w, (DIMS,), *(weights[f'blocks.{i}.pe_norm.{leaf}'] for leaf in ('weight', 'bias')))
                hooks.append(block.pre_norm.register_forward_hook(lambda module, args, out, w=w: out + w))
        out = call(model, state, x)
        for hook in hooks:
            hook.remove()
        return [out]

    arch = {**WIDTHS, **ARCHS[name][1]}
    kwargs = dict(arch=arch, img_size=SIDE, pe_type=TYPES[pe], pe_joining=joining)
    label = '-'.join((name, TYPES[pe], joining))
    return Case(label, 'CompactTransformer', kwargs, fill(base, fixed), run, fixed, inputs)


if __name__ == '__main__':
    cases = [
        case(name, 'learnable', joining) for name in ('vit-lite', 'cvt', 'cct-3x1') for joining in ('default', 'lape')
    ]
    cases += [case('cct-7x2', 'learnable', 'lape', ['square'])]
    cases += [case(name, 'sine', 'default') for name in ('vit-lite', 'cct-3x1')]
    cases += [case('cvt', 'sine', 'lape'), case('cvt', 'none', 'default')]
    write('compact', INPUTS, cases)
