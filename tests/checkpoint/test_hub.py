"""Pushing to and pulling from the Hugging Face hub, of which a server on this machine speaks what the client calls."""

import base64
import hashlib
import http.server
import json
import sys
import threading
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pytest
import torch
import yaml
from checkpoint_helpers import run_file
from huggingface_hub.utils import close_session
from model_helpers import vit

from mmlape.checkpoint import load_backbone, read_checkpoint
from mmlape.checkpoint.hub import CARD, CONFIG, WEIGHTS, push
from mmlape.checkpoint.loading import load_model
from mmlape.cli import main
from mmlape.errors import CheckpointError
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.optim import build_model
from mmlape.lab.engine.pulled import pull
from mmlape.weights.plain_config import write_plain

COMMIT = 40 * 'a'
OURS = 'someone/lape-tiny'


class Hub(http.server.BaseHTTPRequestHandler):
    """Repositories as dicts of files; large files come by LFS, the others inside the commit."""

    repositories: dict
    stored: dict  # contents by hash

    def log_message(self, *args):
        pass

    def answer(self, content, status=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {'Content-Length': len(body), **headers}.items():
            self.send_header(name.replace('_', '-'), str(value))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get('Content-Length') or 0))

    def do_PUT(self):
        self.stored[self.path.rpartition('/')[2]] = self.body()
        self.answer({})

    def do_POST(self):
        body = self.body()
        if self.path == '/api/validate-yaml':
            return self.answer(dict(errors=[], warnings=[]))
        if self.headers.get('Authorization') != 'Bearer hf_right':
            return self.answer(dict(error='Invalid username or password.'), 401)
        if self.path == '/api/repos/create':
            asked = json.loads(body)
            name = f'{asked["organization"]}/{asked["name"]}'
            if name in self.repositories:
                return self.answer(dict(error='You already created this model repo', url=name), 409)
            self.repositories[name] = dict(visibility=asked.get('visibility'))
            return self.answer(dict(url=f'https://huggingface.co/{name}'))
        if '/preupload/' in self.path:
            modes = [
                dict(path=one['path'], shouldIgnore=False, uploadMode='lfs' if one['path'] == WEIGHTS else 'regular')
                for one in json.loads(body)['files']
            ]
            return self.answer(dict(files=modes))
        if self.path.endswith('/info/lfs/objects/batch'):
            where = f'http://127.0.0.1:{self.server.server_port}/lfs'
            objects = [
                dict(one, actions=dict(upload=dict(href=f'{where}/{one["oid"]}')))
                for one in json.loads(body)['objects']
            ]
            return self.answer(dict(transfer='basic', objects=objects))
        assert '/commit/main' in self.path
        _, _, _, owner, name, *_ = self.path.split('/')
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry['value']
            if entry['key'] == 'file':
                self.repositories[f'{owner}/{name}'][value['path']] = base64.b64decode(value['content'])
            elif entry['key'] == 'lfsFile':
                self.repositories[f'{owner}/{name}'][value['path']] = self.stored[value['oid']]
        url = f'https://huggingface.co/{owner}/{name}/commit/{COMMIT}'
        return self.answer(dict(success=True, commitOid=COMMIT, commitUrl=url, hookOutput=''))

    def do_GET(self):
        _, owner, name, _, _, file = self.path.split('/')
        files = self.repositories.get(f'{owner}/{name}')
        if files is None or file not in files:
            return self.answer({}, 404, X_Error_Code='EntryNotFound' if files is not None else 'RepoNotFound')
        return self.answer(files[file], ETag=hashlib.sha256(files[file]).hexdigest(), X_Repo_Commit=COMMIT)

    do_HEAD = do_GET


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The repositories of a hub on this machine; a token for it, and an empty cache."""
    handler = type('Handler', (Hub,), dict(repositories={}, stored={}))
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as running:
        address, constants = f'http://127.0.0.1:{running.server_port}', huggingface_hub.constants
        monkeypatch.setattr(constants, 'ENDPOINT', address)
        monkeypatch.setattr(
            constants, 'HUGGINGFACE_CO_URL_TEMPLATE', address + '/{repo_id}/resolve/{revision}/{filename}'
        )
        monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'cache'))
        monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', False)
        monkeypatch.setattr(constants, 'HF_HUB_DISABLE_XET', True)  # whose client is compiled, with hosts of its own
        monkeypatch.setenv('HF_TOKEN', 'hf_right')
        for name in ('http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'):
            monkeypatch.delenv(name, raising=False)
        close_session()
        thread = threading.Thread(target=running.serve_forever, args=[0.01])
        thread.start()
        yield handler.repositories
        running.shutdown()
        thread.join()
        close_session()


NAME = 'segmenter_deit-mini-lape_1xb16-250i_mini-ade'


@pytest.fixture
def trained(tmp_path):
    """A checkpoint with config and records beside it, as a run leaves them."""
    folder = tmp_path / 'secret place' / 'run'
    folder.mkdir(parents=True)
    undefined = {'mDice': None, 'coco/bbox_mAP_l': -1.0}
    evaluations = [
        dict(step=step, metrics=dict(mIoU=value, aAcc=70.5, **undefined)) for step, value in ((2, 43.5), (3, 42.25))
    ]
    failure = dict(reason='node7: /secret/log says node7.local')
    run = dict(
        seed=121, host='node7', config=str(folder / 'x.py'), best=evaluations[0], last=evaluations[1], **failure
    )
    (folder / 'run.json').write_text(json.dumps(run))
    values = load_config(f'mmlape::segmenter/{NAME}').to_dict()
    values |= dict(data_root=f'{folder}/data', store='http://me:secret@host.example/x')
    values['model']['backbone']['drop_path_rate'] = 0.25
    (folder / f'{NAME}.py').write_text(write_plain(values))
    model = vit(pe_joining='lape')
    return model, run_file(folder / 'iter_3.pth', model)


def test_a_push_is_pulled_again(hub, trained, tmp_path, capsys):
    model, path = trained
    assert main(['checkpoint', 'push', path, OURS, '--private', '--yes']) == 0
    out = capsys.readouterr().out
    assert f'/{OURS}\n' in out and '\npushed to http://127.0.0.1:' in out
    files = hub[OURS]
    assert files.pop('visibility') == 'private' and sorted(files) == sorted((WEIGHTS, CONFIG, CARD))
    _, front, card = files[CARD].decode().split('---\n', 2)
    about = huggingface_hub.ModelCardData(**yaml.safe_load(front), ignore_metadata_errors=True)
    assert (about.library_name, about.pipeline_tag) == ('mmlape', 'image-segmentation')
    results = huggingface_hub.ModelCard(files[CARD].decode()).data.eval_results
    assert {(one.dataset_name, one.metric_type, one.metric_value) for one in results} == {
        ('mini-ade', 'mIoU', 42.25), ('mini-ade', 'aAcc', 70.5),
    }  # fmt: skip
    assert card.startswith('\n# lape-tiny\n') and hashlib.sha256(files[WEIGHTS]).hexdigest() in card
    assert '"seed": 121' in card and "data_root = 'data'" in card
    for secret in ('node7', 'secret', str(tmp_path)):
        assert not any(secret.encode() in content for content in files.values()), secret

    assert main(['checkpoint', 'pull', OURS, str(tmp_path / 'pulled')]) == 0
    assert f'mmlape test {tmp_path}/pulled/config.py {tmp_path}/pulled/{WEIGHTS}' in capsys.readouterr().out
    load_backbone(loaded := vit(pe_joining='lape'), str(tmp_path / 'pulled' / WEIGHTS))
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())
    own = load_config(f'mmlape::segmenter/{NAME}', {'model.backbone.drop_path_rate': 0.25})
    assert load_config(tmp_path / 'pulled' / CONFIG).to_dict() == own.to_dict()
    assert set(read_checkpoint(f'hf-hub:{OURS}')) >= set(model.state_dict())
    files[WEIGHTS] = b'not read'
    with pytest.raises(CheckpointError, match='there already; choose another folder or pass --overwrite'):
        pull(OURS, tmp_path / 'pulled')
    files[WEIGHTS] = (tmp_path / 'pulled' / WEIGHTS).read_bytes()
    del files[CONFIG]
    pull(OURS, tmp_path / 'pulled', overwrite=True)
    assert sorted(path.name for path in (tmp_path / 'pulled').iterdir()) == sorted((WEIGHTS, CARD)), 'no old config'


@pytest.mark.release
@pytest.mark.parametrize(
    ('config', 'data', 'options'),
    [
        (
            'deit/deit-mini_1xb32-5e_mini-digits',
            'digits',
            ['train_cfg.max_epochs=1', 'model.backbone.pe_type=axial-deeplab', 'model.backbone.num_registers=2'],
        ),
        (
            'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco',
            'coco',
            [
                'train_cfg.max_iters=2',
                'param_scheduler.1.begin=1',
                'model.backbone.init_cfg=None',
                'model.test_cfg.rcnn.max_per_img=9',
            ],
        ),
    ],
    ids=['classifier', 'detector'],
)
def test_a_run_is_pushed_pulled_and_tested(hub, pristine, tmp_path, monkeypatch, config, data, options):
    """A run of a config of ours, with arguments of its own: the pulled files give the metrics of the run's."""
    monkeypatch.chdir(tmp_path)
    moved = ['--cfg-options', f'data_root={pristine / data}']
    assert main(['train', f'mmlape::{config}', '--work-dir', 'run', *moved, *options]) == 0
    file = next(iter(sorted(Path('run').glob('*_[12].pth'))))
    own = f'run/{Path(config).name}.py'
    assert main(['checkpoint', 'push', str(file), OURS, '--yes']) == 0
    assert main(['checkpoint', 'pull', OURS, 'pulled']) == 0
    assert main(['test', own, str(file), '--out', 'own.json']) == 0
    assert main(['test', f'pulled/{CONFIG}', f'pulled/{WEIGHTS}', '--out', 'pulled.json', *moved]) == 0
    results = [json.loads(Path(name).read_text()) for name in ('own.json', 'pulled.json')]
    assert results[0]['metrics'] == results[1]['metrics'] and results[0]['per_class'] == results[1]['per_class']


