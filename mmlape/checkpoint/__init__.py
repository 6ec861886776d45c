"""Checkpoints: read safely, recognised by layout, loaded exactly or refused with the reason."""

from mmlape.checkpoint.loading import LoadReport, load_backbone, load_model, load_weights
from mmlape.checkpoint.reading import read_checkpoint, state_dict_of, trust_checkpoints

__all__ = [
    'LoadReport',
    'load_backbone',
    'load_model',
    'load_weights',
    'read_checkpoint',
    'state_dict_of',
    'trust_checkpoints',
]
