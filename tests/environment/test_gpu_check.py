"""The GPU check on the CPU: what a run writes, that each kind of line can fail, and that no line stops the others."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import tiny
import torch
from test_core import links
from tiny import ROOT
from torch import nn

from benchmarks import bundle, gpu_check
from benchmarks.checks import FAIL, PASS, SECTIONS, Check, Found, Options, line_of, values

QUICK = Options('cpu', quick=True)


def fails(section, name: str) -> bool:
    """Whether the first line of a section whose name begins so is FAIL for its figures, not for an error."""
    check = next(check for check in section.checks(QUICK) if check.name.startswith(name))
    line = line_of(check)
    return line['status'] == FAIL and bool(line.get('values'))


@pytest.mark.release
def test_a_quick_run_passes_every_line_and_writes_a_page(tmp_path):
    command = (sys.executable, '-m', 'benchmarks.gpu_check', '--device', 'cpu', '--quick')
    options = ('--minutes', '60', '--limit', '900', '--out', tmp_path, '--only', *SECTIONS)
    printed = tiny.run(*command, *options, cwd=ROOT, **tiny.REAL)
    results = json.loads((tmp_path / 'results.json').read_text())
    lines = results['lines']
    assert {line['section'] for line in lines} == set(SECTIONS)
    assert [line for line in lines if line['status'] != PASS] == []
    assert results['finished'] and results['machine']['gpu'] is None and results['versions']['torch']
    assert all(line['seconds'] >= 0 and line['figure'] for line in lines)
    assert f'{len(lines)} PASS, 0 FAIL, 0 NOT RUN' in printed
    page = (tmp_path / 'results.md').read_text()
    rows = [row for row in page.splitlines() if row.startswith('| ') and not row.startswith(('| check', '| ---'))]
    assert len(rows) == len(lines)
    assert all(f'## {name}\n' in page for name in SECTIONS)


def test_every_backbone_kind_and_joining_has_a_line():
    """All that the registries have, so that a new one is covered by itself."""
    from mmlape.kinds import BACKBONES
    from mmlape.models.base.backbone import BaseBackbone
    from mmlape.models.position import kinds
    from mmlape.models.position.base import AbsolutePosition, AttentionPosition, LayerPosition

    names = [check.name for check in values.checks(Options('cpu'))]
    assert len(set(names)) == len(names)
    BACKBONES.import_from_location()
    own = [kind for kind in BACKBONES.module_dict.values() if kind.__module__.startswith('mmlape.')]
    for kind in own:
        if issubclass(kind, BaseBackbone):
            assert any(name.startswith(kind.__name__) for name in names), kind
    for base in (AbsolutePosition, AttentionPosition, LayerPosition):
        for kind in kinds(base):
            assert {f'VisionTransformer: {kind.name}', f'ViTAdapter: {kind.name}'} <= set(names)


class InHalf(torch.autograd.Function):
    """What is right, with a gradient of which the half is lost."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2


def wrong_on_device(change):
    """Copies for the device to which a change has been made, as a wrong kernel there is one; float64 is right."""
    right = values.on_device

    def on_device(model: nn.Module, device: str) -> nn.Module:
        model = right(model, device)
        change(model)
        return model

    return on_device