@pytest.mark.release
def test_an_average_of_a_model_with_a_pe_that_is_no_square_is_pushed_pulled_converted_and_tested(
    hub, pristine, tmp_path, monkeypatch
):
    """Both weights of one file: the average gives the run's metrics, the plain ones are those beside it."""
    monkeypatch.chdir(tmp_path)
    moved = ['--cfg-options', f'data_root={pristine / "ade"}']
    options = ['train_cfg.max_iters=2', 'param_scheduler.1.begin=1', 'param_scheduler.0.end=1']
    options += ['model.backbone.init_cfg=None', 'model.backbone.window_attn=False', 'model.backbone.img_size=(64,32)']
    options += ['model.backbone.interpolate_mode=bilinear', 'optim_wrapper.optimizer.lr=0.1']
    options += ["custom_hooks=[dict(type='EMAHook',momentum=0.5)]"]
    assert main(['train', f'mmlape::segmenter/{NAME}', '--work-dir', 'run', *moved, *options]) == 0
    content, results = read_checkpoint('run/iter_2.pth'), {}
    expected = dict(
        ema=content['state_dict'],
        plain={name.removeprefix('module.'): value for name, value in content['ema_state_dict'].items()},
    )
    assert main(['test', f'run/{NAME}.py', 'run/iter_2.pth', '--out', 'own.json']) == 0
    for weights in ('ema', 'plain'):
        assert main(['checkpoint', 'push', 'run/iter_2.pth', f'{OURS}-{weights}', '--weights', weights, '--yes']) == 0
        assert main(['checkpoint', 'pull', f'{OURS}-{weights}', weights]) == 0
        file = f'{weights}/{WEIGHTS}'
        tensors = read_checkpoint(file)
        assert all(torch.equal(tensors[name], value) for name, value in expected['ema'].items()) == (weights == 'ema')
        assert all(torch.equal(value, expected[weights][name]) for name, value in tensors.items() if name != 'meta')
        assert tensors['backbone.pos_embed'].shape == (1, 8, 128)
        assert main(['test', f'{weights}/{CONFIG}', file, '--out', f'{weights}.json', *moved]) == 0
        results[weights] = json.loads(Path(f'{weights}.json').read_text())
        assert main(['checkpoint', 'convert', file, f'{weights}.pth', '--to', 'mmlape']) == 0
        backbone = build_model(load_config(f'{weights}/{CONFIG}')).backbone
        load_backbone(backbone, f'{weights}.pth')
        for name, value in backbone.state_dict().items():
            assert torch.equal(value, expected[weights][f'backbone.{name}']), name
    own = json.loads(Path('own.json').read_text())
    assert (results['ema']['metrics'], results['ema']['per_class']) == (own['metrics'], own['per_class'])
    assert results['plain']['metrics'] != own['metrics']


