"""ADE20K's format: images, and label maps of the same names, as training gets their ids."""

import logging
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from mmcv.transforms import LoadAnnotations

from mmlape.console.log import log
from mmlape.errors import DataError
from mmlape.lab.datasets.folders import files_below, is_image, other_form, read_listed, read_names, require_unique
from mmlape.lab.datasets.formats.base import DataIssue, DataSource, ImageEntry, ImageFacts, error, shorten, warning
from mmlape.lab.datasets.images import JPEG, JPEG_2000, Annotated, decode, orientation, read_bytes


def read_label_map(path: str, backend: str = 'pillow', backend_args: dict | None = None) -> np.ndarray:
    """Read the label ids of an image, (H, W), as integers of whichever width.

    Raises:
        DataError: The file is missing, broken, or has colours, floats or a lossy compression.
    """
    content = read_bytes(path, backend_args)
    for starts, form in (((JPEG,), 'JPEG'), (JPEG_2000, 'JPEG 2000')):
        if content.startswith(starts):
            raise DataError(
                f'Label map {path} is a {form}, whose compression changes label ids: write it as '
                'PNG, from the labels before they were compressed.'
            )
    labels = decode(content, path, 'unchanged', backend)
    if labels.ndim == 3 and labels.shape[2] == 1:
        labels = labels[:, :, 0]
    if labels.ndim != 2:
        raise DataError(
            f'Label map {path} has {labels.shape[-1]} channels: write it as PNG with one, of the ids of classes.'
        )
    if labels.dtype.kind not in 'biu':
        raise DataError(f'Label map {path} has pixels that are floats: write it with integers of 8 bits.')
    return labels.astype(np.uint8) if labels.dtype == bool else labels


