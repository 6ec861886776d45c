"""What this package's papers answer the laboratory; imported without torch and without models."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmlape.lab.extension import Extension, Provenance
from mmlape.lazy import Lazy
from mmlape.projects import COMMANDS

if TYPE_CHECKING:
    from torch import nn


DEIT = "DeiT's published weights"
_PUBLISHED = ('a1311bcf', 'cd65a155', 'b5f2ef4d', '8de9b5d1', 'b40b3cf7', '649709d9', 'df68dfff', 'd0272ac0')
"""The first eight digits of the SHA-256 of DeiT's files, which their names end with: Ti, S, B, B at 384; distilled."""


class Papers(Extension):
    """Position encodings, backbones and projects."""

    counted = ('mmlape.checkpoint', 'mmlape.kinds', 'mmlape.models', 'mmlape.projects', 'mmlape.registry')
    registries = dict(
        DATASETS=('mmlape.projects',),
        TRANSFORMS=('mmlape.projects',),
        METRICS=('mmlape.projects',),
        HOOKS=('mmlape.projects',),
        WEIGHT_INITIALIZERS=('mmlape.models.weight_init',),
    )
    commands = COMMANDS
    logged = {
        'pe-balance': (
            'mmlape.PEBalanceHook',
            'log what each layer does with the position embedding every N iterations, on four images, as '
            'visualize-pe --balance shows it',
        )
    }
    metrics = {'25-shot': 'few-shot/25-shot'}
    on_pretraining = (
        'The paper retrained its default arm, and no LaPE weights are public: pretrain every arm by '
        'configs/deit, and give the files by model.backbone.init_cfg.checkpoint'
    )
    main_paper = 'LaPE'
    on_figures = {
        'ImageNet-1K': "The papers do not give ImageNet's crop ratio: top-1 is at 0.875, as in DeiT's later code "
        "(0.9 for T2T-ViT, as in its own), and top-1, crop 1.0 as in LaPE's code; compare the paper's "
        'figure with both.'
    }

    # what our backbones write, and released models of others, whose names are translated
    load_model = Lazy('mmlape.checkpoint.loading', 'load_model')
    # warns of pretrained weights whose images were normalised otherwise
    check_initialised = Lazy('mmlape.checkpoint.loading', 'warn_of_normalisation')
    position_parameters = Lazy('mmlape.models.position', 'position_parameters')  # also of timm's ViTs
    paper_model = Lazy('mmlape.extension.paper_names', 'paper_model')
    paper_figures = Lazy('mmlape.extension.metafiles', 'paper_figures')
    weights_source = Lazy('mmlape.extension.metafiles', 'weights_source')
    exporting = Lazy('mmlape.models.adapter.deform_attn', 'exporting')  # deformable attention by gathers

    def metadata(self, model: 'nn.Module') -> dict[str, Any]:
        """Return what names and shapes of backbones do not tell, and how images are normalised."""
        from mmlape.checkpoint.metadata import KEY, metadata_of

        return {KEY: metadata_of(model).plain()}

    def provenance(self, name: str, digest: str | None, content: Mapping[str, Any] | None = None) -> Provenance | None:
        """Know DeiT's published files, and those that its code writes."""
        digits = re.search(r'-([0-9a-f]{8})$', Path(name).stem)
        if (digest[:8] if digest else digits and digits[1]) in _PUBLISHED:
            return Provenance(DEIT, distinct=True)  # no file with LaPE is published
        if content is not None and 'args' in content and 'model' in content:
            return Provenance("a run of DeiT's or LaPE's code")
        return None


EXTENSION = Papers()
