"""Published weights: what the file says and does not say, and that it predicts from the hub as the run does.

A server on this machine speaks what the client of the Hugging Face hub calls.
"""

import copy
import hashlib
import http.server
import json
import re
import threading

import huggingface_hub
import huggingface_hub.constants
import numpy as np
import pytest
import timm
import torch
from checkpoint_helpers import run_file
from each import each
from huggingface_hub.utils import close_session
from model_helpers import vit
from PIL import Image
from safetensors.torch import save_file

import mmlape
from mmlape.checkpoint import load_backbone, read_checkpoint
from mmlape.checkpoint.converting import publish
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.checkpoint.plain_config import write_plain
from mmlape.cli import main
from mmlape.errors import CheckpointError, ConfigError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.config.stored_config import prediction_parts, published_config
from mmlape.lab.training.optim import build_model
from mmlape.registry import MODELS

COMMIT = 40 * 'a'
OURS = 'someone/lape-tiny'
NAME = 'model.safetensors'


class Hub(http.server.BaseHTTPRequestHandler):
    """Repositories as dicts of files."""

    repositories: dict

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

    def do_GET(self):
        if self.path.startswith('/api/models/'):
            _, _, _, owner, name, *_ = self.path.split('/')  # and tree/REVISION
            files = self.repositories.get(f'{owner}/{name}')
            if files is None:
                return self.answer({}, 404, X_Error_Code='RepoNotFound')
            return self.answer([dict(type='file', path=file, size=len(files[file]), oid='') for file in files])
        _, owner, name, _, revision, file = self.path.split('/')
        files = self.repositories.get(f'{owner}/{name}') if revision in ('main', 'v2', COMMIT) else None
        if files is None or file not in files:
            return self.answer({}, 404, X_Error_Code='EntryNotFound' if files is not None else 'RepoNotFound')
        return self.answer(files[file], ETag=hashlib.sha256(files[file]).hexdigest(), X_Repo_Commit=COMMIT)

    do_HEAD = do_GET


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The repositories of a hub on this machine, and an empty cache."""
    handler = type('Handler', (Hub,), dict(repositories={}))
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as running:
        address, constants = f'http://127.0.0.1:{running.server_port}', huggingface_hub.constants
        monkeypatch.setattr(constants, 'ENDPOINT', address)
        monkeypatch.setattr(
            constants, 'HUGGINGFACE_CO_URL_TEMPLATE', address + '/{repo_id}/resolve/{revision}/{filename}'
        )
        monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'cache'))
        monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', False)
        monkeypatch.setattr(constants, 'HF_HUB_DISABLE_XET', True)  # whose client is compiled, with hosts of its own
        for name in ('http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'):
            monkeypatch.delenv(name, raising=False)
        close_session()
        thread = threading.Thread(target=running.serve_forever, args=[0.01])
        thread.start()
        yield handler.repositories
        running.shutdown()
        thread.join()
        close_session()


CONFIGS = {
    'detector': 'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco',
    'segmentor': 'segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade',
    'classifier': 'deit/deit-mini-irpe-product-k_1xb32-5e_mini-digits',
}
CLASSES = {'detector': 10, 'segmentor': 12, 'classifier': 10}


def write_run(folder, cfg, model, classes, **meta):
    """Write the folder of a run as training leaves it; return the checkpoint."""
    folder.mkdir(parents=True)
    text = write_plain(cfg.to_dict())
    (folder / 'config.py').write_text(text)
    last = dict(step=3, metrics=dict(score=1.0))
    run = dict(state='finished', iter=3, max_iters=3, config='config.py', seed=1, last=last)
    (folder / 'run.json').write_text(json.dumps(run))
    meta |= {'cfg': text, 'dataset_meta': dict(classes=classes), KEY: metadata_of(model).plain()}
    torch.save(dict(state_dict=model.state_dict(), meta=meta), folder / 'iter_3.pth')
    return folder / 'iter_3.pth'


def arrays(prediction):
    """Return the arrays of a prediction by name."""
    return {name: value for name, value in vars(prediction).items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize('kind', CONFIGS)
def test_what_is_published_predicts_from_the_hub_as_its_run_does(kind, hub, tmp_path, monkeypatch, capsys):
    """Bit for bit, also after the network is gone, and by the command."""
    cfg = load_config(f'mmlape::{CONFIGS[kind]}', ['model.backbone.init_cfg=None'])
    torch.manual_seed(7)
    model = build_model(cfg)
    model.init_weights()
    classes = [f'class {number}' for number in range(CLASSES[kind])]
    write_run(tmp_path / 'run', cfg, model, classes)
    assert main(['checkpoint', 'publish', str(tmp_path / 'run'), str(tmp_path / 'out' / 'lape.safetensors')]) == 0
    (file,) = (tmp_path / 'out').iterdir()
    assert f'hf upload OWNER/NAME {file}\n' in capsys.readouterr().out
    hub[OURS] = {file.name: file.read_bytes()}

    image = np.random.default_rng(3).integers(0, 256, (70, 90, 3), np.uint8)
    of_run = mmlape.load(tmp_path / 'run', device='cpu')
    expected = of_run.predict(image)[0]
    loaded = mmlape.load(f'hf://{OURS}', device='cpu')
    assert (loaded.task, loaded.classes) == (of_run.task, tuple(classes))
    for found in (loaded, mmlape.load(file, device='cpu')):
        for name, value in arrays(found.predict(image)[0]).items():
            assert value.dtype == arrays(expected)[name].dtype and np.array_equal(value, arrays(expected)[name]), name
    assert arrays(expected) and all(value.size for value in arrays(expected).values())
    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_OFFLINE', True)
    close_session()
    (tmp_path / 'images').mkdir()
    Image.fromarray(image).save(tmp_path / 'images' / 'a.png')
    for source in (f'hf://{OURS}', str(tmp_path / 'run')):
        out = tmp_path / f'predicted {source[:2]}'
        assert main(['predict', source, str(tmp_path / 'images'), '--out', str(out), '--device', 'cpu']) == 0
    told = [sorted(path for path in out.rglob('*') if path.is_file()) for out in tmp_path.glob('predicted *')]
    assert len(told) == 2 and len(told[0]) > 1
    assert [path.read_bytes() for path in told[0]] == [path.read_bytes() for path in told[1]]


SECRETS = (
    '/home/jdoe/projects/secret', 'C:\\Users\\jdoe\\data', 'hf_abcDEF0123456789', 'jdoe@corp.example',
    'gpu17.cluster.internal', 'https://jdoe:pw@host.example/x?token=1', 's3://bucket/jdoe', '10.1.2.3', 'node17',
    'jdoe',
)  # fmt: skip
IN_RUN = (
    'work_dir', 'load_from', 'data_root', 'env_cfg.name', 'custom_imports', 'visualizer', 'log_processor',
    'train_dataloader.dataset.data_root', 'train_dataloader.dataset.ann_file', 'test_evaluator.outfile_prefix',
    'test_dataloader.dataset.data_root', 'test_dataloader.dataset.ann_file', 'optim_wrapper.note', 'custom_hooks',
    'model.backbone.init_cfg.checkpoint', 'model.init_cfg', 'model.train_cfg', 'note', 'resume', 'val_evaluator.note',
    'test_dataloader.dataset.metainfo.author', 'test_dataloader.sampler.note', 'test_dataloader.collate_fn',
)  # fmt: skip
"""Places of a run's config that are not of the model, or name its initial weights."""


