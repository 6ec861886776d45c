"""The code of a run's identity: what it has imported, and no comment, docstring or other formatting of it."""

import ast
import importlib
import io
import json
import sys
import tokenize
from pathlib import Path

import pytest
import tiny
from each import each

from mmlape.cli import main
from mmlape.errors import TrainingError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.experiments.planning import Arm, Study
from mmlape.lab.runs.code import GONE, code_differences, fingerprint, imported, source_hash, used_by
from mmlape.lab.runs.identity import planned_beside
from mmlape.lab.runs.schema import Code, Identity, read_record
from mmlape.lab.training.trainer import train

PACKAGE = tiny.ROOT / 'mmlape'


def without_comments(source):
    """By the tokens, which are another view of a source than the tree that is hashed."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return tokenize.untokenize(token for token in tokens if token.type != tokenize.COMMENT)


def without_docstrings(source):
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body[0].value.value = 'Another text.'
    return ast.unparse(tree)  # whose formatting is another one, too


def test_comments_docstrings_and_formatting_do_not_count():
    for file in each(sorted((PACKAGE / 'models').rglob('*.py'))):
        source = file.read_text()
        known = fingerprint(source.encode())
        assert fingerprint(without_comments(source).encode()) == known
        assert fingerprint(without_docstrings(source).encode()) == known


def test_every_name_and_operator_counts():
    """Of each module of the models, one name, one operator and one comparison, each replaced in its tree."""
    for file in each(sorted((PACKAGE / 'models').rglob('*.py'))):
        source = file.read_text()
        known = fingerprint(source.encode())
        for kind, change in (
            (ast.Name, lambda node: setattr(node, 'id', f'{node.id}_')),
            (ast.BinOp, lambda node: setattr(node, 'op', ast.MatMult())),
            (
                ast.Compare,
                lambda node: node.ops.__setitem__(0, ast.Is() if isinstance(node.ops[0], ast.Eq) else ast.Eq()),
            ),
        ):
            tree = ast.parse(without_docstrings(source))
            nodes = [node for node in ast.walk(tree) if isinstance(node, kind)]
            if nodes:
                change(nodes[-1])
                assert fingerprint(ast.unparse(tree).encode()) != known, kind


def test_only_what_both_have_imported_is_compared():
    mine = Code(version='1', commit='a' * 40, modules=dict(vit='1', beit='2'))
    for other, expected in (
        (Code(version='1', modules=dict(vit='1', beit='2')), []),
        (Code(version='1', commit='b' * 40, modules=dict(vit='1', swin='3')), []),
        (Code(version='1', modules=dict(vit='9', beit='2')), ['code: vit changed']),
        (Code(version='1', commit='b' * 40, modules=dict(vit='9', beit='8')),
         ['code: vit; beit changed (commit aaaaaaaaa -> bbbbbbbbb)']),
        (Code(version='2', modules={}), ['code: mmlape 1 -> 2']),
        (Code(version='1', source='old'), []),
    ):  # fmt: skip
        assert code_differences(mine, other) == expected
    older = Code(version='1', source='old')
    assert code_differences(older, mine) == [], 'a run that began before modules were named resumes'
    assert code_differences(older, Code(version='1', source='other')) == ['code: mmlape other modules']
    recorded = Identity(code=Code(modules={'mmlape.nothing': '1', 'mmlape.errors': '2'}))
    gone = planned_beside(Identity(), recorded).code
    assert gone.modules == {'mmlape.nothing': GONE, 'mmlape.errors': source_hash('mmlape.errors')}


OWN = """
import torch
from mmengine.registry import HOOKS
from mmengine.hooks import Hook

@HOOKS.register_module(force=True)
class Scaled(Hook):
    '''Scales a weight.'''

    def before_train(self, runner):
        next(runner.model.parameters()).data.mul_(0.5)  # by a half
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's module, and a config that imports it."""
    module = tmp_path / 'own_formula.py'
    module.write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, 'own_formula', raising=False)
    extra = "custom_imports = dict(imports=['own_formula'])\ncustom_hooks = [dict(type='Scaled')]\n"
    return module, tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data'), extra)


