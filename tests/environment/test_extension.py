"""A package of its own that offers an extension, the one of the docs: its answers arrive where they are asked for."""

import doc_blocks
import pytest
import tiny

HOOKS = """
from mmengine.hooks import Hook
from mmlape.registry import HOOKS

__all__ = ['AcmeHook']


@HOOKS.register_module()
class AcmeHook(Hook):
    changes_results = False

    def __init__(self, interval):
        self.interval = interval
"""
COMMAND = '''
"""Count."""


def add_arguments(parser):
    parser.add_argument('--by', type=int, default=1)


def run(args):
    print('counted', args.by)
    return 0
'''
ASKED = """
import argparse

import torch
from mmengine.registry import HOOKS
from torch import nn

from mmlape.lab.model_weights import position_parameters, recorded_of
from mmlape.lab.config.command_options import add_train_options, logging_hooks
from mmlape.lab.evaluation.metric_names import KEYS, label
from mmlape.lab.extension import extensions
from mmlape.lab.runs.identity import paper_model
from mmlape.lab.runs.identity import known_provenance
from mmlape.lab.runs.schema import Identity

model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
model[1].register_parameter('acme_table', nn.Parameter(torch.zeros(2)))
print([type(one).__name__ for one in extensions()], extensions()[0].counted)
print(recorded_of(model), position_parameters(model))
print(known_provenance('acme-b.pth', None).source, known_provenance('other.pth', None))
for backbone in (dict(type='AcmeNet', size='L', how='Folded'), dict(type='ResNet', depth=50)):
    settings = {'model': {'type': 'Classifier', 'backbone': backbone}}
    print(paper_model('a config', Identity(settings=settings)))
parser = argparse.ArgumentParser()
add_train_options(parser)
(hook,) = logging_hooks(parser.parse_args(['a.py', '--log-folds', '7']))
built = HOOKS.build(hook)
print(type(built).__module__, built.interval, KEYS['fold error'], label('acme/folds'))
"""


def offer(folder, name, value):
    """Write what installing a package leaves: the metadata with its entry points."""
    info = folder / f'{name}-1.0.dist-info'
    info.mkdir(parents=True)
    (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n')
    (info / 'entry_points.txt').write_text(f'[mmlape.extensions]\n{name} = {value}\n')


@pytest.mark.release
def test_the_answers_of_a_package_arrive(tmp_path):
    page = doc_blocks.ROOT / 'docs' / 'reference' / 'extending.md'
    [text] = [block.code for block in doc_blocks.blocks(page) if block.code.startswith('# acme.py')]
    for name, code in {'acme': text, 'acme_hooks': HOOKS, 'acme_command': COMMAND, 'asked': ASKED}.items():
        (tmp_path / f'{name}.py').write_text(code)
    offer(tmp_path, 'acme', 'acme:EXTENSION')
    offer(tmp_path, 'broken', 'no_such_module:EXTENSION')
    path = ':'.join(map(str, (tmp_path, tiny.ROOT)))
    printed = tiny.run('asked.py', cwd=tmp_path, **tiny.REAL, PYTHONPATH=path)
    for line in (
        'extension broken (no_such_module:EXTENSION): ModuleNotFoundError',
        "['Acme', 'Papers'] ('acme',)",
        "'acme': {'parts': 2}",
        "{'1.acme_table'}",
        "Acme's published weights None",
        "PaperModel(name='Acme-L', pretrained='–', method='Folded', plain=False)",
        "PaperModel(name='a config', pretrained='none', method='–', plain=False)",
        'acme_hooks 7 acme/folds fold error',
    ):
        assert line in printed, printed
    assert "'mmlape': {" in printed  # ours answers beside it
    command = (*tiny.MMLAPE, 'acme-count', '--by', '3')
    assert 'counted 3' in tiny.run(*command, cwd=tmp_path, **tiny.REAL, PYTHONPATH=path)
    assert 'count what Acme counts' in tiny.run(*tiny.MMLAPE, '--help', cwd=tmp_path, **tiny.REAL, PYTHONPATH=path)
