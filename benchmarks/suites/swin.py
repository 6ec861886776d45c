"""Our Swin beside timm's and mmpretrain's with the same weights, and LaPE beside the default PE, at 224."""

from collections.abc import Callable

from torch import Tensor, nn

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import prepared, swin, swin_arch

SIZES = (224,)


def timm_swin(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """Build timm's, which returns the mean of the tokens."""
    from timm.models.swin_transformer import SwinTransformer

    from mmlape.models.swin.checkpoint import to_timm

    arch = swin_arch(settings)
    model = SwinTransformer(
        img_size=size, embed_dim=arch['embed_dims'], depths=arch['depths'], num_heads=arch['num_heads'],
        num_classes=0, drop_path_rate=0.0,
    )  # fmt: skip
    model.load_state_dict(to_timm(weights))
    return prepared(model, settings)


def to_mmpretrain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Bring parameters or gradients of ours into the names and the order of mmpretrain's backbone."""
    from mmlape.models.swin import checkpoint

    renamed = checkpoint.to_mmpretrain(tensors)
    return {name.removeprefix('backbone.'): value for name, value in renamed.items()}


def mmpretrain_swin(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """Build mmpretrain's, which returns the last feature map."""
    from mmpretrain.models import SwinTransformer

    model = SwinTransformer(arch=swin_arch(settings), img_size=size, drop_path_rate=0.0)
    model.load_state_dict(to_mmpretrain(weights))
    return prepared(model, settings)


def _gradients(rename: Callable) -> Callable:
    """Return what renames gradients as ``rename`` does, without the indices, which have none."""

    def renamed(gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value for name, value in rename(gradients).items() if value.is_floating_point()}

    return renamed


def _to_timm(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    from mmlape.models.swin.checkpoint import to_timm

    return to_timm(tensors)


PEERS = {'timm': (timm_swin, _to_timm, 'avg_featmap'), 'mmpretrain': (mmpretrain_swin, to_mmpretrain, 'featmap')}
"""What builds a peer from our weights, what renames our parameters, and the form of its output."""


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per peer, dtype and work, and those of LaPE."""
    found = []
    for name, (peer, rename, out_type) in PEERS.items():

        def ours(size: int, out_type=out_type):
            return swin(settings, size, out_type=out_type)

        def theirs(size: int, peer=peer, ours=ours):
            return peer(settings, size, ours(size).state_dict())

        models = Models(
            f'Swin {settings.arch}: mmlape against {name}', {name: theirs, 'mmlape': ours},
            equal=True, rules=_gradients(rename), memory=True,
        )  # fmt: skip
        found += models.comparisons('swin', settings, SIZES)
    sides = {
        label: lambda size, joining=joining: swin(settings, size, pe_type='learnable', pe_joining=joining)
        for label, joining in (('default', 'default'), ('LaPE', 'lape'))
    }
    models = Models(f'Swin {settings.arch}: LaPE against default PE', sides, ('training step', 'forward'), memory=True)
    return found + models.comparisons('swin', settings, SIZES)