def test_a_run_of_an_arm_is_pulled_with_its_data(hub, tmp_path):
    """The arm of a study is found by the name of its config; a strange name of weights stays one."""
    for arm, changed in (('rope-mixed', {}), ('irpe-product-k', {'model.backbone.drop_path_rate': 0.3})):
        cfg = load_config(f'mmlape::studies/fashion-mnist-position.yml:{arm}', changed)
        folder = tmp_path / arm
        folder.mkdir()
        cfg.dump(folder / f'{Path(cfg.filename).stem}.py')
        model = build_model(cfg)
        push(run_file(folder / 'epoch_1.pth', model), f'someone/{arm}')
        pull(f'someone/{arm}', tmp_path / f'{arm} pulled')
        pulled = load_config(tmp_path / f'{arm} pulled' / CONFIG)
        assert pulled.to_dict() == cfg.to_dict()
        load_model(loaded := build_model(pulled), str(tmp_path / f'{arm} pulled' / WEIGHTS))
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())


def test_a_push_shows_what_it_sends_and_asks(hub, trained, monkeypatch, capsys):
    """Without a terminal it needs --yes; what it prints is what is sent."""
    command = ['checkpoint', 'push', trained[1], OURS]
    assert main(command) == 1
    out, err = capsys.readouterr()
    assert 'nothing was sent, as nobody can be asked here; check it and pass --yes' in err and not hub
    assert 'drop_path_rate=0.25' in out and '"seed": 121' in out and 'config.py.store' in out and WEIGHTS in out
    monkeypatch.setattr(sys.stdin, 'isatty', lambda: True, raising=False)
    asked = []
    for answer, status in (('', 1), ('n', 1), ('no', 1), ('yes please', 1), ('Y', 0)):
        monkeypatch.setattr('builtins.input', lambda prompt, answer=answer: asked.append(prompt) or answer)
        assert main(command) == status
        out, err = capsys.readouterr()
        assert bool(hub) == (status == 0) and ('nothing was sent' in err) == (status == 1)
    assert len(asked) == 5 and '[y/N]' in asked[0]
    assert hub[OURS][CARD].decode() in out and 'note: ' not in out
    config = next(Path(trained[1]).parent.glob('*.py'))
    config.write_text(config.read_text() + "model = dict(type='MyOwn')\n")
    assert main([*command, '--yes', '--overwrite']) == 0
    assert 'note: `mmlape checkpoint pull` will say of it: ' in capsys.readouterr().out
    redacted = []
    push(trained[1], 'someone/other', confirm=lambda folder, places: redacted.extend(places) or True)
    assert {'run.json.host', 'run.json.reason', 'config.py.store', 'config.py.data_root'} <= {*redacted}


