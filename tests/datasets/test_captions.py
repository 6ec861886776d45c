"""Captions: the formats, what is wrong with a file, and runs on the mini data."""

import json

import numpy as np
import pytest
from config_helpers import ROOT
from each import each
from mmengine.config import Config
from PIL import Image
from tiny import difference, evaluations, run

from mmlape.errors import DataError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.checks import check_data, full_check
from mmlape.lab.datasets.mini import scenes
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.projects.lit.captions import CaptionDataset, RandomCaption, read_captions
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
    out = run(ROOT / 'tools' / 'test.py', CONFIG, first / 'iter_2.pth', '--work-dir', first, cwd=tmp_path)
    assert 'accuracy/top1' in out
