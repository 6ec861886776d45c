"""Whose pretraining the weights are of that runs start from, as far as a file or an extension tells."""

from pathlib import Path

from mmlape.errors import CheckpointError
from mmlape.files import sha256
from mmlape.lab.extension import Provenance, first_answer

NO_WEIGHTS = Provenance('no weights', distinct=True)


def known_provenance(name: str, digest: str | None) -> Provenance | None:
    """Return the provenance of a file that is known by its name or its SHA-256; None if it is not."""
    return first_answer(lambda one: one.provenance(name, digest))


def provenance(path: str | Path) -> Provenance | None:
    """Return the provenance of a file; None if nothing in it tells."""
    from mmlape.weights.reading import read_checkpoint  # here, as a report needs no torch

    path = Path(path).expanduser()
    digest = sha256(path) if path.is_file() else None
    provenance = known_provenance(path.name, digest)
    if provenance:
        return provenance
    try:
        content = read_checkpoint(path)
    except CheckpointError:
        return None
    meta = content.get('meta')
    if isinstance(meta, dict) and {'mmengine_version', 'mmlape'} & set(meta):
        return Provenance('a run of mmlape or MMEngine')
    return first_answer(lambda one: one.provenance(path.name, digest, content))
