"""Images with captions, of `mmlape.CaptionDataset`."""

import os
from collections.abc import Iterator

from mmlape.datasets.captions import image_path, read_captions
from mmlape.datasets.formats.base import ERROR, QUICKLY_FOUND, DataIssue, DataSource, ImageEntry
from mmlape.datasets.shards import PREFIX, files_of


class CaptionSource(DataSource):
    """A file of captions, and its images."""

    instructions = 'Captions: a .tsv, .jsonl or .json file, and the folder of its images; or .tar shards with both'
    pack_transform = 'PackInputs'
    classes_optional = True

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check that the file can be read, and that each of its images exists."""
        self.require(self.root, 'Data root')
        self.require(self.ann_file, 'Annotation file', lambda pattern: bool(files_of(pattern)))
        self.require(self.image_dir, 'Image directory')
        pairs = read_captions(self.ann_file)
        images = dict.fromkeys(image_path(self.image_dir, image) for image, _ in pairs)
        paths = [path for path in images if not path.startswith(PREFIX)]  # what stands in an archive is there
        look_up = complete or len(paths) <= QUICKLY_FOUND
        missing = {path: None for path in paths if look_up and not os.path.isfile(path)}
        if missing:
            message = (
                f'{len(missing)} of {len(paths)} images of {self.ann_file} do not exist, first {next(iter(missing))}.'
            )
            yield DataIssue(ERROR, 'missing image', f'{message} {self.hint()}', len(missing))
        self.entries = [ImageEntry(path) for path in paths if path not in missing]
        self.summary.images = len(images)
        self.summary.sampled = False
        self.summary.facts['captions'] = len(pairs)
