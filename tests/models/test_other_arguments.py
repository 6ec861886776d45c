"""Arguments of position encodings that files of other values are taken with, and sinusoids of another grid."""

import inspect

import pytest
import torch
from each import each

from mmlape.checkpoint.metadata import mismatch
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models import VisionTransformer
from mmlape.models.position.absolute import Sincos2d

ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=16)
OTHER_VALUES = dict(std=0.1, rescale=2.0, shift=0.25, anew=True, jitter=2.0)
WITH = dict(rope=dict(coordinates='normalised'))


@pytest.mark.parametrize(
    ('kind', 'name'),
    [
        (name, argument)
        for name, kind in POSITION_ENCODINGS.module_dict.items()
        for argument in kind.training_arguments
        if argument in inspect.signature(kind).parameters
    ],
)
def test_weights_are_taken_by_models_with_other_arguments_of_training_and_of_other_grids(kind, name):
    shared = dict(type=kind, **WITH.get(kind, {}))
    changed = shared | {name: OTHER_VALUES[name]}
    plain, other = (VisionTransformer(ARCH, (12, 20), 4, pe_type=pe_type) for pe_type in (shared, changed))
    records = [one.checkpoint_adapter.record(one) for one in (plain, other)]
    assert not mismatch(records[0], records[1]) and not mismatch(records[1], records[0])
    assert records[1]['config']['pe_type'] == changed


def test_sinusoids_anew_are_those_of_a_model_for_that_grid():
    for kind in each(('sincos1d', 'sincos2d', 'sincos2d-moco', 'sine')):
        anew, own = (
            VisionTransformer(ARCH, size, 4, pe_type=dict(type=kind, anew=True), pe_joining='lape')
            for size in (12, 20)
        )
        own.load_state_dict({**anew.state_dict(), 'pos_embed': own.pos_embed})
        images = torch.randn(2, 3, 20, 20)
        torch.testing.assert_close(anew.eval()(images)[0], own.eval()(images)[0])
    table = Sincos2d().table((2, 3), 8, 1)
    resized = Sincos2d().resize(table, (2, 3), (4, 6), 1, 'bicubic')
    assert not torch.allclose(resized, Sincos2d(anew=True).resize(table, (2, 3), (4, 6), 1, 'bicubic'))
