"""Plain ViTs of timm: which of its models are, and how one is built without its head."""

import difflib
import functools
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import NamedTuple

import torch
from torch import nn

from mmlape.checkpoint.exact_loading import Normalisation
from mmlape.checkpoint.fetching import HUB, local_path
from mmlape.errors import ConfigError, StackError
from mmlape.files import read_json

OLDEST = '1.0.20'
"""The first timm with DINOv3."""
PREFIX_TOKENS = ('cls_token', 'dist_token', 'reg_token')
"""In the order in which they precede the patches."""
VIT = 'vit.'
"""Before the names of timm's model in ours."""
BILINEAR = ('flexi', 'radio')
"""In names of models whose tables and kernels timm resizes linearly, without antialiasing."""


MODULES = ('vision_transformer', 'deit', 'eva')
"""Of timm's models, those whose classes are plain ViTs."""


class TimmNames(Mapping):
    """``model_names`` of timm's plain ViTs: 'timm/' and timm's name, which may have a tag of weights."""

    prefix = 'timm/'

    def __getitem__(self, name: str) -> dict:
        if not name.startswith(self.prefix):
            raise KeyError(name)
        # of a name that timm does not know, ``find_model`` has the closest ones
        return dict(model_name=name.removeprefix(self.prefix))

    def __iter__(self) -> Iterator[str]:
        try:
            timm = timm_package()
        except StackError:  # without timm, the other models are still listed
            return iter(())
        return (self.prefix + name for name in timm.list_models(module=MODULES))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class TimmSource(NamedTuple):
    """A model of timm's registry."""

    name: str  # as timm knows it, with the tag of its weights if one is named
    pretrained_cfg: dict  # timm's description of those weights

    @property
    def architecture(self) -> str:
        """The name without the tag."""
        return self.name.partition('.')[0]

    @property
    def is_bilinear(self) -> bool:
        """Whether timm resizes tables and kernels linearly."""
        return any(part in self.architecture for part in BILINEAR)

    @property
    def checkpoint(self) -> str:
        """Where the weights are.

        Raises:
            ConfigError: If timm knows none.
        """
        hub, url = (self.pretrained_cfg.get(key) for key in ('hf_hub_id', 'url'))
        if hub:
            file = self.pretrained_cfg.get('hf_hub_filename')
            return f'{HUB}{hub}/{file}' if file else f'{HUB}{hub}'
        if url:
            return url
        tagged = timm_package().list_models(f'{self.architecture}.*', pretrained=True)
        choices = f'choose one of: {", ".join(tagged)}' if tagged else 'name a file with checkpoint=FILE'
        raise ConfigError(f'timm has no weights for {self.name}: {choices}')

    @property
    def normalisation(self) -> Normalisation | None:
        """What the weights want of images; None if a name without tag leaves it open."""
        timm = timm_package()
        if '.' in self.name:
            names = [self.name]
        else:
            names = timm.list_models(f'{self.architecture}.*', pretrained=True)
        cfgs = [timm.get_pretrained_cfg(name) for name in names]
        if len({(cfg.mean, cfg.std) for cfg in cfgs}) != 1:
            return None
        # timm's images are in [0, 1], mmlape's in [0, 255]
        values = (tuple(round(255 * value, 4) for value in part) for part in (cfgs[0].mean, cfgs[0].std))
        return Normalisation(*values, f"timm's pretrained_cfg of {names[0]}")


def timm_package() -> ModuleType:
    """Import timm.

    Raises:
        StackError: If it is missing or too old.
    """
    try:
        import timm
    except ImportError as error:
        raise StackError(f"mmlape.TimmViT needs timm: pip install 'timm>={OLDEST}'") from error
    if tuple(int(part) for part in timm.__version__.split('.')[:3] if part.isdigit()) < (1, 0, 20):
        raise StackError(f'mmlape.TimmViT needs timm {OLDEST} or newer, not {timm.__version__}: pip install -U timm')
    return timm