def places(node, above=()):
    """Yield the place of each dict of a config."""
    if isinstance(node, dict):
        yield above
    for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from places(child, (*above, key))


def put(values, place, value):
    """Return a copy with a value at a place; dicts on the way are made."""
    values = node = copy.deepcopy(values)
    for key in place[:-1]:
        inner = node[key] if isinstance(key, int) else node.get(key)
        if not isinstance(inner, dict | list):
            inner = node[key] = {}
        node = inner
    node[place[-1]] = value
    return values


@pytest.mark.parametrize('kind', CONFIGS)
def test_a_published_file_says_nothing_of_the_run(kind, tmp_path):
    """A checkpoint whose run is full of secrets gives the same bytes as one without any."""
    cfg = load_config(f'mmlape::{CONFIGS[kind]}', ['model.backbone.init_cfg=None'])
    cfg.model.init_cfg = cfg.model.train_cfg = None  # of the model, but only while it is trained
    model, written = build_model(cfg), []
    for planted in (False, True):
        values, meta, extra = cfg.to_dict(), {}, {}
        if planted:
            for number, place in enumerate(IN_RUN):
                values = put(values, place.split('.'), SECRETS[number % len(SECRETS)])
            meta = dict(env=SECRETS, experiment_name='jdoe', time=SECRETS[0], hook_msgs=dict(last=SECRETS[0]))
            extra = dict(
                message_hub=dict(log=SECRETS), optimizer=dict(state=dict(a=SECRETS)), param_schedulers=SECRETS
            )
        meta |= dict(cfg=write_plain(values), dataset_meta=dict(classes=['a', 'b'], author=SECRETS[planted]))
        meta[KEY] = metadata_of(model).plain()
        source = tmp_path / f'jdoe {planted}.pth'
        torch.save(dict(state_dict=model.state_dict(), meta=meta, **extra), source)
        written.append(publish(source, tmp_path / f'{planted}' / 'a.safetensors', config=published_config(source)))
    clean, other = (path.read_bytes() for path in written)
    assert clean == other
    header = clean[8 : 8 + int.from_bytes(clean[:8], 'little')].decode()
    assert not any(secret in header for secret in (*SECRETS, str(tmp_path)))


