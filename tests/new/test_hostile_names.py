"""Names of classes, files and folders are data to `mmlape new` and to every command after it, whatever stands in them.

Each name would run code where its text was pasted into a config, or be replaced as MMEngine's variables are.
"""

import argparse
import json
from pathlib import Path

import drawn_data
import pytest
from mmengine.config import Config
from test_new import SHORT

from mmlape.cli import main
from mmlape.commands import fill_parser, parse_arguments
from mmlape.lab.inference.trained_graph import image_size

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
FORMS = {
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


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize(('folder', 'names'), [(''.join(NAMES), NAMES), (LINES, (LINES, 'b'))], ids=['code', 'lines'])
def test_names_are_data(form, folder, names, capsys, monkeypatch):
    """Those of classes, and that of the folder; with a new line in it they may be one line of refusal."""
    monkeypatch.setattr(drawn_data, 'NAMES', names)
    FORMS[form](Path(folder))
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
    FORMS[form](Path('data'))
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
