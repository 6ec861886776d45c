"""Whose pretraining weights are of: DeiT's published files, a run of this package, or one of public code."""

import re
from pathlib import Path

from mmlape.errors import CheckpointError

DEIT = "DeiT's published weights"
PRETRAIN = (
    'The paper retrained its default arm, and no LaPE weights are public: pretrain every arm by '
    'configs/classification/imagenet, and give the files by model.backbone.init_cfg.checkpoint'
)
_PUBLISHED = (
    'a1311bcf',
    'cd65a155',
    'b5f2ef4d',
    '8de9b5d1',
    'b40b3cf7',
    '649709d9',
    'df68dfff',
    'd0272ac0',
)
"""The first eight digits of the SHA-256 of DeiT's files, which their names end with: Ti, S, B, B at
384; distilled."""


def is_published(name: str, digest: str | None = None) -> bool:
    """Check whether a file is one that DeiT's authors published, by its SHA-256, else by its name."""
    named = re.search(r'-([0-9a-f]{8})$', Path(name).stem)
    return (digest[:8] if digest else named and named[1]) in _PUBLISHED


def provenance(path: str | Path) -> str | None:
    """Say whose pretraining a file is of; None if nothing in it tells."""
    from mmlape.checkpoint.converting import sha256  # here, as a report needs no torch
    from mmlape.weights.reading import read_checkpoint

    path = Path(path).expanduser()
    if is_published(path.name, sha256(path) if path.is_file() else None):
        return DEIT
    try:
        content = read_checkpoint(path)
    except CheckpointError:
        return None
    meta = content.get('meta')
    if isinstance(meta, dict) and {'mmengine_version', 'mmlape'} & set(meta):
        return 'a run of mmlape or MMEngine'
    return "a run of DeiT's or LaPE's code" if 'args' in content and 'model' in content else None