@pytest.mark.parametrize(
    'kind', [*(pytest.param(kind, marks=pytest.mark.release) for kind in ('detector', 'segmentor')), 'classifier']
)
def test_a_text_in_any_place_of_a_config_is_published_nowhere(kind):
    """Under a new key, or in the place of a number: it is left out, or the config is refused with its key."""
    values = load_config(f'mmlape::{CONFIGS[kind]}').to_dict()
    values['test_cfg'] = dict(type='mmlape.TiledTestLoop', tile=64, max_per_img=500, batch_size=8)
    clean = write_plain(prediction_parts(values))
    assert "test_cfg = dict(tile=64, max_per_img=500, type='mmlape.TiledTestLoop')" in clean
    assert not re.search(r'data/|/home|://|\.pth', clean)
    kept = refused = 0
    for place in places(values):
        for secret in SECRETS:
            try:
                text = write_plain(prediction_parts(put(values, (*place, 'remark'), secret)))
            except ConfigError as error:
                assert secret not in str(error) or 'remark' in str(error)
                refused += 1
            else:
                assert text == clean, (place, secret)
                kept += 1
    assert kept > 100 and refused > 20
    for secret in SECRETS:
        if re.fullmatch(r'\w+', secret):  # a word, as the names of norms are
            continue
        for place in (('model', 'backbone', 'pe_type'), ('model', 'type'), ('default_scope',)):
            with pytest.raises(ConfigError, match=place[-1] if place[0] == 'model' else 'type|scope'):
                prediction_parts(put(values, place, secret))


