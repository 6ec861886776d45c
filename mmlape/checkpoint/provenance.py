"""Whose pretraining weights are of: DeiT's published files, or a run of public code."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DEIT = "DeiT's published weights"
_PUBLISHED = ('a1311bcf', 'cd65a155', 'b5f2ef4d', '8de9b5d1', 'b40b3cf7', '649709d9', 'df68dfff', 'd0272ac0')
"""The first eight digits of the SHA-256 of DeiT's files, which their names end with: Ti, S, B, B at
384; distilled."""


def is_published(name: str, digest: str | None = None) -> bool:
    """Check whether a file is one that DeiT's authors published, by its SHA-256, else by its name."""
    digits = re.search(r'-([0-9a-f]{8})$', Path(name).stem)
    return (digest[:8] if digest else digits and digits[1]) in _PUBLISHED


def written_by_deit(content: Mapping[str, Any]) -> bool:
    """Check whether a file is as DeiT's and LaPE's public code writes them."""
    return 'args' in content and 'model' in content