def test_a_repository_that_is_there_is_not_changed_unasked(hub, trained):
    hub[OURS] = dict(notes=b'kept')
    with pytest.raises(CheckpointError, match=f'{OURS} is there already; choose another name, or pass --overwrite'):
        push(trained[1], OURS)
    assert hub[OURS] == dict(notes=b'kept')
    push(trained[1], OURS, overwrite=True)
    assert hub[OURS]['notes'] == b'kept' and WEIGHTS in hub[OURS]


def test_tokens(hub, trained, monkeypatch):
    monkeypatch.setenv('HF_TOKEN', 'hf_wrong')
    with pytest.raises(CheckpointError, match='someone/lape-tiny: .*401'):
        push(trained[1], OURS)
    monkeypatch.setattr(huggingface_hub, 'get_token', lambda: None)
    with pytest.raises(CheckpointError, match='needs a token .*: run `hf auth login`, or set HF_TOKEN'):
        push(trained[1], OURS)
    assert not hub


def test_what_records_nothing_is_neither_pushed_nor_pulled(hub, tmp_path):
    from safetensors.torch import save, save_file

    save_file(vit().state_dict(), tmp_path / 'a.safetensors')
    with pytest.raises(CheckpointError, match=r'a\.safetensors: records nothing .*--to mmlape'):
        push(tmp_path / 'a.safetensors', OURS)
    with pytest.raises(CheckpointError, match='404'):
        pull(OURS, tmp_path / 'pulled')
    hub[OURS] = {'pytorch_model.bin': b''}
    with pytest.raises(CheckpointError, match=f'is not there; .*hf-hub:{OURS} takes weights of others'):
        pull(OURS, tmp_path / 'pulled')
    hub[OURS] = {WEIGHTS: save(vit().state_dict())}
    with pytest.raises(CheckpointError, match='records nothing of its model; .*hf-hub:'):
        pull(OURS, tmp_path / 'pulled')
    assert not (tmp_path / 'pulled').exists()