def test_a_model_of_others_is_published_without_a_config(tmp_path, capsys):
    """The weights, and the line says which value kept the config out."""
    cfg = load_config(f'mmlape::{CONFIGS["segmentor"]}')
    values = put(cfg.to_dict(), ('model', 'decode_head', 'type'), 'somewhere.MyHead')
    torch.save(dict(state_dict=vit().state_dict(), meta=dict(cfg=write_plain(values))), tmp_path / 'a.pth')
    assert main(['checkpoint', 'publish', str(tmp_path / 'a.pth'), str(tmp_path / 'b.safetensors')]) == 0
    out = capsys.readouterr().out
    assert "without a config (model.decode_head.type is 'somewhere.MyHead'" in out and 'wrote ' in out
    (file,) = tmp_path.glob('b-*')
    assert 'cfg' not in read_checkpoint(file)['meta']
    with pytest.raises(ConfigError, match='holds no config: give the config first'):
        mmlape.load(file, device='cpu')


def test_a_backbone_starts_from_a_repository(hub, tmp_path):
    """By init_cfg, with a file, a revision and timm's spelling, and by mmlape.load_weights."""
    source = vit(pe_joining='lape')
    hub[OURS] = {NAME: publish(run_file(tmp_path / 'a.pth', source), tmp_path / 'b.safetensors').read_bytes()}
    hub[OURS]['other.safetensors'] = b'not read'
    for name in each((f'hf://{OURS}', f'hf://{OURS}@v2', f'hf://{OURS}/{NAME}', f'hf-hub:{OURS}')):
        init_cfg = dict(type='Pretrained', checkpoint=name)
        model = MODELS.build(dict(read_plain_type(source), init_cfg=init_cfg))
        model.init_weights()
        assert all(torch.equal(value, source.state_dict()[key]) for key, value in model.state_dict().items())
        mmlape.load_weights(loaded := vit(pe_joining='lape'), name)
        assert torch.equal(loaded.norm.weight, source.norm.weight)


def test_timm_names_repositories(hub, tmp_path):
    """Those that it knows for a name, and one by its address, whose name is timm's."""
    name, args = 'vit_small_patch14_reg4_dinov2', dict(embed_dim=48, depth=3, num_heads=4)
    theirs = timm.create_model(name, num_classes=0, **args)
    save_file(theirs.state_dict(), tmp_path / NAME)
    hub[f'timm/{name}.lvd142m'] = {NAME: (tmp_path / NAME).read_bytes()}
    for named in each((name, f'hf-hub:timm/{name}.lvd142m')):
        model = mmlape.models.TimmViT(named, model_args=args, pretrained=True)
        model.init_weights()
        assert len(model.load_report.loaded) == model.load_report.total
        assert torch.equal(model.vit.pos_embed, theirs.pos_embed)


def read_plain_type(model):
    """Return the config of a backbone."""
    return dict(type='mmlape.VisionTransformer', **model.arguments)


def test_names_of_weights_are_tried_in_turn(hub, tmp_path):
    """model.safetensors, the names of others, else the one safetensors file."""
    torch.save(vit().state_dict(), tmp_path / 'a.bin')
    hub[OURS] = {'pytorch_model.bin': (tmp_path / 'a.bin').read_bytes(), 'a.safetensors': b'not read'}
    assert set(read_checkpoint(f'hf://{OURS}')) == set(vit().state_dict())
    one = publish(tmp_path / 'a.bin', tmp_path / 'lape.safetensors')
    hub['someone/one'] = {one.name: one.read_bytes(), 'README.md': b''}
    load_backbone(vit(), 'hf://someone/one')
    hub['someone/two'] = {'a.safetensors': b'', 'b.safetensors': b''}
    hub['someone/none'] = {'README.md': b''}
    for name, message in {
        'two': r'several files of weights \(a\.safetensors, b\.safetensors\); name one, hf://someone/two/a\.safe',
        'none': r'neither cached nor to be downloaded \(it has no model\.safetensors or',
        'nowhere': 'neither cached nor to be downloaded .*404',
        'one@v3': 'neither cached nor to be downloaded .*404',
    }.items():
        with pytest.raises(CheckpointError, match=f'checkpoint hf://someone/{name}: .*{message}'):
            read_checkpoint(f'hf://someone/{name}')
