"""What is published says nothing of secrets, people, machines and folders: planted marks, and what must stay."""

import json
import socket

import pytest
from checkpoint_helpers import run_file
from each import each
from model_helpers import vit

from mmlape.checkpoint.converting import publish
from mmlape.checkpoint.hub import CARD, CONFIG, write_repository
from mmlape.checkpoint.redaction import Redaction
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.optim import build_model
from mmlape.lab.engine.pulled import own_config, shared_parts
from mmlape.weights.plain_config import read_plain, write_plain

NAME = 'segmenter_deit-mini-lape_1xb16-250i_mini-ade'
MARK = 'Qz7Xw9'
"""Stands in every planted text, so that nothing of one may be left."""

BY_KEY = {
    'api_key': f'{MARK}plain',
    'WANDB_API_KEY': f'{MARK}plain',
    'access_key': f'{MARK}plain',
    'access_key_id': f'{MARK}plain',
    'secretAccessKey': f'{MARK}/plain+',
    'client_secret': f'{MARK}plain',
    'password': f'{MARK} with spaces',
    'db-passwd': f'{MARK}plain',
    'token': f'{MARK}plain',
    'hf_token': f'{MARK}plain',
    'credentials': dict(first=f'{MARK}a', second=[f'{MARK}b', f'{MARK}c']),
    'private_key': f'{MARK}\nof two lines',
    'webhook_url': f'https://github.com/{MARK}',
    'user': f'{MARK}jane',
    'username': f'{MARK}jane',
    'entity': f'{MARK}-team',
    'email': f'{MARK} at example',
    'host': f'{MARK}node',
    'hostname': f'{MARK}node',
    'master_addr': f'{MARK}node',
    'nodelist': f'{MARK}[01-04]',
}
BY_FORM = [
    f'hf_{MARK}abcdefghijkl',
    f'ghp_{MARK}abcdefghijkl',
    f'github_pat_{MARK}abc_defghi',
    'AKIAQZ7XW9ABCDEFGH',
    f'sk-{MARK}abcdefghijkl',
    f'sk-proj-{MARK}abcdefghijkl',
    f'glpat-{MARK}abcdefgh',
    f'xoxb-1234-{MARK}abc',
    f'AIza{MARK}abcdefghijklmnop',
    f'eyJ{MARK}abc.{MARK}def.{MARK}ghi',
    f'Authorization: Bearer {MARK}abc',
    f'-----BEGIN RSA PRIVATE KEY-----\n{MARK}\n-----END RSA PRIVATE KEY-----',
    f'https://huggingface.co/a/b.pth?token={MARK}',
    f'https://download.openmmlab.com/a.pth?X-Amz-Signature={MARK}&x=1#{MARK}',
    f'https://{MARK}:{MARK}@github.com/a/b.git',
    f'https://{MARK}@huggingface.co/a/b',
    f'http://{MARK.lower()}.example.org:8080/{MARK}/x.pth',
    f's3://{MARK.lower()}-bucket/{MARK}/x.pth',
    f'weights.pth?sig={MARK}&x=1',
    f'{MARK}@cluster.example.org:/data/{MARK}/x.pth',
    f'{MARK}@node:{MARK}/x.pth',
    f'{MARK.lower()}-node:/data/{MARK}/x.pth',
    f'file:///home/{MARK}/x.pth',
    f'/home/{MARK}/data/x.pth',
    f'/home/{MARK} Smith/data/x.pth',
    f'~/{MARK}/x.pth',
    f'~{MARK}/x.pth',
    f'/home/{MARK}',
    f'/Users/{MARK}/',
    f'~{MARK}',
    f'C:\\Users\\{MARK}',
    f'$HOME/{MARK}/x.pth',
    f'../../home/{MARK}/x.pth',
    f'C:\\Users\\{MARK}\\x.pth',
    f'C:\\Users\\{MARK} Smith\\data\\x.pth',
    f'D:/{MARK}/x.pth',
    f'\\\\{MARK}\\share\\x.pth',
    f'{MARK}@example.org',
    f'Jane <jane.{MARK}@mail.example.org>',
    f'{MARK}@localhost',
    f'train --api-key {MARK} --token={MARK}',
    f'WANDB_API_KEY={MARK} python train.py',
    f'loss is NaN at /scratch/{MARK}/run, on gpu-{MARK.lower()}.cluster.internal',
    f'{MARK.lower()}.cs.uni.de',
]
MACHINES = ['10.23.45.67', '10.23.45.67:29500', 'tcp://10.23.45.67:29500', 'fe80::7a3c:91ff', '[fe80::7a3c:91ff]:80',
            '7a:3c:91:ff:ab:cd', 'env://?rank=0&host=10.23.45.67']  # fmt: skip
LEFT = ('10.23.45', '7a3c', '7a:3c', MARK, MARK.lower(), MARK.upper(), ' Smith')


def config(**more):
    return {**load_config(f'mmlape::segmenter/{NAME}').to_dict(), **more}