def test_names_of_weights_are_tried_in_turn(hub, tmp_path):
    torch.save(vit().state_dict(), tmp_path / 'a.bin')
    hub[OURS] = {'pytorch_model.bin': (tmp_path / 'a.bin').read_bytes()}
    assert set(read_checkpoint(f'hf-hub:{OURS}')) == set(vit().state_dict())


@pytest.mark.parametrize('writer', ['EMAHook', 'timm'])
@pytest.mark.parametrize('weights', ['plain', 'ema'])
def test_the_weights_that_are_asked_for_are_pushed(hub, tmp_path, writer, weights):
    """MMEngine's hook saves the average as the model's weights, and the plain ones beside it; timm does not.

    Two layers have one FFN, whose tensors have two names.
    """
    plain, mean = vit(pe_joining='lape'), vit(pe_joining='lape')
    for model in (plain, mean):
        model.blocks[1].mlp = model.blocks[0].mlp
    wrapped = {f'module.{name}': value for name, value in plain.state_dict().items()}
    model, more = (mean, dict(ema_state_dict=wrapped)) if writer == 'EMAHook' else (plain, {})
    more = more or dict(state_dict_ema=mean.state_dict())
    path = run_file(tmp_path / 'iter_3.pth', model, **more)
    assert main(['checkpoint', 'push', path, OURS, '--weights', weights, '--yes']) == 0
    (tmp_path / WEIGHTS).write_bytes(hub[OURS][WEIGHTS])
    pushed, expected = read_checkpoint(tmp_path / WEIGHTS), (plain if weights == 'plain' else mean).state_dict()
    assert all(torch.equal(pushed[name], value) for name, value in expected.items())
    assert f'- weights: {weights}\n' in hub[OURS][CARD].decode()
