"""Layouts that a plain ViT's weights can be written in, and what each has no place for."""

from collections.abc import Callable, Sequence

from mmlape.checkpoint.key_maps import CLASS_HEADS, Target, Tensors, Weights
from mmlape.models.backbones.stored_position import NAMES
from mmlape.models.backbones.vit_jax import missing_in_big_vision, to_big_vision
from mmlape.models.backbones.vit_layouts import ADAPTER, to_timm
from mmlape.models.backbones.vit_stem_layouts import (
    missing_in_open_clip,
    missing_in_vit_pytorch,
    to_open_clip,
    to_vit_pytorch,
)
from mmlape.models.backbones.vit_stored import LAYER_SCALE, norm_placement_of, patch_norm_of


def missing_in(
    patch_norms: Sequence[str] = ('none',),
    placements: Sequence[str] = ('pre',),
    joinings: bool = False,
    layer_scale: bool = False,
    more: Callable[[Weights], list[str]] | None = None,
) -> Callable[[Weights], list[str]]:
    """Return what finds out what a layout has no place for.

    Args:
        patch_norms: Those that it has.
        placements: Those of the layers' norms that it has.
        joinings: Whether it has PE joinings, and models without an absolute PE.
        layer_scale: Whether it has LayerScale.
        more: Finds what else.
    """

    def missing(weights: Weights) -> list[str]:
        found = ['ViT-Adapter parts'] if weights.layout == ADAPTER.name else []
        norm, placement, joining = patch_norm_of(weights), norm_placement_of(weights), NAMES.joinings(weights)[0]
        found += [f'Dual PatchNorm ({norm})'] if norm not in patch_norms else []
        found += [f'norm_placement={placement!r}'] if placement not in placements else []
        if not joinings and (joining != 'default' or not NAMES.tables(weights)):
            found.append(f'the PE joining ({joining})')
        found += ['LayerScale'] if weights.has(LAYER_SCALE) and not layer_scale else []
        return found + (more(weights) if more and not found else [])

    return missing


def to_classifier(tensors: Tensors) -> Tensors:
    """Name a classifier's tensors as MMPretrain's with a ``VisionTransformerClsHead`` has them."""
    return {
        f'head.layers.{name}' if name.startswith(CLASS_HEADS) else f'backbone.{name}': value
        for name, value in tensors.items()
    }


_ANY_STEM = ('none', 'dual', 'pre', 'post')
TARGETS = {
    'classifier': Target(to_classifier, 'state_dict', pre_logits=True, part='backbone'),
    'timm': Target(to_timm, missing=missing_in(placements=('pre', 'sub-ln'), layer_scale=True)),
    'lape': Target(wrapper='model', missing=missing_in(joinings=True)),
    'big_vision': Target(to_big_vision, missing=missing_in(_ANY_STEM, more=missing_in_big_vision), pre_logits=True),
    'vit-pytorch': Target(to_vit_pytorch, missing=missing_in(('dual',), more=missing_in_vit_pytorch)),
    'open_clip': Target(
        to_open_clip,
        missing=missing_in(('post-posemb', 'pre-post-posemb'), layer_scale=True, more=missing_in_open_clip),
    ),
}
