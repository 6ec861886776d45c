"""The check of data in ADE20K's format: images, and label maps of the same names."""

import os
from collections import Counter
from collections.abc import Iterator

import numpy as np

from mmlape.datasets.checks.base import DatasetCheck, ImageEntry, ImageFacts, files_below, shorten
from mmlape.datasets.checks.issues import ERROR, WARNING, DataIssue
from mmlape.datasets.image_files import open_image
from mmlape.datasets.sources import read_lines
from mmlape.datasets.transforms import unknown_labels_message
from mmlape.errors import DataError


class SegmentationCheck(DatasetCheck):
    """Checks class names, that each image has a label map, and the ids in it."""

    def check_structure(self) -> Iterator[DataIssue]:
        """Check paths, class names and pairs of files."""
        source = self.source
        self.require(source.root, 'Data root')
        self.require(source.image_dir, 'Image directory')
        self.require(source.label_dir, 'Label map directory')
        known = source.class_metainfo
        if known and not set(source.classes) <= set(known):
            unknown = shorten([name for name in source.classes if name not in known])
            raise DataError(
                f'The config gives {source.dataset_class.__name__} the classes {unknown}, which it does not have: '
                "use type='BaseSegDataset' with reduce_zero_label=True."
            )
        listed = source.read_classes()
        if listed is not None:
            yield from self.match_classes(listed, source.class_list)
        if not source.classes:
            raise DataError(f'The config names no classes for {source.image_dir}: set metainfo=dict(classes=...).')
        stems = self._stems()
        if not stems:
            raise DataError(f'{source.image_dir} has no {source.option("img_suffix")} images. {source.hint()}')
        self.summary.path, self.summary.images = source.image_dir, len(stems)
        self.summary.classes = known or source.classes  # ids refer to all of them where a dataset selects some
        self.num_ids, self.first = len(self.summary.classes), int(bool(source.option('reduce_zero_label')))
        yield from self._pair_files(stems)

    def _stems(self) -> list[str]:
        """Return the image names, without suffix, relative to the image directory; from the list if there is one."""
        source = self.source
        if source.ann_file:
            self.require(source.ann_file, 'List of images', os.path.isfile)
            return read_lines(source.ann_file)
        return sorted(files_below(source.image_dir, source.option('img_suffix')))

    def _pair_files(self, stems: list[str]) -> Iterator[DataIssue]:
        source = self.source
        image_suffix, label_suffix = source.option('img_suffix'), source.option('seg_map_suffix')
        present = set(files_below(source.label_dir, label_suffix)) if source.label_dir else set()
        missing = [stem for stem in stems if stem not in present] if source.label_dir else []
        if missing:
            message = (
                f'{len(missing)} of {len(stems)} images in {source.image_dir} have no label map in '
                f'{source.label_dir}; the first is {missing[0]}{label_suffix}. {source.hint()}'
            )
            yield DataIssue(ERROR, 'label map missing', message, len(missing))
        unpaired = sorted(present - set(stems)) if not source.ann_file else []
        if unpaired:
            message = f'{len(unpaired)} label maps in {source.label_dir} have no image: {shorten(unpaired)}.'
            yield DataIssue(WARNING, 'label map without image', message, len(unpaired))
        self.entries = [
            ImageEntry(
                os.path.join(source.image_dir, stem + image_suffix),
                os.path.join(source.label_dir, stem + label_suffix) if stem in present else None,
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
            message = f'Label map {path} has {labels.shape[-1]} channels; it must have one, of label ids.'
            facts.issues.append(DataIssue(ERROR, 'label map with colours', message))
            return
        if labels.shape[::-1] != size:
            message = f'Label map {path} is {labels.shape[1]} x {labels.shape[0]} pixels, its image {size}.'
            facts.issues.append(DataIssue(ERROR, 'label map of another size', message))
        ignored = {255, self.source.option('ignore_index')} | ({0} if self.first else set())
        ids, counts = np.unique(labels, return_counts=True)
        found = Counter({int(i): int(count) for i, count in zip(ids, counts) if int(i) not in ignored})
        unknown = sorted(label for label in found if not self.first <= label < self.first + self.num_ids)
        if unknown:
            message = unknown_labels_message(path, unknown, self.num_ids, bool(self.first))
            facts.issues.append(DataIssue(ERROR, 'label outside the classes', message))
        elif not found:
            message = f'Label map {path} has no labelled pixel.'
            facts.issues.append(DataIssue(WARNING, 'image without labels', message))
        facts.labels = Counter({label - self.first: count for label, count in found.items() if label not in unknown})
