"""Images with captions, from a TSV, JSONL or JSON file."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.dataset import BaseDataset

from mmlape.errors import DataError
from mmlape.lab.datasets.folders import read_text
from mmlape.lab.datasets.formats import FORMATS
from mmlape.lab.datasets.formats.base import QUICKLY_FOUND, DataIssue, DataSource, ImageEntry
from mmlape.registry import DATASETS, TRANSFORMS

CAPTIONS = 'gt_caption'


@DATASETS.register_module()
class CaptionDataset(BaseDataset):
    """Images with all their captions, a list of texts in ``gt_caption``.

    `RandomCaption` chooses one to train on. The annotation file is one of three kinds, and an image
    may stand in it several times:

    - ``.tsv``: a line is the image, a tab, a caption;
    - ``.jsonl``: a line is ``{"image": ..., "caption": ...}``, with a text or a list of texts;
    - ``.json``: COCO's ``captions_*.json``, or a list of such objects, as mmpretrain's
      ``COCOCaption`` reads.

    Args:
        ann_file: The annotation file.
        data_root: Before ``ann_file`` and ``data_prefix``.
        data_prefix: ``dict(img_path=...)``, the folder of the images.
        **kwargs: Of ``mmengine.dataset.BaseDataset``, such as ``pipeline``.

    Raises:
        DataError: The file is missing, of another format or broken, or has no caption; the message
            names the line.
    """

    METAINFO = dict(task='captions')

    def __init__(self, ann_file: str, data_root: str = '', data_prefix: dict | None = None, **kwargs) -> None:
        super().__init__(
            ann_file=ann_file, data_root=data_root, data_prefix=data_prefix or dict(img_path=''), **kwargs
        )

    def load_data_list(self) -> list[dict]:
        """Return ``img_path`` and ``gt_caption`` of each image, in the order of their first caption."""
        captions: dict[str, list[str]] = {}
        for image, text in read_captions(self.ann_file):
            captions.setdefault(image, []).append(text)
        folder = self.data_prefix['img_path']
        return [{'img_path': os.path.join(folder, image), CAPTIONS: texts} for image, texts in captions.items()]


def read_captions(path: str) -> list[tuple[str, str]]:
    """Read (image, caption) pairs from a file of one of the formats.

    Raises:
        DataError: As `CaptionDataset`.
    """
    readers = {'.tsv': _tsv, '.jsonl': _jsonl, '.json': _json}
    suffix = Path(path).suffix.lower()
    if suffix not in readers:
        raise DataError(f'Captions {path}: unknown format {suffix!r}; it is one of {", ".join(readers)}.')
    if not os.path.isfile(path):
        raise DataError(f'Captions {path} do not exist. --cfg-options data_root=DIR/ sets where the data lie.')
    pairs = list(readers[suffix](path, read_text(path)))
    if not pairs:
        raise DataError(f'Captions {path} have no caption.')
    return pairs


def _tsv(path: str, text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.split('\n'), 1):  # captions may have Unicode's separators
        if line.strip():
            image, tab, caption = line.partition('\t')
            if not (tab and image.strip() and caption.strip()):
                raise DataError(
                    f'Captions {path}, line {number}: expected an image, a tab and a caption, not {line!r}.'
                )
            yield image.strip(), caption.strip()


def _jsonl(path: str, text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.split('\n'), 1):
        if line.strip():
            where = f'{path}, line {number}'
            yield from _pairs_of(where, _parsed(where, line))


def _json(path: str, text: str) -> Iterator[tuple[str, str]]:
    content = _parsed(path, text)
    if isinstance(content, list):
        for number, entry in enumerate(content):
            yield from _pairs_of(f'{path}, entry {number}', entry)
        return
    try:
        files = {image['id']: image['file_name'] for image in content['images']}
        pairs = [(files[caption['image_id']], caption['caption'].strip()) for caption in content['annotations']]
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"Captions {path} are neither COCO's captions (images and annotations with a caption "
            f'each; missing or wrong: {error}) nor a list of images with captions.'
        ) from error
    yield from pairs


def _parsed(where: str, text: str):
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f'Captions {where}: no JSON ({error}).') from error


def _pairs_of(where: str, entry: object) -> Iterator[tuple[str, str]]:
    """Yield the pairs of ``{"image": ..., "caption": text or list of texts}``."""
    image = texts = None
    if isinstance(entry, Mapping):
        image, texts = entry.get('image'), entry.get('caption')
    texts = [texts] if isinstance(texts, str) else texts
    are_texts = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    if not isinstance(image, str) or not are_texts:
        raise DataError(f'Captions {where}: expected {{"image": ..., "caption": ...}}, not {entry!r:.120}.')
    yield from ((image, text.strip()) for text in texts)


@TRANSFORMS.register_module()
class RandomCaption(BaseTransform):
    """Choose one of an image's captions at random."""

    def transform(self, results: dict) -> dict:
        """Replace the list in ``gt_caption`` by one text; a single text stays."""
        texts = results[CAPTIONS]
        if not isinstance(texts, str):
            results[CAPTIONS] = texts[np.random.randint(len(texts))]
        return results


class CaptionSource(DataSource):
    """A file of captions, and its images."""

    instructions = 'Captions: a .tsv, .jsonl or .json file, and the folder of its images'
    pack_transform = 'PackInputs'

    def check_unlisted_classes(self) -> None:
        """Accept captions, which have no classes."""

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check that the file can be read, and that each of its images exists."""
        self.require(self.root, 'Data root')
        self.require(self.ann_file, 'Annotation file', os.path.isfile)
        self.require(self.image_dir, 'Image directory')
        pairs = read_captions(self.ann_file)
        paths = list(dict.fromkeys(os.path.join(self.image_dir, image) for image, _ in pairs))
        look_up = complete or len(paths) <= QUICKLY_FOUND
        missing = [path for path in paths if look_up and not os.path.isfile(path)]
        yield from self.missing_images(missing, len(paths))
        left_out = set(missing)
        self.entries = [ImageEntry(path) for path in paths if path not in left_out]
        self.summary.images = len(paths)
        self.summary.sampled = False
        self.summary.facts['captions'] = len(pairs)


FORMATS[CaptionDataset.__name__] = CaptionSource
