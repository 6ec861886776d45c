"""Captions: the formats, what is wrong with a file, features that are kept, and runs on the mini data."""

import copy
import io
import json
import os
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from config_helpers import ROOT
from each import each
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from PIL import Image
from tiny import difference, evaluations, run

from mmlape.errors import DataError
from mmlape.lab.datasets.checks import check_data, full_check
from mmlape.lab.datasets.mini import scenes
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.lab.engine.config import load_config
from mmlape.projects import ImageFeatureHook
from mmlape.projects.lit.captions import CaptionDataset, RandomCaption, read_captions
from mmlape.projects.lit.shards import TarBackend
from mmlape.projects.lit.tokenizer import WordPieceTokenizer

CONFIG = ROOT / 'configs' / 'lit' / 'lit_vit-mini_1xb64-600i_mini-captions.py'
PAIRS = [('a.jpg', 'a dog'), ('b.jpg', 'two cats, asleep'), ('a.jpg', 'a black dog')]
FILES = {
    'c.tsv': 'a.jpg\ta dog\nb.jpg\ttwo cats, asleep\n\na.jpg\ta black dog\n',
    'c.jsonl': '{"image": "a.jpg", "caption": ["a dog", " a black dog"]}\n'
    '{"image": "b.jpg", "caption": "two cats, asleep"}',
    'coco.json': json.dumps(
        dict(
            images=[dict(id=7, file_name='a.jpg'), dict(id=9, file_name='b.jpg'), dict(id=11, file_name='c.jpg')],
            annotations=[dict(image_id={'a.jpg': 7, 'b.jpg': 9}[image], caption=f'{text}\n') for image, text in PAIRS],
        )
    ),
    'list.json': json.dumps([dict(image=image, caption=text, image_id=1) for image, text in PAIRS]),
}


@pytest.mark.parametrize('name', FILES)
def test_formats(tmp_path, name):
    (tmp_path / name).write_text(FILES[name])
    data = CaptionDataset(name, str(tmp_path), dict(img_path='images'))
    found = {data[i]['img_path']: data[i]['gt_caption'] for i in range(len(data))}
    folder = tmp_path / 'images'
    assert found == {str(folder / 'a.jpg'): ['a dog', 'a black dog'], str(folder / 'b.jpg'): ['two cats, asleep']}


def write_shard(path, **files):
    with tarfile.open(path, 'w') as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name.replace('__', '/').replace('_', '.'))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_shards_are_read_in_place(tmp_path):
    """Images and captions of two archives, also by a loader's workers and by the check before training."""
    colours, data = {'a': (200, 10, 10), 'b': (10, 10, 200), 'c': (10, 200, 10)}, {}
    for name, colour in colours.items():
        Image.new('RGB', (16, 12), colour).save(buffer := io.BytesIO(), 'PNG')
        data[name] = buffer.getvalue()
    blue = dict(b_json=b'{"caption": "a blue one"}', b_png=data['b'], b_cls=b'3')
    write_shard(tmp_path / '000.tar', x__a_png=data['a'], x__a_txt=b' a red one\n', **blue)
    write_shard(tmp_path / '001.tar', c_txt=b'a green one', c_png=data['c'])
    load = [dict(type='mmlape.LoadImageFromFile'), dict(type='PackInputs', algorithm_keys=['gt_caption'])]
    dataset = dict(type='mmlape.CaptionDataset', ann_file='*.tar', data_root=str(tmp_path), pipeline=load)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        loader = Runner.build_dataloader(
            dict(batch_size=3, num_workers=1, dataset=dataset, sampler=dict(type='DefaultSampler', shuffle=False))
        )
        (batch,) = loader
    assert [sample.gt_caption for sample in batch['data_samples']] == [['a red one'], ['a blue one'], ['a green one']]
    for image, colour in zip(batch['inputs'], colours.values()):
        assert image[:, 3, 5].tolist() == list(colour[::-1])  # OpenCV's order
    cfg = Config(dict(default_scope='mmpretrain', model={}, train_dataloader=dict(dataset=dataset)))
    (summary,) = check_data(cfg, ('train',))
    assert (summary.images, summary.facts['captions']) == (3, 3)
    with pytest.raises(FileNotFoundError, match=r'no member z\.png in .*001\.tar'):
        TarBackend().get(f'tar://{tmp_path}/001.tar/z.png')