def annotated_by_map(path: str | None, backend: str = 'pillow', backend_args: dict | None = None) -> Annotated | None:
    """Return what a label map says of its image's pixels; None if there is none, or it cannot be read."""
    try:
        labels = read_label_map(path or '', backend, backend_args)
        return Annotated(labels.shape[::-1], orientation(read_bytes(path, backend_args)))
    except DataError:
        return None


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

    def __post_init__(self) -> None:
        """Raise DataError if there are more classes than MMSegmentation has ids."""
        most = 255 - self.first
        if self.num_classes > most:
            raise DataError(
                f'The data have {self.num_classes} classes, but the label maps of MMSegmentation '
                f'have 8 bits, and 255 is no label: take {most} classes or fewer.'
            )

    @property
    def first(self) -> int:
        """The id of the first class."""
        return int(self.reduce_zero_label)

    @property
    def ignored(self) -> tuple[int, ...]:
        """The ids of unlabelled pixels, in order."""
        reduced = {255, 0, self.ignore_index + 1}
        return tuple(sorted(reduced if self.reduce_zero_label else {255, self.ignore_index}))

    @property
    def unlabelled(self) -> str:
        """The ids of unlabelled pixels that 8 bits hold, for messages."""
        return ' and '.join(str(label) for label in self.ignored if label < 256)

    def __contains__(self, label: int) -> bool:
        """Return whether an id is one of a class, or of unlabelled pixels."""
        return self.first <= label < self.first + self.num_classes or label in self.ignored

    def require(self, path: str, labels: np.ndarray) -> None:
        """Raise DataError if a label map has an id that no class has."""
        valid = (labels >= self.first) & (labels < self.first + self.num_classes)
        for label in self.ignored:
            valid |= labels == label
        if not valid.all():
            raise DataError(self.unknown_message(path, np.unique(labels[~valid]).tolist()))

    def unknown_message(self, path: str, labels: list[int]) -> str:
        """Return the message about ids that no class has."""
        ids = ', '.join(map(str, labels[:8])) + (', ...' if len(labels) > 8 else '')
        return (
            f'Label map {path} has the label id {ids}, but the dataset has {self.num_classes} classes and '
            f'reduce_zero_label={self.reduce_zero_label}: ids {self.first} to {self.first + self.num_classes - 1} are '
            f'allowed, and {self.unlabelled} for unlabelled pixels. Correct the label map, or these of the dataset.'
        )


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
    counted = 0  # images

    @property
    def class_list(self) -> str:
        """The path where a list of the classes may be."""
        return os.path.join(self.root, 'classes.txt')

    def read_classes(self) -> tuple[str, ...] | None:
        """Read `classes.txt` of the data root."""
        return read_names(self.class_list) if os.path.isfile(self.class_list) else None

    def check_unlisted_classes(self) -> None:
        """Warn if the classes are those of a public dataset, which has no list.

        Refuse any others.
        """
        names = f'{len(self.classes or ())} classes of the config, {shorten(self.classes or ())}'
        fix = f'write your classes into {self.class_list}, a name a line in the order of the ids'
        if self.class_metainfo:
            message = f'{self.class_list} does not exist, so the data are taken to have the {names}; else {fix}.'
            log(message, logging.WARNING)
        elif self.classes:
            raise DataError(f'{self.class_list} does not exist, and the data need not have the {names}: {fix}.')

    def set_classes(self, classes: tuple[str, ...]) -> None:
        """Write class names; a dataset class with names of its own, which takes no others, becomes BaseSegDataset."""
        if self.class_metainfo:
            options = {name: self.option(name) for name in ('img_suffix', 'seg_map_suffix', 'reduce_zero_label')}
            is_scoped = '.' in self.cfg['type']
            self.cfg.update(options, type='mmseg.BaseSegDataset' if is_scoped else 'BaseSegDataset')
        super().set_classes(classes)

    @property
    def ids(self) -> LabelIds:
        """The ids that its label maps may have: of all classes where a dataset selects some.

        Raises:
            DataError: There are more classes than ids.
        """
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
            num_classes=ids.num_classes or 255 - ids.first,
            ignore_index=ids.ignore_index,
        )
        return {'LoadAnnotations': guard, 'mmseg.LoadAnnotations': guard}

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check paths, class names and pairs of files."""
        self.require(self.root, 'Data root')
        self.require(self.image_dir, 'Image directory')
        self.require(self.label_dir, 'Label map directory')
        known = self.class_metainfo
        listed = self.read_classes()
        if listed is not None:
            yield from self.match_classes(listed, f'The names in {self.class_list}')
        if not self.classes:
            raise DataError(f'The config names no classes for {self.image_dir}: set metainfo=dict(classes=...).')
        # ids refer to all of them where a dataset selects some
        self.summary.classes = known or self.classes
        require_unique(self.summary.classes, 'metainfo=dict(classes=...)')
        reduced = self.ids.reduce_zero_label
        step = self.step_of(LoadAnnotations)
        if step.get('reduce_zero_label') not in (None, reduced):
            raise DataError(
                f'{self.split}_dataloader: LoadAnnotations has reduce_zero_label='
                f'{step["reduce_zero_label"]}, the dataset {reduced}: give both the same.'
            )
        stems = yield from self._find_images()
        self.summary.path, self.summary.images = self.image_dir, len(stems)
        yield from self._pair_files(stems)

    def _find_images(self) -> Generator[DataIssue, None, list[str]]:
        """Return the paths of the images without their suffix: those of a list, or of the folder."""
        suffix = self.option('img_suffix')
        if self.ann_file:
            self.require(self.ann_file, 'List of images', os.path.isfile)
            stems = [line.strip() for line in read_listed(self.ann_file)]
            if not stems:
                raise DataError(f'{self.ann_file} has no images.')
            paths = [os.path.join(self.image_dir, stem + suffix) for stem in stems]
            fix = f'Write the names without {suffix}.' if stems[0].endswith(suffix) else ''
            yield from self.missing_images([path for path in paths if not os.path.isfile(path)], len(stems), fix)
            return stems
        files = sorted(files_below(self.image_dir))
        stems = [file.removesuffix(suffix) for file in files if file.endswith(suffix)]
        labels, label_suffix = self.label_dir, self.option('seg_map_suffix')
        if os.path.normpath(labels or '/') == os.path.normpath(self.image_dir):
            files = [file for file in files if not file.endswith(label_suffix)]
        others = [file for file in files if is_image(file) and not file.endswith(suffix)]
        if not stems:
            found = f' ({shorten(others)}: set img_suffix to theirs)' * bool(others)
            raise DataError(f'{self.image_dir} has no {suffix} images{found}. {self.hint()}')
        known = set(stems)
        meant = [
            file
            for file in others
            if (stem := os.path.splitext(file)[0]) not in known
            and labels
            and os.path.isfile(os.path.join(labels, stem + label_suffix))
        ]
        if meant:
            yield error(
                'image of another suffix',
                f'{len(meant)} images in {self.image_dir} have label maps, but no suffix '
                f'{suffix}, so they would be left out: {shorten(meant)}. Rename them, or set '
                f'img_suffix of the {self.split} dataset.',
                len(meant),
            )
        return stems

    def _pair_files(self, stems: list[str]) -> Iterator[DataIssue]:
        image_suffix, label_suffix = self.option('img_suffix'), self.option('seg_map_suffix')
        files = list(files_below(self.label_dir)) if self.label_dir else []
        present = {file.removesuffix(label_suffix) for file in files if file.endswith(label_suffix)}
        missing = []
        if self.label_dir:
            missing = [
                stem
                for stem in stems
                if stem not in present and not (os.path.isabs(stem) and os.path.isfile(stem + label_suffix))
            ]
        if missing:
            first = f'{missing[0]}{label_suffix}'
            yield error(
                'label map missing',
                f'{len(missing)} of {len(stems)} images in {self.image_dir} have no label map in '
                f'{self.label_dir}; the first is {first}{other_form(first, files)}. {self.hint()}',
                len(missing),
            )
        unpaired = sorted(present - set(stems)) if not self.ann_file else []
        if unpaired:
            yield warning(
                'label map without image',
                f'{len(unpaired)} label maps in {self.label_dir} have no image: {shorten(unpaired)}.',
                len(unpaired),
            )
        without = set(missing)
        self.entries = [
            ImageEntry(
                os.path.join(self.image_dir, stem + image_suffix),
                os.path.join(self.label_dir, stem + label_suffix) if self.label_dir and stem not in without else None,
            )
            for stem in stems
        ]

    def count(self, facts: ImageFacts) -> None:
        """Add the labels of an image to the summary."""
        super().count(facts)
        self.counted += 1

    def nothing_to_learn(self) -> Iterator[DataIssue]:
        """Warn of ids that seem shifted; yield an error if no class can be learnt or evaluated.

        Where those that were checked have none, the other label maps are read until there is one.
        """
        maps = [entry.annotation for entry in self.entries if entry.annotation]
        if not maps:
            return
        for path in maps if self.counted < len(self.entries) else ():
            if self._has_classes():
                break
            try:
                facts = ImageFacts()
                self._count_labels(read_label_map(path, **self._map_options()), facts)
            except DataError:  # the full check and the run name it
                continue
            self.count(facts)
        seen, names = self.summary.seen, self.summary.classes
        if not self._has_classes():
            if seen or self.summary.unlabelled:  # else all are outside the classes, which is told
                yield error('nothing to learn', self._nothing_message())
            return
        zeros = self.ids.reduce_zero_label and 0 in self.summary.unlabelled
        if zeros and seen == {*range(len(names) - 1)}:
            yield warning(
                'ids from 0',
                f'The label maps in {self.label_dir} have ids from 0 to {len(names) - 1}, for '
                f'{len(names)} classes. By reduce_zero_label=True, 0 is no label and {names[0]} '
                f'is 1: if 0 is {names[0]}, all classes are taken for others; add 1 to all ids, or '
                'set reduce_zero_label=False.',
            )

    def _has_classes(self) -> bool:
        """Return whether there is something to tell apart, or, in validation, to be evaluated."""
        known, wanted = self.summary.classes, set(self.classes or ())
        seen = {label for label in self.summary.seen if known[label] in wanted}
        is_mask = seen == {0} and not self.ids.reduce_zero_label and self.summary.unlabelled[255]
        learns = self.split == 'train' and not self.is_part
        return len(seen) >= (min(2, len(wanted)) if learns or is_mask else 1)

    def _nothing_message(self) -> str:
        ids, summary = self.ids, self.summary
        found = {label + ids.first for label in summary.seen} | {*summary.unlabelled}
        classes = ', '.join(summary.classes[label] for label in sorted(summary.seen)) or 'no class'
        return (
            f'The label maps in {self.label_dir} have nothing to learn: the ids {", ".join(map(str, sorted(found)))}, '
            f'which are {classes}; {ids.unlabelled}: no label. Write {ids.first} for the first '
            f'class, {ids.first + 1} for the second, and so on; or correct classes and reduce_zero_label.'
        )

    def _map_options(self) -> dict[str, Any]:
        """Return how the pipeline reads label maps."""
        step = self.step_of(LoadAnnotations)
        return dict(backend=step.get('imdecode_backend', 'pillow'), backend_args=step.get('backend_args'))

    def annotated(self, entry: ImageEntry) -> Annotated | None:
        """Return the size of a label map."""
        return annotated_by_map(entry.annotation, **self._map_options())

    def check_annotation(self, entry: ImageEntry, size: tuple[int, int], facts: ImageFacts) -> None:
        """Check the size and the ids of a label map, and count its pixels."""
        path, ids = entry.annotation, self.ids
        if path is None:
            return
        labels = None
        with facts.noting('unreadable label map'):
            labels = read_label_map(path, **self._map_options())
        if labels is None:
            return
        with facts.noting('label map of another size'):
            require_image_size(path, labels, size)
        if unknown := self._count_labels(labels, facts):
            facts.issues.append(error('label outside the classes', ids.unknown_message(path, unknown)))
        elif not facts.labels:
            facts.issues.append(warning('image without labels', f'Label map {path} has no labelled pixel.'))

    def _count_labels(self, labels: np.ndarray, facts: ImageFacts) -> list[int]:
        """Count the pixels of each class, and those without one; return the ids of no class."""
        ids, unknown = self.ids, []
        for label, count in zip(*(part.tolist() for part in np.unique(labels, return_counts=True))):
            if label in ids.ignored:
                facts.unlabelled[label] = count
            elif label in ids:
                facts.labels[label - ids.first] = count
            else:
                unknown.append(label)
        return unknown
