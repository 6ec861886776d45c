"""ADE20K's format: images, and label maps of the same names."""

import logging
import os
from collections import Counter
from collections.abc import Iterator

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
    open_image,
    shorten,
)
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

    def guarded_transforms(self) -> dict[str, dict]:
        """Check label ids while loading."""
        ids = dict(
            num_classes=len(self.classes or ()) or 255, ignore_index=self.option('ignore_index')
        )
        guard = dict(type='mmlape.LoadSegAnnotations', **ids)
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
        self.num_ids, self.first = (
            len(self.summary.classes),
            int(bool(self.option('reduce_zero_label'))),
        )
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

    def check_annotation(self, entry: ImageEntry, size: tuple[int, int], facts: ImageFacts) -> None:
        """Check the size and the ids of a label map, and count its pixels."""
        path = entry.annotation
        if path is None:
            return
        try:
            labels = np.asarray(open_image(path))
        except DataError as error:
            facts.issues.append(DataIssue(ERROR, 'unreadable label map', str(error)))
            return
        if labels.ndim != 2:
            message = (
                f'Label map {path} has {labels.shape[-1]} channels; it must have one, of label ids.'
            )
            facts.issues.append(DataIssue(ERROR, 'label map with colours', message))
            return
        if labels.shape[::-1] != size:
            message = f'Label map {path} is {labels.shape[1]} x {labels.shape[0]} pixels, its image {size}.'
            facts.issues.append(DataIssue(ERROR, 'label map of another size', message))
        own = self.option('ignore_index')
        ignored = ignored_ids(255 if own is None else own, bool(self.first))
        ids, counts = np.unique(labels, return_counts=True)
        pixels = Counter(
            {int(i): int(count) for i, count in zip(ids, counts) if int(i) not in ignored}
        )
        unknown = sorted(
            label for label in pixels if not self.first <= label < self.first + self.num_ids
        )
        if unknown:
            message = unknown_labels_message(path, unknown, self.num_ids, bool(self.first), ignored)
            facts.issues.append(DataIssue(ERROR, 'label outside the classes', message))
        elif not pixels:
            message = f'Label map {path} has no labelled pixel.'
            facts.issues.append(DataIssue(WARNING, 'image without labels', message))
        facts.labels = Counter(
            {label - self.first: count for label, count in pixels.items() if label not in unknown}
        )


def ignored_ids(ignore_index: int, reduce_zero_label: bool) -> set[int]:
    """Return the ids, as stored in the file, of unlabelled pixels.

    ``ignore_index`` is after ``reduce_zero_label``.
    """
    return {255, 0, ignore_index + 1} if reduce_zero_label else {255, ignore_index}


def unknown_labels_message(
    path: str, labels: list[int], num_classes: int, reduce_zero_label: bool, ignored: set[int]
) -> str:
    """Return the message about label ids, as stored in the file, that no class has."""
    first, last = int(reduce_zero_label), num_classes - 1 + int(reduce_zero_label)
    ids = ', '.join(map(str, labels[:8])) + (', ...' if len(labels) > 8 else '')
    unlabelled = ' and '.join(str(label) for label in sorted(ignored) if label < 256)
    return (
        f'Label map {path} has the label id {ids}, but the dataset has {num_classes} classes: '
        f'ids {first} to {last} are allowed, and {unlabelled} for unlabelled pixels. '
        'Correct the label map, or the classes and reduce_zero_label of the dataset.'
    )