TEXT = 'a.png\ta tree\nb.png\tän house\n'
TWO = [('a.png', 'a tree'), ('b.png', 'än house')]
CAPTIONS = (
    ('c.tsv', TEXT.encode(), TWO),
    ('c.tsv', TEXT.encode('utf-8-sig'), TWO),
    ('c.tsv', TEXT.encode('utf-16'), TWO),
    ('c.tsv', TEXT.encode('utf-16-le'), ('line', 'UTF-8')),
    ('c.tsv', TEXT.encode('latin-1'), ('line 2', 'UTF-8')),
    ('c.tsv', TEXT.replace('\n', ' \r\n\r\n').encode(), TWO),
    ('c.tsv', TEXT.replace('\n', '\r').encode(), TWO),
    ('c.tsv', TEXT.replace('\t', ' ').encode(), ('line 1', 'a tab')),
    ('c.tsv', TEXT.replace('a.png', 'A.png').encode(), ('1 of 2', 'A.png', "'a.png' exists")),
    ('c.jsonl', b'\xef\xbb\xbf{"image": "a.png", "caption": "a tree"}\r\n\r\n', TWO[:1]),
    ('c.jsonl', '{"image": "a.png", "caption": "é"}'.encode('latin-1'), ('line 1', 'UTF-8')),
    ('c.json', '[{"image": "a.png", "caption": "a tree"}]'.encode('utf-16'), TWO[:1]),
    ('c.tsv', b'\n', ('have no caption',)),
    ('c.jsonl', b'{"image": "a.jpg"}', ('line 1: expected',)),
    ('c.jsonl', b'{"image"', ('line 1: no JSON',)),
    ('c.json', b'{"images": [], "annotations": [{"image_id": 3, "caption": "x"}]}', ("neither COCO's",)),
    ('c.json', b'[{"image": "a.jpg", "caption": [3]}]', ('entry 0: expected',)),
    ('c.csv', b'a.png,a tree', ('unknown format', '.csv', '.tsv')),
)
"""The file, its content, and the pairs that it has or the words of its refusal."""


def test_captions(tmp_path):
    for name in ('a.png', 'b.png'):
        Image.new('RGB', (64, 40)).save(tmp_path / name)
    for name, content, outcome in each(CAPTIONS):
        (tmp_path / name).write_bytes(content)
        dataset = dict(type='mmlape.CaptionDataset', ann_file=name, data_root=str(tmp_path), pipeline=[])
        cfg = Config(dict(default_scope='mmpretrain', model={}, train_dataloader=dict(dataset=dataset)))
        if isinstance(outcome, list):
            assert read_captions(str(tmp_path / name)) == outcome
            assert not full_check(cfg, ('train',)).issues.errors
            continue
        told = [full_check(cfg, ('train',)).issues.errors[0].examples[0]]
        with pytest.raises(DataError) as caught:
            check_data(cfg, ('train',))
        for text in [*told, str(caught.value)]:
            assert all(word in text for word in (name, *outcome)) and '\n' not in text, text


def test_the_check_before_training_counts_images_and_captions(tmp_path):
    (tmp_path / 'c.tsv').write_text(FILES['c.tsv'])
    (tmp_path / 'images').mkdir()
    for name in ('a', 'b'):
        Image.new('RGB', (8, 8)).save(tmp_path / 'images' / f'{name}.jpg')
    dataset = dict(type='mmlape.CaptionDataset', ann_file='c.tsv', data_root=str(tmp_path), pipeline=[])
    dataset['data_prefix'] = dict(img_path='images')
    cfg = Config(dict(default_scope='mmpretrain', model={}, train_dataloader=dict(dataset=dataset)))
    (summary,) = check_data(cfg, ('train',))
    assert (summary.images, summary.facts['captions']) == (2, 3)


def test_the_vocabulary_moves_with_the_data(tmp_path):
    for name in ('zero', 'one'):
        (tmp_path / 'digits' / 'val' / name).mkdir(parents=True)
    cfg = load_config(CONFIG, {'data_root': f'{tmp_path}/'})
    assert cfg.model.tokenizer.vocab_file == f'{tmp_path}/coco/annotations/vocabulary.txt'
    assert cfg.train_dataloader.dataset.data_root == f'{tmp_path}/coco/'


