"""The demo's whole machinery on a few pictures: every process is real, the trainings have two steps each."""

import json
import sys

from tiny import MMLAPE, in_a_fork, run

from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.mini.make import MiniOptions
from mmlape.lab.experiments import demo as module


def test_an_arm_starts_from_the_last_checkpoint_of_another(tmp_path):
    for name in ('deit-mini', 'deit-mini-lape'):
        (folder := tmp_path / f'{name}_1xb32-5e_mini-digits' / 'seed_121').mkdir(parents=True)
        for step in (50, 200, 150):
            (folder / f'iter_{step}.pth').touch()
    arms = {name: arm for stage in module.stages(tmp_path, tmp_path / 'mini') for name, arm in stage.items()}
    for name in arms.keys() - {'DeiT, default PE', 'DeiT, LaPE'}:
        options = [option for option in arms[name].cfg_options if not option.startswith('data_root')]
        start = f'deit-mini{"" if "default" in name else "-lape"}_1xb32-5e_mini-digits/seed_121/iter_200.pth'
        cfg = load_config(arms[name].config, options)
        assert cfg.model.backbone.init_cfg.checkpoint == str(tmp_path / start)
    assert max(module.IMAGES) < MiniOptions().val


CALL = """
import sys
from mmlape.cli import main
from mmlape.lab.experiments import demo

demo.IMAGES = (0, 1, 2)
{change}
sys.exit(main(['demo', '--data', 'mini', '--work-dir', 'demo', '--shorten', '0.01']))
"""
"""The command on three images of validation; the last of the demo's own is the twenty-second."""
SOME = """
names = ('DeiT, LaPE', 'Segmenter, LaPE')
every, demo.DEIT = demo.stages, demo.DEIT_LAPE
some = lambda *folders: ({name: stage[name] for name in stage if name in names} for stage in every(*folders))
demo.stages = lambda *folders: filter(None, some(*folders))
"""
NO_REPORT = 'demo._predictions = lambda *_: sys.exit()'


@in_a_fork
def test_the_demo_writes_its_report_and_a_second_call_goes_on_from_it(tmp_path, python):
    made = ('--train', '8', '--val', '3', '--digits', '100', '--size', '96', '96', '--digit-size', '24', '32')
    run(*MMLAPE, 'make-mini-data', 'mini', *made, cwd=tmp_path)
    some = '' if python else SOME  # all steps and the second report, by the interpreter, are for a release
    printed = run(sys.executable, '-c', CALL.format(change=some), cwd=tmp_path)
    folder = tmp_path / 'demo' / 'report'
    report, page = (folder / 'report.md').read_text(), (folder / 'index.html').read_text()
    steps = ['Segmenter, LaPE']
    if not some:
        steps += ['Mask R-CNN ViT-Adapter, LaPE', 'UperNet ViT-Adapter, LaPE', 'Segmenter, default PE']
    for name in ('DeiT, LaPE', *steps):
        assert name in report and name in page and name in printed
    linked = [line.split('(')[-1].rstrip(')') for line in report.splitlines() if line.startswith('![')]
    assert sum(path.startswith('images/') for path in linked) == len(steps) * 3
    assert all((folder / path).stat().st_size > 1000 for path in linked)
    assert page.count('data:image/png') >= len(steps) * 3
    numbers = json.loads((folder / 'report.json').read_text())
    assert numbers['arms']['Segmenter, LaPE']['seeds'] == [121]
    summary = json.loads(next((tmp_path / 'demo').glob('segmenter*lape*/summary.json')).read_text())
    assert summary['seeds'] == [121]
    assert set(summary['last']['metrics']) >= {'mIoU'}
    assert 'init_weights' not in printed  # MMEngine's lines a parameter
    again = run(sys.executable, '-c', CALL.format(change=some and some + NO_REPORT), cwd=tmp_path, **python)
    assert 'skipped' in again and 'started' not in again