def find_model(name: str) -> TimmSource:
    """Look a model up.

    Args:
        name: 'vit_small_patch14_reg4_dinov2', with a tag of weights ('.lvd142m'), or
            'hf-hub:REPOSITORY'.

    Raises:
        ConfigError: If timm does not know it.
        CheckpointError: If a repository's description is neither cached nor can be downloaded.
    """
    timm = timm_package()
    if name.startswith(HUB):
        repository = name.removeprefix(HUB)
        name = repository.removeprefix('timm/')
        if not timm.is_model(name):
            return _hub_model(repository)
    if not timm.is_model(name):
        names = timm.list_models(pretrained='.' in name)
        close = difflib.get_close_matches(name, names, 4, 0.5)
        raise ConfigError(f'timm {timm.__version__} has no model {name!r}; the closest names: {", ".join(close)}')
    architecture, _, tag = name.partition('.')
    try:
        cfg = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        tagged = ', '.join(timm.list_models(f'{architecture}.*', pretrained=True))
        raise ConfigError(f'timm has no weights {tag!r} of {architecture}; choose one of: {tagged}') from error
    return TimmSource(name, cfg.to_dict() if cfg else {})


def _hub_model(repository: str) -> TimmSource:
    """Read the description of a repository on the hub that is not timm's own."""
    path = local_path(f'{HUB}{repository}/config.json')
    values = read_json(path)
    if values is None:
        raise ConfigError(f'{HUB}{repository}: its config.json cannot be read')
    return TimmSource(values['architecture'], dict(values.get('pretrained_cfg') or {}, hf_hub_id=repository))


@functools.cache
def skeleton(name: str) -> nn.Module:
    """Build the model of an architecture of timm without data, and check that it is a plain ViT.

    One grid, square patches, layers of tokens alone. All callers get the same one, and leave it as
    it is.

    Raises:
        ConfigError: If it is none.
    """
    timm = timm_package()
    from timm.layers import PatchEmbed
    from timm.models.eva import Eva
    from timm.models.vision_transformer import VisionTransformer

    try:
        with torch.device('meta'):
            model = timm.create_model(name, num_classes=0)
    except Exception as error:  # models of any kind, with errors of any kind
        raise ConfigError(f'timm cannot build {name}: {error}') from error
    if not isinstance(model, VisionTransformer | Eva):
        raise ConfigError(
            f'{name} is no plain ViT but a {type(model).__name__}: mmlape.TimmViT takes the models '
            'of timm whose class is VisionTransformer or Eva, such as DINOv2, DINOv3, MAE, CLIP, '
            'SigLIP, EVA-02, AugReg'
        )
    if type(model.patch_embed) is not PatchEmbed:
        raise ConfigError(f'{name} has a stem of its own ({type(model.patch_embed).__name__}), not one of patches')
    return model


def build_vit(source: TimmSource, with_prefix: bool, keep_norm: bool, options: dict, model_args: dict) -> nn.Module:
    """Build a plain ViT without head and pooling.

    Without class token and registers, or the final norm, if not wanted. ``options`` are arguments
    of timm's, of which None values are left out, ``model_args`` those of the user.

    Raises:
        ConfigError: If timm does not take the arguments.
    """
    plain = skeleton(source.architecture)
    options = {key: value for key, value in options.items() if value is not None}
    if not with_prefix:
        registers, norm = 'reg_tokens', 'fc_norm'
        if hasattr(plain, 'rope'):
            registers, norm = 'num_reg_tokens', 'use_fc_norm'
        # without a class token timm pools by the mean, which would move a final norm behind the
        # pooling
        moved = isinstance(plain.norm, nn.Identity)
        options |= {'class_token': False, registers: 0, 'global_pool': 'avg', norm: moved}
    options |= dict(num_classes=0, dynamic_img_size=True, dynamic_img_pad=True)
    if model_args.get('patch_drop_rate'):
        raise ConfigError('model_args: patch_drop_rate drops patches, and a dense task needs the complete grid')
    try:
        vit = timm_package().create_model(source.architecture, **options, **model_args)
    except (TypeError, AssertionError, ValueError) as error:
        raise ConfigError(f'timm cannot build {source.architecture} with {model_args or options}: {error}') from error
    if len(set(vit.patch_embed.patch_size)) > 1:
        raise ConfigError(f'patch_size={vit.patch_embed.patch_size}: patches are squares, so both sides must be equal')
    vit.head, vit.head_drop, vit.fc_norm, vit.attn_pool = (nn.Identity(), nn.Identity(), nn.Identity(), None)
    if not keep_norm:
        vit.norm = nn.Identity()
    return vit
