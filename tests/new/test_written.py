"""What is written: variables that are the one place of what they say, and names that are data to every command.

What `mmlape new` writes for another value is the oracle. Each name would run code where its text was pasted into a
config, or be replaced as MMEngine's variables are.
"""

import argparse
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import drawn_data
import numpy as np
import pytest
from drawn_data import class_folders, label_map, maps, photo, roboflow
from hypothesis import given
from hypothesis import strategies as st
from mmengine.config import Config
from properties import examples
from test_large import photograph
from test_new import SHORT

from mmlape.cli import main
from mmlape.commands import fill_parser, parse_arguments
from mmlape.errors import ConfigError
from mmlape.lab.inference.tiling import Tiling
from mmlape.lab.inference.trained_graph import image_size
from mmlape.new import choices, command, label_maps


def large_maps(root: Path) -> None:
    photo(root / 'images/a.jpg', (300, 240))
    label_map(root / 'labels/a.png', np.repeat(np.arange(240)[:, None] // 5 % 3, 300, axis=1))


FORMS = {
    'boxes over a ViT of timm': (roboflow, 'timm/test_vit'),
    'boxes by Plain-DETR': (roboflow, 'timm/test_vit', '--head', 'plain-detr'),
    'outlines': (lambda root: roboflow(root, True), 'mini'),
    'tiles': (lambda root: photograph(root, 30, True, (300, 330)), 'mini'),
    'label maps': (maps, 'mini'),
    'label maps, a linear head': (maps, 'timm/test_vit'),
    'label maps, an adapter': (maps, 'timm/test_vit', '--head', 'adapter'),
    'tiles of label maps': (large_maps, 'mini'),
    'class folders': (class_folders, 'mini'),
    'class folders, a linear head': (class_folders, 'timm/test_vit'),
}


def written(out: str, side: int, iterations: int, model: str, *options: str) -> Config:
    """Write a config for a side, with a batch that does not depend on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, 'choose_side', lambda *args: side)
        patch.setitem(choices.__dict__, 'PIXELS', dict.fromkeys(choices.PIXELS, 1))
        assert main(['new', 'data', '--out', out, '--model', model, '--iters', str(iterations), *options]) == 0
    return Config.fromfile(out)


def changed(out: str, **values: object) -> Config:
    """Change variables at the top of a config."""
    text = Path(out).read_text()
    for name, value in values.items():
        text, count = re.subn(rf'^{name} = [^\n(]*(\([^)]*\))?$', f'{name} = {value!r}', text, flags=re.M)
        assert count == 1
    Path(f'changed_{out}').write_text(text)
    return Config.fromfile(f'changed_{out}')


def of_side(cfg: Config) -> dict:
    """Return what is to follow the side: models and data, but for how many objects a tile has, and names of files."""
    text = cfg.pretty_text.replace('b_data', 'a_data')
    return {key: value for key, value in Config.fromstring(text, '.py').to_dict().items() if key != 'auto_scale_lr'}


@pytest.mark.parametrize('form', FORMS)
def test_each_variable_changes_what_a_config_written_for_it_has(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(label_maps, 'LARGE', 200)
    make, *options = FORMS[form]
    make(Path('data'))
    written('a.py', 96, 60, *options)
    other = written('b.py', 64, 40, *options)
    found = changed('a.py', img_size=64, max_iters=40, val_interval=other.val_interval)
    assert of_side(found) == of_side(other)
    model = str(changed('a.py', classes=('a', 'b', 'c', 'd', 'e')).model)
    assert set(re.findall(r"'num_classes': (\d+)", model)) == {'5'}


@examples()
@given(
    seconds=st.floats(60, 1e5), iteration=st.floats(1e-3, 1), validation=st.floats(0, 1e3), sizes=st.integers(1, 3000)
)
def test_validations_cost_no_more_than_training(seconds, iteration, validation, sizes):
    """By the pixels, or where a trial has measured it by the time, but for the one at the end."""
    found = SimpleNamespace(
        task='boxes', images=lambda: dict(train=2, val=2), sizes=lambda split='train': [(sizes + 300, sizes + 400)]
    )
    for tiling in (None, Tiling(256, 30)):
        chosen = choices.choose_recipe(found, 256, tiling, True, iterations=20)
        tiles = len(tiling.windows(sizes + 400, sizes + 300)) if tiling else (sizes + 400) / (sizes + 300)
        trained = chosen.batch * chosen.iterations
        count = math.ceil(chosen.iterations / chosen.interval)
        assert count == 1 or (count <= 10 and count * 2 * tiles <= trained)
    facts = dict(seconds_per_iter=iteration, seconds_per_validation=validation)
    try:
        fitted = choices.fit_time(chosen, seconds, facts)
    except ConfigError:
        assert seconds - 10 * validation < 51 * iteration or validation > seconds / 20
        return
    assert fitted.validations == 1 or fitted.validations * validation <= seconds / 2
    assert fitted.iterations * iteration + fitted.validations * validation <= seconds


RUNS = "__import__('os').mkdir('canary')"
NAMES = (
    '{{x}}',
    "{{$X:x|',__import__('os').mkdir('canary'),#" + 'p' * 60 + '}}',
    "'''+" + RUNS + "+'''",
    '"""+' + RUNS + '+"""',
    '{{ fileBasename }}{{_base_.model}}{{{$HOME:a}}}',
    '\\',
    '$PATH [red]%s{}',
)
LINES = '"""\n' + RUNS + '\n"""'
HOSTILE_FORMS = {
    'label maps': lambda root: drawn_data.maps(root, numbers=range(14)),
    'COCO': drawn_data.roboflow,
    'YOLO': drawn_data.yolo,
    'Pascal VOC': drawn_data.voc,
    'LabelMe': drawn_data.labelme,
    'class folders': drawn_data.class_folders,
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('X', RUNS)
    yield
    assert not Path('canary').exists()


@pytest.mark.parametrize('form', HOSTILE_FORMS)
@pytest.mark.parametrize(('folder', 'names'), [(''.join(NAMES), NAMES), (LINES, (LINES, 'b'))], ids=['code', 'lines'])
def test_names_are_data(form, folder, names, capsys, monkeypatch):
    """Those of classes, and that of the folder; with a new line in it they may be one line of refusal."""
    monkeypatch.setattr(drawn_data, 'NAMES', names)
    HOSTILE_FORMS[form](Path(folder))
    options = ['--classes', *names] * (form == 'label maps')
    status = main(['new', folder, '--model', 'mini', '--iters', '20', '--out', 'config.py', *options])
    if status and names != NAMES:
        assert capsys.readouterr().err.count('error:') == 1
    else:
        assert set(Config.fromfile('config.py').classes) == set(names)


@pytest.mark.parametrize('form', ['label maps', 'class folders', pytest.param('COCO', marks=pytest.mark.release)])
def test_a_run_of_such_classes_trains_tests_and_predicts(form, capsys, monkeypatch):
    """Two steps and a validation, by the schedule that was asked for; each command that was printed is complete."""
    names = NAMES[:3]
    monkeypatch.setattr(drawn_data, 'NAMES', names)
    HOSTILE_FORMS[form](Path('data'))
    options = ['--iters', '30', '--patience', '2', *['--classes', *names] * (form == 'label maps')]
    assert main(['new', 'data', '--model', 'mini', '--out', 'config.py', *options]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith('  mmlape ')]
    assert [words[1] for words in printed] == ['train', 'test', 'predict', 'export-onnx']
    for words in printed:
        parse_arguments(fill_parser(argparse.ArgumentParser(), words[1]), words[2:])
    cfg = Config.fromfile('config.py')
    assert (cfg.train_cfg.max_iters, cfg.train_cfg.val_interval) == (30, 3)
    assert set(image_size(cfg)) == {cfg.img_size}  # of `export-onnx`, without --size
    assert main(['train', 'config.py', '--work-dir', 'run', *SHORT, 'train_dataloader.batch_size=2']) == 0
    record = json.loads(Path('run/run.json').read_text())
    assert record['state'] == 'finished' and record['last']['metrics']
    assert main(['test', 'run']) == 0
    folder = {'label maps': 'data/images', 'COCO': 'data/train'}.get(form, 'data')
    assert main(['predict', 'run', folder, '--out', 'out']) == 0  # the config passes the gate
    assert any(Path('out/overlays').rglob('*.*'))
    assert main(['print-params', 'run']) == 0
    capsys.readouterr()
    assert main(['print-config', 'run']) == 0
    Path('printed.py').write_text(capsys.readouterr().out)
    for file in ('run/config.py', 'printed.py'):
        assert set(Config.fromfile(file).classes) == set(names)