def interrupted(run):
    """A run without its last checkpoint, as a kill leaves it."""
    (run / 'iter_6.pth').unlink()
    content = tiny.record(run)
    (run / 'run.json').write_text(json.dumps(dict(content, state='failed')))


def test_a_run_and_a_study_go_on_after_a_comment_and_not_after_a_formula(own, tmp_path):
    module, config = own
    cfg, run = load_config(config), tmp_path / 'work' / 'arm' / 'seed_1'
    modules = train(cfg, run, seed=1).identity.code.modules
    expected = {
        'mmlape.models.vit.model',
        'mmlape.models.position.joining',
        'mmlape.lab.training.seeding',
        'own_formula',
    }
    assert expected <= {*modules}
    unused = ('mmlape.projects.', 'mmlape.lab.experiments', 'mmlape.lab.analysis', 'mmlape.commands', 'mmdet')
    in_this_process = {name for name in sys.modules if name.startswith('mmlape.projects.')}
    assert not {name for name in modules if name.startswith(unused)} - in_this_process
    assert {**modules, **imported(cfg)} == imported(cfg), 'what it had imported by then'

    study = Study([Arm('arm', str(config))], (1,), tmp_path / 'work')
    for text, action in (
        (OWN.replace('# by a half', '# halved').replace("'''Scales a weight.'''", '"""Another text."""'), 'resume'),
        (OWN.replace('0.5', '0.25'), 'refuse'),
    ):
        interrupted(run)
        module.write_text(text)
        source_hash.cache_clear()
        (planned,) = study.plan()
        assert planned.action == action
        if action == 'refuse':
            assert 'code: own_formula changed' in planned.reason
            with pytest.raises(TrainingError, match='code: own_formula changed.*--allow-different-software'):
                train(cfg, run, resume=True)
        else:
            assert train(cfg, run, resume=True).state == 'finished'
    module.write_text(OWN)
    source_hash.cache_clear()
    content = json.loads((run / 'run.json').read_text())
    content['identity']['code'] = dict(version=content['mmlape'], source='f' * 64, commit='c' * 40)
    (run / 'run.json').write_text(json.dumps(content))
    assert study.plan()[0].action == 'resume', 'a run of an earlier version'


def test_the_code_of_an_object_is_what_its_class_imports(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / 'used').mkdir()
    sources = {
        'used/help': 'A = 1\n', 'used/__init__': 'from . import help\n', 'used_not': 'A = 1\n',
        'used_flip': 'import used, torch\nclass Flip: pass\n',
    }  # fmt: skip
    for name, source in sources.items():
        (tmp_path / f'{name}.py').write_text(source)
    for name in ('used_not', 'used_flip'):
        importlib.import_module(name)
    flip = sys.modules['used_flip'].Flip()
    before = used_by([flip])
    assert before.keys() == {'used_flip', 'used', 'used.help', 'torch'}
    for name, is_same in (('used_not', True), ('used/help', False)):
        (tmp_path / f'{name}.py').write_text('A = 2\n')
        source_hash.cache_clear()
        assert (used_by([flip]) == before) == is_same


def test_a_run_records_its_study_and_arm(tmp_path):
    config = tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data'), 'train_cfg.update(max_iters=1)\n')
    (tmp_path / 'grid.yml').write_text(f'title: Two\nbase: {config}\narms:\n  plain: {{title: As it is}}\n')
    arm = f'{tmp_path / "grid.yml"}:plain'
    assert main(['train', arm, '--work-dir', str(tmp_path / 'other' / 'seed_1'), '--arm', 'first', '--seed', '1']) == 0
    record = read_record(tmp_path / 'other' / 'seed_1')
    assert (record.study, record.arm) == (arm, 'first')
    assert Path(record.config).name == 'grid-plain.py'
