"""Arms that start from different pretrainings: the plan of `multi_seed` and the report say so."""

import argparse

import pytest
import tiny
import torch

import mmlape.extension as module
from mmlape.extension import DEIT
from mmlape.files import sha256
from mmlape.lab.experiments.launchers import LocalLauncher
from mmlape.lab.experiments.multi_seed import run_study
from mmlape.lab.experiments.planning import Arm, Study
from mmlape.lab.runs.identity import provenance
from mmlape.models import VisionTransformer

NAME = 'deit_tiny_patch16_224-a1311bcf.pth'


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Weights of known provenance; the first stands for DeiT's, whose hash it gets."""
    weights = {
        joining: VisionTransformer(
            dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64), 32, 8, pe_joining=joining
        ).state_dict()
        for joining in ('default', 'lape')
    }
    contents = {
        'deit': {'model': weights['default']},
        'ours': {'meta': {'mmengine_version': '0.10'}, 'state_dict': weights['default']},
        'ours_lape': {'meta': {'mmengine_version': '0.10'}, 'state_dict': weights['lape']},
        'theirs_lape': {'model': weights['lape'], 'args': argparse.Namespace(lr=1e-3)},
        'bare_lape': weights['lape'],
    }
    found = {}
    for name, content in contents.items():
        found[name] = str(tmp_path / f'{name}.pth')
        torch.save(content, found[name])
    monkeypatch.setattr(module, '_PUBLISHED', (sha256(found['deit'])[:8],))
    return found


def test_published_files_are_known_by_their_hash_and_by_their_name_only_if_they_are_not_here(tmp_path):
    assert module.EXTENSION.provenance('renamed.pth', 'a1311bcf' + 56 * '0').source == DEIT
    assert module.EXTENSION.provenance(NAME, 64 * '0') is None
    assert provenance(f'pretrained/{NAME}').source == DEIT and provenance('pretrained/deit_tiny_lape.pth') is None
    torch.save({'x': torch.zeros(1)}, tmp_path / NAME)
    assert provenance(tmp_path / NAME) is None
    (tmp_path / 'damaged.pth').write_bytes(b'no checkpoint')
    assert provenance(tmp_path / 'damaged.pth') is None


@pytest.mark.parametrize(
    ('default', 'lape', 'said'),
    [
        ('deit', 'ours_lape', ("DeiT's published weights", 'a run of mmlape or MMEngine')),
        ('deit', 'bare_lape', ("DeiT's published weights",)),
        ('ours', 'theirs_lape', ('a run of mmlape or MMEngine', "a run of DeiT's or LaPE's code")),
        ('ours', None, ('lape from no weights',)),
        ('ours', 'ours_lape', None),
        ('ours', 'bare_lape', None),
        (None, None, None),
    ],
)
def test_the_plan_warns_of_weights_of_different_origin(files, tmp_path, capsys, default, lape, said):
    config = str(tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data')))
    arms = []
    for name, chosen in (('default', default), ('lape', lape)):
        start = {'type': 'Pretrained', 'checkpoint': files[chosen]} if chosen else None
        arms.append(Arm(name, config, (f'model.backbone.pe_joining={name}', f'model.backbone.init_cfg={start}')))
    study = Study(arms, [1], tmp_path / 'work')
    assert run_study(study, LocalLauncher(), dry_run=True) == 0
    printed = ' '.join(capsys.readouterr().out.split())
    assert ('warning: the arms start from different pretrainings' in printed) == bool(said)
    for text in said or ():
        assert text in printed and 'no LaPE weights are public: pretrain every arm by configs/deit' in printed
