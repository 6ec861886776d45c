"""ADE20K's format: images, and label maps of the same names."""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from mmengine.logging import print_log

from mmlape.datasets.formats.base import (
    ERROR,
    WARNING,
    DataIssue,
    DataSource,
    ImageEntry,
    ImageFacts,
    files_below,
    shorten,
)
from mmlape.datasets.images import Annotated, annotated_by_map, read_label_map, step_of
from mmlape.datasets.sources import read_lines
from mmlape.errors import DataError


class SegmentationSource(DataSource):
    """ADE20K's format: images, and label maps of the same names.

    `classes.txt` may list the classes.
    """

    instructions = (
        'ADE20K: unpack http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip so '
        'that the data root holds images/{training,validation}/*.jpg and '
        'annotations/{training,validation}/*.png'
    )
    mini_folder = 'ade'
    pack_transform = 'PackSegInputs'
    classes_optional = True
    layout_keys = ('data_prefix.img_path', 'data_prefix.seg_map_path')

    @property
    def class_list(self) -> str:
        """The path where a list of the classes may be."""
        return os.path.join(self.root, 'classes.txt')

    def read_classes(self) -> tuple[str, ...] | None:
        """Read `classes.txt` of the data root."""
        return tuple(read_lines(self.class_list)) if os.path.isfile(self.class_list) else None

    def check_unlisted_classes(self) -> None:
        """Warn if the classes are those of a public dataset, which has no list.

        Refuse any others.
        """
        names = f'{len(self.classes or ())} classes of the config, {shorten(self.classes or ())}'
        fix = f'write your classes into {self.class_list}, a name a line in the order of the ids'
        if self.class_metainfo:
            message = f'{self.class_list} does not exist, so the data are taken to have the {names}; else {fix}.'
            print_log(message, logger='current', level=logging.WARNING)
        elif self.classes:
            raise DataError(
                f'{self.class_list} does not exist, and the data need not have the {names}: {fix}.'
            )

    def set_classes(self, classes: tuple[str, ...]) -> None:
        """Write class names; a dataset class with names of its own, which takes no others, becomes BaseSegDataset."""
        if self.class_metainfo:
            options = {
                name: self.option(name)
                for name in ('img_suffix', 'seg_map_suffix', 'reduce_zero_label')
            }
            scope = str(self.cfg['type']).rpartition('.')[0]
            self.cfg.update(options, type=f'{scope}.BaseSegDataset' if scope else 'BaseSegDataset')
        super().set_classes(classes)

    @property
    def ids(self) -> 'LabelIds':
        """The ids that its label maps may have: of all classes where a dataset selects some."""
        ignore_index = self.option('ignore_index')
        return LabelIds(
            len(self.class_metainfo or self.classes or ()),
            bool(self.option('reduce_zero_label')),
            255 if ignore_index is None else ignore_index,
        )

    def guarded_transforms(self) -> dict[str, dict]:
        """Check label ids while loading."""
        ids = self.ids
        guard = dict(
            type='mmlape.LoadSegAnnotations',
            num_classes=ids.num_classes or 255,
            ignore_index=ids.ignore_index,
        )
        return {'LoadAnnotations': guard, 'mmseg.LoadAnnotations': guard}

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check paths, class names and pairs of files."""
        self.require(self.root, 'Data root')
        self.require(self.image_dir, 'Image directory')
        self.require(self.label_dir, 'Label map directory')
        known = self.class_metainfo
        if known and not set(self.classes) <= set(known):
            unknown = shorten([name for name in self.classes if name not in known])
            raise DataError(
                f'The config gives {self.dataset_class.__name__} the classes {unknown}, which it '
                'does not have: '
                "use type='BaseSegDataset' with reduce_zero_label=True."
            )
        listed = self.read_classes()
        if listed is not None:
            yield from self.match_classes(listed, self.class_list)
        if not self.classes:
            raise DataError(
                f'The config names no classes for {self.image_dir}: set metainfo=dict(classes=...).'
            )
        if self.ann_file:
            self.require(self.ann_file, 'List of images', os.path.isfile)
            stems = read_lines(self.ann_file)
        else:
            stems = sorted(files_below(self.image_dir, self.option('img_suffix')))
        if not stems:
            raise DataError(
                f'{self.image_dir} has no {self.option("img_suffix")} images. {self.hint()}'
            )
        self.summary.path, self.summary.images = self.image_dir, len(stems)
        # ids refer to all of them where a dataset selects some
        self.summary.classes = known or self.classes
        yield from self._pair_files(stems)

    def _pair_files(self, stems: list[str]) -> Iterator[DataIssue]:
        image_suffix, label_suffix = self.option('img_suffix'), self.option('seg_map_suffix')
        present = set(files_below(self.label_dir, label_suffix)) if self.label_dir else set()
        missing = [stem for stem in stems if stem not in present] if self.label_dir else []
        if missing:
            message = (
                f'{len(missing)} of {len(stems)} images in {self.image_dir} have no label map in '
                f'{self.label_dir}; the first is {missing[0]}{label_suffix}. {self.hint()}'
            )
            yield DataIssue(ERROR, 'label map missing', message, len(missing))
        unpaired = sorted(present - set(stems)) if not self.ann_file else []
        if unpaired:
            message = f'{len(unpaired)} label maps in {self.label_dir} have no image: {shorten(unpaired)}.'
            yield DataIssue(WARNING, 'label map without image', message, len(unpaired))
        self.entries = [
            ImageEntry(
                os.path.join(self.image_dir, stem + image_suffix),
                os.path.join(self.label_dir, stem + label_suffix) if stem in present else None,
            )
            for stem in stems
        ]

    def _map_options(self) -> dict[str, Any]:
        """Return how the pipeline reads label maps."""
        step = step_of(self.cfg.get('pipeline'), 'LoadAnnotations')
        return dict(
            backend=step.get('imdecode_backend', 'pillow'), backend_args=step.get('backend_args')
        )

    def annotated(self, entry: ImageEntry) -> Annotated | None:
        """Return the size of a label map, and its own tag."""
        return annotated_by_map(entry.annotation, **self._map_options())

    def check_annotation(self, entry: ImageEntry, size: tuple[int, int], facts: ImageFacts) -> None:
        """Check the size and the ids of a label map, and count its pixels."""
        path, ids = entry.annotation, self.ids
        if path is None:
            return
        try:
            labels = read_label_map(path, **self._map_options())
        except DataError as error:
            facts.issues.append(DataIssue(ERROR, 'unreadable label map', str(error)))
            return
        try:
            require_image_size(path, labels, size)
        except DataError as error:
            facts.issues.append(DataIssue(ERROR, 'label map of another size', str(error)))
        counts = ids.count(labels)
        facts.unlabelled = sum(counts[label] for label in ids.ignored)
        unknown = [label for label in counts if label not in ids]
        if unknown:
            message = ids.unknown_message(path, unknown)
            facts.issues.append(DataIssue(ERROR, 'label outside the classes', message))
        elif facts.unlabelled == labels.size:
            message = f'Label map {path} has no labelled pixel.'
            facts.issues.append(DataIssue(WARNING, 'image without labels', message))
        facts.labels = Counter(
            {
                label - ids.first: count
                for label, count in counts.items()
                if label in ids and label not in ids.ignored
            }
        )


def require_image_size(path: str, labels: np.ndarray, size: tuple[int, int]) -> None:
    """Raise DataError if a label map has another size than its image, (width, height)."""
    if labels.shape[::-1] != tuple(size):
        raise DataError(
            f'Label map {path} is {labels.shape[1]} x {labels.shape[0]} pixels, its image '
            f'{size[0]} x {size[1]}: each pixel of the image needs its label.'
        )


@dataclass(frozen=True)
class LabelIds:
    """The ids that label maps may have, as the files have them."""

    num_classes: int
    reduce_zero_label: bool  # 0 is no label, and the classes begin with 1
    ignore_index: int  # of unlabelled pixels, beside 255, after ``reduce_zero_label``

    @property
    def first(self) -> int:
        """The id of the first class."""
        return int(self.reduce_zero_label)

    @property
    def ignored(self) -> tuple[int, ...]:
        """The ids of unlabelled pixels, in order."""
        reduced = {255, 0, self.ignore_index + 1}
        return tuple(sorted(reduced if self.reduce_zero_label else {255, self.ignore_index}))

    def __contains__(self, label: int) -> bool:
        """Return whether an id is one of a class, or of unlabelled pixels."""
        return self.first <= label < self.first + self.num_classes or label in self.ignored

    def count(self, labels: np.ndarray) -> Counter[int]:
        """Return how many pixels have each id."""
        ids, counts = np.unique(labels, return_counts=True)
        return Counter(dict(zip(ids.tolist(), counts.tolist())))

    def require(self, path: str, labels: np.ndarray) -> None:
        """Raise DataError if a label map has an id that no class has."""
        valid = (labels >= self.first) & (labels < self.first + self.num_classes)
        for label in self.ignored:
            valid |= labels == label
        if not valid.all():
            raise DataError(self.unknown_message(path, np.unique(labels[~valid]).tolist()))

    def unknown_message(self, path: str, labels: list[int]) -> str:
        """Return the message about ids that no class has."""
        first, last = self.first, self.first + self.num_classes - 1
        ids = ', '.join(map(str, labels[:8])) + (', ...' if len(labels) > 8 else '')
        unlabelled = ' and '.join(str(label) for label in self.ignored if label < 256)
        fix = 'Correct the label map, or the classes and reduce_zero_label of the dataset.'
        if labels == [last + 1] and not self.reduce_zero_label:
            fix = f'If ids begin with 1, subtract 1, or set reduce_zero_label=True. {fix}'
        return (
            f'Label map {path} has the label id {ids}, but the dataset has {self.num_classes} '
            f'classes: ids {first} to {last} are allowed, and {unlabelled} for unlabelled pixels. '
            f'{fix}'
        )
