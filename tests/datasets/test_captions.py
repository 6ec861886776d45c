"""Captions: the formats, what is wrong with a file, and runs on the mini data."""

from pathlib import Path

import numpy as np
import pytest
from each import each
from mmengine.config import Config
from PIL import Image

from mmlape.errors import DataError
from mmlape.lab.datasets.checks import check_data, full_check
from mmlape.projects.lit.captions import CaptionDataset, RandomCaption, read_captions

TEXT = 'a.png\ta tree\nb.png\tän house\n'
TWO = [('a.png', 'a tree'), ('b.png', 'än house')]
CAPTIONS = (
    ('c.tsv', TEXT.encode(), TWO),
    ('c.tsv', f'{TEXT}a.png\ta dog\n'.encode(), [*TWO, ('a.png', 'a dog')]),
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
    ('c.json', '[{"image": "a.png", "caption": "a tree", "image_id": 1}]'.encode('utf-16'), TWO[:1]),
    ('c.jsonl', b'{"image": "a.png", "caption": ["a tree", " a dog"]}', [TWO[0], ('a.png', 'a dog')]),
    (
        'coco.json',
        b'{"images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "c.png"}], "annotations": '
        b'[{"image_id": 7, "caption": "a tree\\n"}, {"image_id": 7, "caption": "a dog"}]}',
        [TWO[0], ('a.png', 'a dog')],
    ),
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
            data = CaptionDataset(name, str(tmp_path), dict(img_path='images'))
            samples = [data[place] for place in range(len(data))]
            paths = [str(Path(sample['img_path']).relative_to(tmp_path / 'images')) for sample in samples]
            found = list(zip(paths, [sample['gt_caption'] for sample in samples]))
            images = dict.fromkeys(image for image, _ in outcome)
            assert found == [(image, [text for other, text in outcome if other == image]) for image in images]
            assert not full_check(cfg, ('train',)).errors
            continue
        told = [full_check(cfg, ('train',)).errors[0].examples[0]]
        with pytest.raises(DataError) as caught:
            check_data(cfg, ('train',))
        for text in [*told, str(caught.value)]:
            assert all(word in text for word in (name, *outcome)) and '\n' not in text, text


def test_each_caption_is_chosen():
    np.random.seed(0)
    chosen = {RandomCaption()(dict(gt_caption=['a', 'b', 'c']))['gt_caption'] for _ in range(40)}
    assert chosen == {'a', 'b', 'c'}
    assert RandomCaption()(dict(gt_caption='one'))['gt_caption'] == 'one'