def scaled_norms(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 0.1


def halved_gradient(model: nn.Module) -> None:
    model.blocks[0].mlp.register_forward_hook(lambda module, args, out: InHalf.apply(out))


@pytest.mark.parametrize(('name', 'change'), [('VisionTransformer', scaled_norms), ('ViTAdapter', halved_gradient)])
def test_a_wrong_value_or_gradient_of_a_model_fails(name, change, monkeypatch):
    monkeypatch.setattr(values, 'on_device', wrong_on_device(change))
    monkeypatch.setattr(values, 'ONE', values.Images((1, 64, 64), ('fp32',)))
    monkeypatch.setattr(values, 'ODD', values.ONE)
    assert fails(values, name)


HANG = 3.0
"""Seconds after which a check hangs, here."""


def lines_of_a_section(hangs: bool = True) -> dict:
    """Checks of which the second crashes, the third hangs, the fourth leaves and the fifth uses up its memory."""
    return {
        'good': lambda: Found(True, '1'),
        'crash': lambda: os.kill(os.getpid(), signal.SIGKILL),
        'hang': lambda: time.sleep(600) if hangs else Found(True, '1'),
        'quiet': lambda: os._exit(0),
        'large': lambda: Found(True, '1', dict(table=['x' * 1000] * 1000)),
        'last': lambda: Found(True, '1'),
    }


def give(monkeypatch, **options) -> None:
    found = [Check(name, run) for name, run in lines_of_a_section(**options).items()]
    monkeypatch.setattr(gpu_check, 'checks', lambda section, options: list(found))


@pytest.fixture
def section(tmp_path, monkeypatch):
    """A section of such checks, three at once."""
    give(monkeypatch)
    monkeypatch.setattr(gpu_check, 'LIMIT', HANG)
    monkeypatch.setattr(gpu_check, 'AT_ONCE', dict(values=3))
    monkeypatch.setattr(gpu_check.os, 'sched_getaffinity', lambda process: range(4))
    return gpu_check.Section('values', Options('cpu', quick=True, scratch=str(tmp_path)), tmp_path, [])


def test_a_crash_and_a_hang_cost_one_line_each(section):
    lines = {line['name']: line for line in section.run(60, 60)}
    failed = {name for name, line in lines.items() if line['status'] == FAIL}
    assert (set(lines), failed) == (set(lines_of_a_section()), {'crash', 'hang', 'quiet'})
    assert 'ended with -9' in lines['crash']['figure'] and 'ended with 0' in lines['quiet']['figure']
    assert 'no result after 3 s' in lines['hang']['figure']
    assert section.left == [] and section.not_reached() == []


def check(out, *words: str) -> tuple[int, dict]:
    """Run the section `values`; returns the exit status and the results."""
    status = gpu_check.main(['--device', 'cpu', '--quick', '--only', 'values', '--out', str(out), *words])
    return status, json.loads((out / 'results.json').read_text())


def test_a_resume_repeats_what_has_not_passed(section, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check, 'LIMIT', 1.0)
    _, first = check(tmp_path)
    give(monkeypatch, hangs=False)
    _, second = check(tmp_path, '--resume')
    passed = [{line['name'] for line in results['lines'] if line['status'] == PASS} for results in (first, second)]
    assert passed == [{'good', 'large', 'last'}, {'good', 'large', 'last', 'hang'}]
    assert {line['name'] for line in second['lines']} == set(lines_of_a_section())
    assert second['lines'][:3] == [line for line in first['lines'] if line['status'] == PASS]


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    """A bundle, and a folder with torch, torchvision, timm, numpy and what they need alone."""
    folder, bare = tmp_path_factory.mktemp('bundle'), tmp_path_factory.mktemp('bare')
    bundle.bundle(folder)
    links(bare)
    return folder, bare


def bare_check(site: tuple, *words: str) -> dict:
    """Run the check where only torch, torchvision, timm and numpy are installed; returns its results."""
    folder, bare = site
    out = folder.parent / f'out-{len(words)}'
    variables = {'PATH': os.environ['PATH'], 'HOME': str(out), 'OMP_NUM_THREADS': '1'}
    code = 'import sys; from benchmarks import gpu_check; gpu_check.sys.executable = sys.argv.pop(1); '
    code += 'sys.exit(gpu_check.main(sys.argv[1:]))'
    python = bare / 'python'
    command = [python, '-c', code, python, '--device', 'cpu', '--quick', '--minutes', '60', '--out', out, *words]
    subprocess.run(
        list(map(str, command)), cwd=ROOT, env=variables, check=False, capture_output=True, timeout=tiny.GUARD
    )
    return json.loads((out / 'results.json').read_text())


@pytest.mark.release
def test_a_bundle_is_small_and_runs_where_torch_and_timm_are_alone(site):
    """Recipes are trained there."""
    folder, _ = site
    assert sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) < 64 * 2**20
    assert not any(path.suffix == '.pyc' for path in folder.rglob('*'))
    results = bare_check(site, '--site', str(folder), '--only', 'training')
    found = {line['name']: (line['status'], line['figure']) for line in results['lines']}
    assert found['Segmenter, bf16'][0] == PASS, found
    assert {'timm', 'onedl-mmcv'} <= results['versions'].keys(), 'those of the bundle, too'
