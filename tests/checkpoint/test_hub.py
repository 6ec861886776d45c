"""Pushing to and pulling from the Hugging Face hub, of which a server on this machine speaks what the client calls."""

import base64
import hashlib
import http.server
import json
import threading

import huggingface_hub
import huggingface_hub.constants
import pytest
import torch
import yaml
from checkpoint_helpers import run_file
from huggingface_hub.utils import close_session
from model_helpers import vit

from mmlape.checkpoint import load_backbone, read_checkpoint
from mmlape.checkpoint.hub import CARD, CONFIG, WEIGHTS, check_plain, pull, push
from mmlape.checkpoint.records import record_of
from mmlape.cli import main
from mmlape.engine.config import load_config
from mmlape.errors import CheckpointError

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
    (folder / 'segmenter_tiny_4xb2-160k_ade20k.py').write_text(
        f"data_root = '{folder}/data'\ndefault_scope = 'mmseg'\nstore = 'http://me:secret@host.example/x'\n"
        'model = dict(lr=-1.0, scale=(512, 128), a=[None, True])\n'
    )
    model = vit(pe_joining='lape')
    return model, run_file(folder / 'iter_3.pth', model)


def test_a_push_is_pulled_again(hub, trained, tmp_path, capsys):
    model, path = trained
    assert main(['checkpoint', 'push', path, OURS, '--private']) == 0
    out = capsys.readouterr().out
    assert f'/{OURS}\n' in out and out.startswith('pushed to http://127.0.0.1:')
    files = hub[OURS]
    assert files.pop('visibility') == 'private' and sorted(files) == sorted((WEIGHTS, CONFIG, CARD))
    _, front, card = files[CARD].decode().split('---\n', 2)
    about = huggingface_hub.ModelCardData(**yaml.safe_load(front), ignore_metadata_errors=True)
    assert (about.library_name, about.pipeline_tag) == ('mmlape', 'image-segmentation')
    results = huggingface_hub.ModelCard(files[CARD].decode()).data.eval_results
    assert {(one.dataset_name, one.metric_type, one.metric_value) for one in results} == {
        ('ade20k', 'mIoU', 42.25), ('ade20k', 'aAcc', 70.5),
    }  # fmt: skip
    assert card.startswith('\n# lape-tiny\n') and hashlib.sha256(files[WEIGHTS]).hexdigest() in card
    assert '"seed": 121' in card and "data_root = 'data'" in card
    for secret in ('node7', 'secret', str(tmp_path)):
        assert not any(secret.encode() in content for content in files.values()), secret

    assert main(['checkpoint', 'pull', OURS, str(tmp_path / 'pulled')]) == 0
    assert f'mmlape test {tmp_path}/pulled/config.py {tmp_path}/pulled/{WEIGHTS}' in capsys.readouterr().out
    load_backbone(loaded := vit(pe_joining='lape'), str(tmp_path / 'pulled' / WEIGHTS))
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())
    cfg = load_config(tmp_path / 'pulled' / CONFIG)
    assert cfg.model.to_dict() == dict(lr=-1.0, scale=(512, 128), a=[None, True])
    assert set(read_checkpoint(f'hf-hub:{OURS}')) >= set(model.state_dict())
    files[WEIGHTS] = b'not read'
    with pytest.raises(CheckpointError, match='there already; choose another folder or pass --overwrite'):
        pull(OURS, tmp_path / 'pulled')
    files[WEIGHTS] = (tmp_path / 'pulled' / WEIGHTS).read_bytes()
    del files[CONFIG]
    pull(OURS, tmp_path / 'pulled', overwrite=True)
    assert sorted(path.name for path in (tmp_path / 'pulled').iterdir()) == sorted((WEIGHTS, CARD)), 'no old config'


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


@pytest.mark.filterwarnings('ignore::SyntaxWarning')
@pytest.mark.parametrize(
    'text',
    [
        'import os',
        'a = open("b")',
        'a = dict(b=[c for c in ()])',
        "_base_ = 'other.py'",
        'a = dict.__class__',
        "a = ['b\\{{$N:}}', '+open()+', '']",
        "model = dict(type='os.system', command='x')",
        "model = {'type': 'mmengine.load', 'file': 'x.pkl'}",
        "model = dict([('type', 'os.system')], command='x')",
        "data = dict(ann_file='http://127.0.0.1/x.pkl')",
        "data = dict(ann_file='x.pickle')",
        "a = '\udcff'",  # no UTF-8
        'a = (',
    ],
)
def test_a_pulled_config_runs_no_code(hub, tmp_path, text):
    from safetensors.torch import save

    with pytest.raises(CheckpointError, match='config'):
        check_plain(text, 'config.py')
    record = json.dumps(record_of(vit()).plain())
    hub[OURS] = {WEIGHTS: save(vit().state_dict(), {'mmlape': record}), CONFIG: text.encode(errors='surrogateescape')}
    with pytest.raises(CheckpointError, match=f'{OURS}/config.py: (refused|no config)'):
        pull(OURS, tmp_path / 'pulled')
    assert not (tmp_path / 'pulled').exists()


@pytest.mark.parametrize('writer', ['EMAHook', 'timm'])
@pytest.mark.parametrize('weights', ['plain', 'ema'])
def test_the_weights_that_are_asked_for_are_pushed(hub, tmp_path, writer, weights):
    """MMEngine's hook saves the average as the model's weights, and the plain ones beside it; timm does not."""
    plain, mean = vit(pe_joining='lape'), vit(pe_joining='lape')
    wrapped = {f'module.{name}': value for name, value in plain.state_dict().items()}
    model, more = (mean, dict(ema_state_dict=wrapped)) if writer == 'EMAHook' else (plain, {})
    more = more or dict(state_dict_ema=mean.state_dict())
    path = run_file(tmp_path / 'iter_3.pth', model, **more)
    assert main(['checkpoint', 'push', path, OURS, '--weights', weights]) == 0
    (tmp_path / WEIGHTS).write_bytes(hub[OURS][WEIGHTS])
    pushed, expected = read_checkpoint(tmp_path / WEIGHTS), (plain if weights == 'plain' else mean).state_dict()
    assert all(torch.equal(pushed[name], value) for name, value in expected.items())
    assert f'- weights: {weights}\n' in hub[OURS][CARD].decode()
