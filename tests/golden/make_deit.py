"""Golden data of DeiT's public distilled model (facebookresearch/deit at 7e160fe): tokens and test scores."""

from functools import partial

from recording import Case, Weights, call, checkout, fill, image, write
from torch import Tensor, nn

checkout()
from models import DistilledVisionTransformer  # noqa: E402

DEPTH, DIMS, CLASSES = 3, 8, 5
ARCH = dict(embed_dims=DIMS, num_layers=DEPTH, num_heads=2, feedforward_channels=2 * DIMS)
DROPS = dict(drop_rate=0.1, attn_drop_rate=0.2, drop_path_rate=0.3)  # of no effect in evaluation mode
INPUTS = dict(square=image(0, 2, 3, 16, 16), wide=image(1, 1, 3, 8, 24))


def build(size: tuple[int, int], num_classes: int) -> nn.Module:
    """Build the public model as its DeiT sizes are configured."""
    return DistilledVisionTransformer(
        img_size=size,
        patch_size=4,
        embed_dim=DIMS,
        depth=DEPTH,
        num_heads=2,
        mlp_ratio=2,
        qkv_bias=True,
        num_classes=num_classes,
        norm_layer=partial(nn.LayerNorm, eps=1e-6),
    )


def tokens_case(key: str) -> Case:
    """Return the case of all normed tokens, for one input and a model of its size."""
    size = tuple(INPUTS[key].shape[2:])
    model = build(size, 0)
    tokens = []
    model.norm.register_forward_hook(lambda module, args, out: tokens.append(out))

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        call(model, weights, x)
        return [tokens.pop()]

    kwargs = dict(arch=ARCH, img_size=size, patch_size=4, out_type='raw', **DROPS)
    return Case(f'tokens-{key}', 'DistilledVisionTransformer', kwargs, fill(model.state_dict()), run, inputs=[key])


def scores_case() -> Case:
    """Return the case of the mean of both heads' scores."""
    model = build((16, 16), CLASSES)
    names = {
        name: f'head.layers.{name}' if name.startswith('head') else f'backbone.{name}' for name in model.state_dict()
    }

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        return [call(model, {name: weights[ours] for name, ours in names.items()}, x)]

    backbone = dict(arch=ARCH, img_size=16, patch_size=4, **DROPS)
    kwargs = dict(backbone=backbone, in_channels=DIMS, num_classes=CLASSES)
    weights = fill({names[name]: value for name, value in model.state_dict().items()})
    return Case('scores', 'distilled classifier', kwargs, weights, run, inputs=['square'])


if __name__ == '__main__':
    write('deit', INPUTS, [tokens_case('square'), tokens_case('wide'), scores_case()])