@pytest.fixture
def run(tmp_path):
    """A checkpoint whose config and records have every mark, as values, in lists, below keys and in messages."""
    folder = tmp_path / f'{MARK}' / 'run'
    folder.mkdir(parents=True)
    marks = dict(
        visualizer=dict(vis_backends=[dict(type='WandbVisBackend', init_kwargs=dict(BY_KEY))]),
        notes=[*BY_FORM, *MACHINES],
        as_keys=dict.fromkeys(BY_FORM, 1),
        nested={f'key{i}': dict(note=(f'see {text}, please', 1)) for i, text in enumerate([*BY_FORM[:-3], *MACHINES])},
        command=['train', '--api-key', MARK, '--work-dir', f'/home/{MARK}/x'],
        pin=dict(password=12345678),
    )
    values = config(**marks)
    values['model']['backbone']['init_cfg'] = dict(type='Pretrained', checkpoint=f'/home/{MARK}/deit.pth')
    values['train_dataloader']['dataset']['data_root'] = f'/data/{MARK}/ade'
    (folder / f'{NAME}.py').write_text(f'# {MARK} in a comment\n{write_plain(values)}')
    reason = f'{MARK.lower()}7 died, and {socket.gethostname()} saw it; gpu-node-31: /home/{MARK}/log'
    record = dict(seed=121, host=f'{MARK.lower()}7', machines=[dict(host='gpu-node-31')], reason=reason, marks=marks)
    (folder / 'run.json').write_text(json.dumps(record))
    (folder / 'metrics.json').write_text(json.dumps(dict(metrics={'mIoU': 40.5, 'AR@100': 0.5}, marks=marks)))
    model = vit(pe_joining='lape')
    return run_file(folder / 'iter_3.pth', model)


def assert_clean(name, content):
    text = content.decode(errors='replace')
    hosts = ('gpu-node-31', *([socket.gethostname()] if len(socket.gethostname()) > 4 else []), '12345678')
    for mark in (*LEFT, *hosts):
        place = text.find(mark)
        assert place < 0, f'{name}: {text[max(place - 80, 0) : place + 40]!r}'


def test_nothing_of_the_marks_is_published(run, tmp_path):
    (out := tmp_path / 'out').mkdir()
    redacted = write_repository(tmp_path / MARK / 'run' / 'iter_3.pth', out, 'model')
    for file in out.iterdir():
        assert_clean(file.name, file.read_bytes())
    assert {'config.py.pin.password', 'run.json.host', 'config.py.model.backbone.init_cfg.checkpoint'} <= {*redacted}
    card = (out / CARD).read_text()
    assert '"AR@100": 0.5' in card and '"seed": 121' in card
    file, card = publish(run, tmp_path / 'published.pth')
    assert_clean('card', card.read_bytes())


def test_the_config_that_comes_out_is_the_model(run, tmp_path):
    (out := tmp_path / 'out').mkdir()
    write_repository(tmp_path / MARK / 'run' / 'iter_3.pth', out, 'model')
    values = read_plain((out / CONFIG).read_bytes(), 'x')
    assert shared_parts(values) == shared_parts(config())
    build_model(load_config(out / CONFIG))
    build_model(own_config(values, 'a/b/config.py'))
    assert values['train_dataloader']['dataset']['data_root'] == 'ade'


def test_a_form_is_redacted_alone_in_a_sentence_and_in_quotes():
    for text in each([*BY_FORM, *MACHINES]):
        for written in (text, f'see {text} now', f"'{text}'", f'x={text}', f'[{text}]', f'{text};'):
            assert_clean(written, Redaction().values(written).encode())


def test_a_key_tells_that_its_value_is_secret():
    for key in each(BY_KEY):
        for written in (key, key.upper(), f'my_{key}'):
            assert_clean(written, json.dumps(Redaction().values({written: BY_KEY[key]})).encode())


def test_what_is_no_secret_stays():
    for text in each(
        [
            'mmlape::segmenter/segmenter_deit-mini.py',
            'hf-hub:timm/vit_base_patch16_224.augreg_in21k',
            'hf-hub:timm/vit_base@main',
            'torchvision://resnet50',
            'pretrained/deit_tiny_lape.pth',
            'data/ade/images',
            'https://huggingface.co/timm/vit/resolve/main/model.safetensors',
            'https://github.com/a/b/releases/x.pth',
            'mask-rcnn',
            'disk-cached',
            'task-specific-weights',
            'AR@100',
            'coco/bbox_mAP_50',
            '2.10.0+cu128',
            '1.2.3',
            '2026-11-24T12:30:45+00:00',
            '12:30:45',
            'cls_token',
            'cls_token=True',
            'num_tokens: 5',
            'cuda:0',
            'a: b',
            'mmpretrain.QuickGELU',
            'mmlape.ViTAdapter',
            'torch.optim.AdamW',
            'vit_small_patch14_reg4_dinov2.lvd142m',
            'NVIDIA H100 80GB HBM3',
            'CPU, 2 cores',
            'a {} on a photograph',
            'iter_3.pth',
            'run.json',
            'x.tar.gz',
            'a/b',
            'CVT-7/4',
            'lr=1e-3, weight_decay=0.05',
            '{value:.2f} %',
            'ids 1:2:3',
            'SECRET',
            'studies/x.yml:arm',
            '',
        ]
    ):
        redaction = Redaction()
        assert redaction.values(text) == text and not redaction.changed
        assert redaction.values({'type': text, 'cls_token': text, 'num_tokens': 4, 'with_cls_token': True}) == {
            'type': text, 'cls_token': text, 'num_tokens': 4, 'with_cls_token': True,
        }  # fmt: skip


def test_a_text_of_no_use_is_left_out():
    assert Redaction().values(dict(note=10_001 * 'a/')) == dict(note='20,002 characters, left out')


def test_plain_configs_are_read_as_they_were_written():
    values = config(
        a={'b c': (1,), 'd': [], 'e': (), 1: {}}, text='"\'\n\\', tuple_of_long=tuple('x' * 30 for _ in range(9)),
        number=-1.5e-300, nothing=None, keyword={'lambda': 1, 'type': 'x'}, many=[dict(a=[1, (2, 3)] * 40)],
    )  # fmt: skip
    assert read_plain(write_plain(values), 'x') == values
    assert max(map(len, write_plain(config()).splitlines())) <= 120
