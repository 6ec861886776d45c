"""Dual PatchNorm in a ViT of timm, in place (DPN, TMLR 2023, Eq. 4).

    tokens = LN1(Linear(LN0(patchify(x))))

LN1 is ``patch_embed.norm``, where timm has a place for it; LN0 is ``patch_embed.norm0``.
"""

from torch import Tensor, nn

from mmlape.errors import ConfigError, require_choice
from mmlape.models.layers.patch_embed import PATCH_NORMS, norm_patches
from mmlape.models.timm.joined import Joined, Proxy, Subclassed, subclass
from mmlape.models.timm.lape import check_model


def add_dual_patchnorm(model: nn.Module, patch_norm: str = 'dual') -> nn.Module:
    """Put the norms of Dual PatchNorm, or of one of its ablations, around the patch embedding of a ViT of timm.

    All start with scale 1 and shift 0, and have the eps of the layers' norms. ``patch_embed.norm0``
    norms the C*P*P values of a patch in the order (channel, row, column), ``patch_embed.norm`` its
    token; 'post-posemb' and 'pre-post-posemb' norm tokens + PE by ``norm_pre``. Load pretrained
    weights before, and build the optimiser and compile afterwards.

    Args:
        model: A ``VisionTransformer`` or ``Eva`` of timm whose stem is timm's ``PatchEmbed``.
        patch_norm: 'dual', 'pre', 'post', 'post-posemb', 'pre-post-posemb', 'learnable-only',
            'no-learnable' or 'rms'.

    Returns:
        The model.

    Raises:
        ConfigError: For another stem, one that has such norms already, a compiled model, and an
            unknown name. The model is then as it was.
        StackError: If timm is missing or too old.
    """
    names = [name for name in PATCH_NORMS if name != 'none']
    require_choice('patch_norm', patch_norm, names, 'add_dual_patchnorm: ')
    builders = PATCH_NORMS[patch_norm]
    _check(model, patch_norm)
    embed, weight = model.patch_embed, model.patch_embed.proj.weight
    eps = getattr(getattr(model.blocks[0], 'norm1', None), 'eps', 1e-6)
    dims = (weight[0].numel(), model.embed_dim, model.embed_dim)
    norms = [build and build(size, eps=eps).to(weight).train(model.training) for build, size in zip(builders, dims)]
    # nothing below can fail
    embed.patch_norm, embed.norms_position, embed.norm0 = patch_norm, norms[2] is not None, norms[0]
    if norms[1] is not None:
        embed.norm = norms[1]
    if norms[2] is not None:
        model.norm_pre = norms[2]
    embed.__class__ = subclass(PatchNormed, type(embed))
    return model


class PatchNormed(Subclassed):
    """timm's patch embedding with a norm before the linear map."""

    patch_norm: str  # a key of ``PATCH_NORMS``
    norms_position: bool  # whether the model norms tokens + PE
    norm0: nn.Module | None  # the norm of a patch's values, or None

    def forward(self, x: Tensor) -> Tensor:
        """Run timm's method on images (B, C, H, W)."""
        return self.plain.forward(self if self.norm0 is None else _Projecting(self), x)

    def set_input_size(self, img_size=None, patch_size=None) -> None:
        """Change the size as timm does.

        Raises:
            ConfigError: For other patches, since the norm has a scale for each of their values.
        """
        sides = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
        if self.norm0 is not None and sides not in (None, tuple(self.patch_size)):
            raise ConfigError(
                f'patch_norm={self.patch_norm!r} norms patches of {self.patch_size}: change the '
                'patch size before add_dual_patchnorm'
            )
        super().set_input_size(img_size=img_size, patch_size=patch_size)


class _Projecting(Proxy):
    """A patch embedding whose linear map norms its patches first."""

    def proj(self, x: Tensor) -> Tensor:
        """Map images (B, C, H, W) to (B, D, rows, columns)."""
        embed = self.module
        return embed.proj(norm_patches(x, embed.norm0, tuple(embed.patch_size)))


def _check(model: nn.Module, patch_norm: str) -> None:
    check_model(model, 'add_dual_patchnorm')
    from timm.layers import PatchEmbed

    _, after, behind = PATCH_NORMS[patch_norm]
    embed = model.patch_embed
    if isinstance(embed, PatchNormed):
        raise ConfigError(f'add_dual_patchnorm: the model has patch_norm={embed.patch_norm!r} already')
    if type(embed) is not PatchEmbed:
        raise ConfigError(f'add_dual_patchnorm: the stem is a {type(embed).__name__}, not one linear map of patches')
    if after and not isinstance(embed.norm, nn.Identity):
        raise ConfigError(f'add_dual_patchnorm: patch_norm={patch_norm!r} norms tokens, and the stem does so already')
    if behind and not isinstance(model.norm_pre, nn.Identity):
        raise ConfigError(
            f'add_dual_patchnorm: patch_norm={patch_norm!r} norms tokens + PE, and norm_pre does so already'
        )
    if behind and (isinstance(model, Joined) or getattr(model, 'pos_embed', None) is None):
        raise ConfigError(
            f'add_dual_patchnorm: patch_norm={patch_norm!r} norms tokens + PE, and this model adds no PE to its tokens'
        )
