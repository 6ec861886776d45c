"""What this package's papers answer the laboratory; imported without torch and without models."""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmlape.lab.extension import Extension, PaperFigures, PaperModel, Provenance
from mmlape.projects import COMMANDS

if TYPE_CHECKING:
    from torch import nn

    from mmlape.checkpoint.exact_loading import LoadReport
    from mmlape.checkpoint.opening import OpenedFile


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

    def load_model(
        self, model: 'nn.Module', file: 'OpenedFile', *, strict: bool, resize: bool, fresh: Sequence[str]
    ) -> 'LoadReport | None':
        """Load what our backbones write, and released models of others, whose names are translated."""
        from mmlape.checkpoint.loading import load_model

        return load_model(model, file, strict, resize, fresh)

    def metadata(self, model: 'nn.Module') -> dict[str, Any]:
        """Return what names and shapes of backbones do not tell, and how images are normalised."""
        from mmlape.checkpoint.metadata import KEY, metadata_of

        return {KEY: metadata_of(model).plain()}

    def check_initialised(self, model: 'nn.Module') -> None:
        """Warn of pretrained weights whose images were normalised otherwise."""
        from mmlape.checkpoint.loading import warn_of_normalisation

        warn_of_normalisation(model)

    def position_parameters(self, model: 'nn.Module') -> Collection[str]:
        """Return the parameters of position encodings, also of timm's ViTs."""
        from mmlape.models.position import position_parameters

        return position_parameters(model)

    def provenance(self, name: str, digest: str | None, content: Mapping[str, Any] | None = None) -> Provenance | None:
        """Know DeiT's published files, and those that its code writes."""
        digits = re.search(r'-([0-9a-f]{8})$', Path(name).stem)
        if (digest[:8] if digest else digits and digits[1]) in _PUBLISHED:
            return Provenance(DEIT, distinct=True)  # no file with LaPE is published
        if content is not None and 'args' in content and 'model' in content:
            return Provenance("a run of DeiT's or LaPE's code")
        return None

    def paper_model(
        self, name: str, settings: Mapping[str, Any], loads: Sequence[str], weights: str | None
    ) -> PaperModel | None:
        """Name backbones with a ``paper_name``, and what their settings say of the position encoding."""
        from mmlape.extension.paper_names import paper_model

        return paper_model(name, settings, loads, weights)

    def paper_figures(self, config: str) -> PaperFigures | None:
        """Read the metafiles of our configs."""
        from mmlape.extension.metafiles import paper_figures

        return paper_figures(config)

    def weights_source(self, path: str) -> str | None:
        """Read the metafiles of our configs."""
        from mmlape.extension.metafiles import weights_source

        return weights_source(path)

    def exporting(self) -> AbstractContextManager[None]:
        """Compute deformable attention by gathers."""
        from mmlape.models.adapter.deform_attn import exporting

        return exporting()


EXTENSION = Papers()
