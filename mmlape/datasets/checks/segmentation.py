"""The look at data in ADE20K's layout: pictures, and label maps of the same names."""

import os
from collections import Counter
from collections.abc import Iterator

import numpy as np

from mmlape.datasets.checks.base import ERROR, WARNING, FileFacts, Item, Look, Problem, files_below, shorten
from mmlape.datasets.image_files import open_image
from mmlape.datasets.sources import read_lines
from mmlape.datasets.transforms import strange_labels
from mmlape.errors import DataError


class SegmentationLook(Look):
    """Class names, that label maps are there, and the pictures beside theirs."""

    def _structure(self) -> Iterator[Problem]:
        source = self.source
        self.require(source.root, 'Data root')
        self.require(source.image_dir, 'Image directory')
        self.require(source.label_dir, 'Label map directory')
        known = tuple(getattr(source.cls, 'METAINFO', {}).get('classes') or ())
        if known and not set(source.classes) <= set(known):
            strange = shorten([name for name in source.classes if name not in known])
            raise DataError(
                f'The config gives {source.cls.__name__} the classes {strange}, which it does not know: '
                "use type='BaseSegDataset' with reduce_zero_label=True."
            )
        listed = os.path.join(source.root, 'classes.txt')
        if os.path.isfile(listed):
            yield from self.match_classes(read_lines(listed), listed)
        if not source.classes:
            raise DataError(f'The config names no classes for {source.image_dir}: set metainfo=dict(classes=...).')
        stems = self._stems()
        if not stems:
            raise DataError(f'{source.image_dir} has no {source.option("img_suffix")} images. {source.way_out()}')
        self.summary.path, self.summary.images = source.image_dir, len(stems)
        self.summary.classes = known or source.classes  # what ids mean before a data set picks some of its classes
        self.num_ids, self.first = len(self.summary.classes), int(bool(source.option('reduce_zero_label')))
        yield from self._pair(stems)

    def _stems(self) -> list[str]:
        """Image names, without suffix, relative to the image directory; from the list if there is one."""
        source = self.source
        if source.ann_file:
            self.require(source.ann_file, 'List of images', os.path.isfile)
            return read_lines(source.ann_file)
        return sorted(files_below(source.image_dir, source.option('img_suffix')))

    def _pair(self, stems: list[str]) -> Iterator[Problem]:
        source = self.source
        image_suffix, label_suffix = source.option('img_suffix'), source.option('seg_map_suffix')
        present = set(files_below(source.label_dir, label_suffix)) if source.label_dir else set()
        missing = [stem for stem in stems if stem not in present] if source.label_dir else []
        if missing:
            yield Problem(
                ERROR,
                'label map missing',
                f'{len(missing)} of {len(stems)} images in {source.image_dir} have no label map in '
                f'{source.label_dir}; the first is {missing[0]}{label_suffix}. {source.way_out()}',
                len(missing),
            )
        alone = sorted(present - set(stems)) if not source.ann_file else []
        if alone:
            text = f'{len(alone)} label maps in {source.label_dir} have no image: {shorten(alone)}.'
            yield Problem(WARNING, 'label map without image', text, len(alone))
        self.items = [
            Item(
                os.path.join(source.image_dir, stem + image_suffix),
                os.path.join(source.label_dir, stem + label_suffix) if stem in present else None,
            )
            for stem in stems
        ]

    def _look(self, item: Item, size: tuple[int, int], facts: FileFacts) -> None:
        path = item.about
        if path is None:
            return
        try:
            labels = np.asarray(open_image(path))
        except DataError as error:
            facts.problems.append(Problem(ERROR, 'unreadable label map', str(error)))
            return
        if labels.ndim != 2:
            text = f'Label map {path} has {labels.shape[-1]} channels; it must have one, of label ids.'
            facts.problems.append(Problem(ERROR, 'label map with colours', text))
            return
        if labels.shape[::-1] != size:
            text = f'Label map {path} is {labels.shape[1]} x {labels.shape[0]} pixels, its image {size}.'
            facts.problems.append(Problem(ERROR, 'label map of another size', text))
        ignored = {255, self.source.option('ignore_index')} | ({0} if self.first else set())
        ids, counts = np.unique(labels, return_counts=True)
        found = Counter({int(i): int(count) for i, count in zip(ids, counts) if int(i) not in ignored})
        strange = sorted(label for label in found if not self.first <= label < self.first + self.num_ids)
        if strange:
            text = strange_labels(path, strange, self.num_ids, bool(self.first))
            facts.problems.append(Problem(ERROR, 'label outside the classes', text))
        elif not found:
            text = f'Label map {path} has no labelled pixel.'
            facts.problems.append(Problem(WARNING, 'image without labels', text))
        facts.labels = Counter({label - self.first: count for label, count in found.items() if label not in strange})