def test_kept_features_are_those_of_a_fresh_folder(tmp_path):
    """Whatever changes between two runs: an image, their list, the tower, its precision, how images are prepared."""

    def draw(name, colour, seconds):
        Image.new('RGB', (8, 8), colour).save(tmp_path / f'{name}.bmp')  # files of one size
        os.utime(tmp_path / f'{name}.bmp', (seconds, seconds))

    def list_images(*names):
        (tmp_path / 'c.tsv').write_text(''.join(f'{name}.bmp\ta square\n' for name in names))

    def compute(samples):
        pixels = [np.asarray(Image.open(sample.img_path)).mean((0, 1)) for sample in samples]
        features = model.backbone(torch.tensor(np.stack(pixels)).float() - cfg.model.data_preprocessor.mean)
        features = features * cfg.train_dataloader.dataset.pipeline[0].scale * cfg.model.backbone.depth
        return (features.bfloat16() if 'optim_wrapper' in cfg else features).detach().float()

    def features(folder):
        """Return the features of the images, each in a batch of its own, and how many were computed."""
        data = CaptionDataset('c.tsv', str(tmp_path), pipeline=[dict(type='mmpretrain.PackInputs')])
        runner = SimpleNamespace(bare_model=model, cfg=cfg, train_dataloader=SimpleNamespace(dataset=data))
        ImageFeatureHook(str(tmp_path / folder)).before_train(runner)
        calls, found = [], {}
        for index in range(len(data)):
            sample = SimpleNamespace(img_path=data.get_data_info(index)['img_path'])
            row = model.image_features([sample], lambda one=sample: calls.append(one) or compute([one]))
            found[sample.img_path] = row.tolist()
        return found, len(calls)

    model = SimpleNamespace(image_features=None, backbone=torch.nn.Linear(3, 2), width=2)
    weights = copy.deepcopy(model.backbone.state_dict())
    pipeline = dict(pipeline=[dict(type='Resize', scale=1)])
    cfg = Config(
        dict(
            model=dict(backbone=dict(depth=1), data_preprocessor=dict(mean=0.5)),
            train_dataloader=dict(dataset=pipeline),
        )
    )
    for name, colour in dict(a='red', b='green', c='black').items():
        draw(name, colour, 1)
    for number, change in enumerate((
        lambda: list_images('a', 'b'),
        lambda: list_images('b', 'a'),
        lambda: draw('b', 'blue', 2),
        lambda: list_images('b', 'a', 'c'),
        lambda: torch.nn.init.ones_(model.backbone.bias),
        lambda: cfg.model.backbone.update(depth=2),
        lambda: cfg.update(optim_wrapper=dict(type='AmpOptimWrapper', dtype='bfloat16')),
        lambda: cfg.model.data_preprocessor.update(mean=0.25),
        lambda: cfg.train_dataloader.dataset.pipeline[0].update(scale=3),
        lambda: model.backbone.load_state_dict(weights),
    )):  # fmt: skip
        change()
        found, computed = features('kept')
        assert (found, computed) == features(f'fresh{number}'), number
        assert features('kept') == (found, 0)


def test_each_caption_is_chosen():
    np.random.seed(0)
    chosen = {RandomCaption()(dict(gt_caption=['a', 'b', 'c']))['gt_caption'] for _ in range(40)}
    assert chosen == {'a', 'b', 'c'}
    assert RandomCaption()(dict(gt_caption='one'))['gt_caption'] == 'one'


@pytest.mark.release
def test_the_tools_run_the_mini_recipe(tmp_path):
    """Two steps, at once and resumed, and both evaluations; every caption's words are in the vocabulary."""
    make_mini_data(
        tmp_path / 'data' / 'mini', MiniOptions(train=6, val=3, digits=100, size=(128, 128), digit_size=(48, 52))
    )
    notes = tmp_path / 'data' / 'mini' / 'coco' / 'annotations'
    words = WordPieceTokenizer(str(notes / 'vocabulary.txt'), len(scenes.VOCABULARY), length=20)
    texts = [one['caption'] for one in json.loads((notes / 'captions_train2017.json').read_text())['annotations']]
    assert len(texts) > 12 and not (words(texts) == words.ids['[UNK]']).any()
    assert (words(texts)[:, -1] == words.pad).all()  # none is cut off
    options = [
        '--cfg-options', 'model.backbone.init_cfg=None', 'train_dataloader.batch_size=3', 'train_cfg.max_iters=2',
        'train_cfg.val_interval=2', 'auto_scale_lr.base_batch_size=3', 'param_scheduler.0.end=1',
        'param_scheduler.1.begin=1', 'train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False',
        'default_hooks.checkpoint.interval=1', 'default_hooks.checkpoint.max_keep_ckpts=2',
    ]  # fmt: skip
    train, first, again = ROOT / 'tools' / 'train.py', tmp_path / 'run', tmp_path / 'again'
    run(train, CONFIG, '--work-dir', first, '--seed', 1, *options, cwd=tmp_path)
    run(train, CONFIG, '--work-dir', again, '--resume', first / 'iter_1.pth', *options, cwd=tmp_path)
    assert (
        difference(first / 'iter_2.pth', again / 'iter_2.pth')
        == 0
        < difference(first / 'iter_1.pth', again / 'iter_2.pth')
    )
    assert 'retrieval/text-to-image-R@10' in evaluations(first)[-1]['metrics']
    cached = tmp_path / 'cached.py'
    hook = "dict(type='mmlape.ImageFeatureHook', folder='features')"
    cached.write_text(f"_base_ = '{CONFIG}'\ncustom_hooks = [{hook}]\n")
    # resumed, with the second batch's features to compute; then with those to compute that are left
    for name, start in (('one', ('--resume', first / 'iter_1.pth')), ('two', ('--seed', 1))):
        run(train, cached, '--work-dir', tmp_path / name, *start, *options, cwd=tmp_path)
        assert difference(first / 'iter_2.pth', tmp_path / name / 'iter_2.pth') == 0
    (file,) = (tmp_path / 'features').iterdir()
    features = np.load(file)
    assert np.isfinite(features).all()
    np.save(file, features[::-1])
    run(train, cached, '--work-dir', tmp_path / 'wrong', '--seed', 1, *options, cwd=tmp_path)
    assert difference(first / 'iter_2.pth', tmp_path / 'wrong' / 'iter_2.pth') > 0  # they are used
    out = run(ROOT / 'tools' / 'test.py', CONFIG, first / 'iter_2.pth', '--work-dir', first, cwd=tmp_path)
    assert 'accuracy/top1' in out
