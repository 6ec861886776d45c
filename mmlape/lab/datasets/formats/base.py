"""A dataset of a config: the paths and classes that it reads, and the check of what is there.

`check_structure` comes first, then the images one by one. Both yield issues and never stop at one:
the quick check raises the first error, the full check collects all.
"""

import inspect
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mmcv.transforms import LoadImageFromFile

from mmlape.console.log import log
from mmlape.errors import DataError
from mmlape.lab.datasets.folders import class_palette, other_form, read_listed
from mmlape.lab.datasets.images import (
    EITHER,
    STORED,
    WITHOUT_TAG,
    Annotated,
    ImageLoader,
    LoadedImage,
    count_pages,
    require_size,
    stored_type,
)

ERROR, WARNING = 'error', 'warning'
UNLABELLED = 'pixels without a label'
MAX_NAMES = 8
QUICKLY_FOUND = 100_000  # so many files of a list are looked up in about a second


def below_here(path: str) -> str:
    """Say which folder a relative path starts from; '' for an absolute one."""
    return '' if os.path.isabs(path) else f' below {os.getcwd()}'


@dataclass
class DataIssue:
    """Something wrong with a dataset; in a report all of one kind in a split, with the message of the first."""

    severity: str  # `ERROR` for what ends or spoils a run, `WARNING` for what a person should know
    topic: str  # a few words that similar issues share
    message: str  # one sentence that names the file
    count: int = 1  # how many things it is about
    split: str = ''  # of a report
    examples: list[str] = field(default_factory=list)  # of a report: the first messages

    def __str__(self) -> str:
        others = f' (the first of {self.count})' if self.count > 1 and len(self.examples) > 1 else ''
        return f'{self.topic}: {self.message}{others}'


def error(topic: str, message: str, count: int = 1) -> DataIssue:
    """Return an issue that ends or spoils a run."""
    return DataIssue(ERROR, topic, message, count)


def warning(topic: str, message: str, count: int = 1) -> DataIssue:
    """Return an issue that a person should know."""
    return DataIssue(WARNING, topic, message, count)


@dataclass
class DataSummary:
    """The contents of a dataset."""

    split: str
    path: str
    images: int | None  # the number of images; None where they were not counted
    num_classes: int
    checked: int = 0  # so many images were opened
    # the labels that occur: in all annotations, or in the sample where ``sampled`` is set
    seen: set[int] = field(default_factory=set)
    sampled: bool = True
    classes: tuple[str, ...] = ()
    # how often each label occurs: in instances, pixels, or images
    labels: Counter = field(default_factory=Counter)
    facts: Counter = field(default_factory=Counter)  # further counts, by what they count
    # of pixels without a label: how often each id occurs, as the files have it
    unlabelled: Counter = field(default_factory=Counter)

    def __str__(self) -> str:
        images = '' if self.images is None else f'{self.images} images, '
        where = ' in the sample' if self.sampled else ''
        share, without = '', self.facts[UNLABELLED]
        if without:
            pixels = without + sum(self.labels.values())
            share = f', {without / pixels:.0%} of the pixels without a label'
        return (
            f'{self.split} data {self.path}: {images}{len(self.seen)} of {self.num_classes} classes seen{share}{where}'
        )


@dataclass(frozen=True)
class ImageEntry:
    """An image to check."""

    path: str  # the image's file
    # what the dataset has for it: a COCO record, the path of a label map, a label, or None
    annotation: Any = None


@dataclass
class ImageFacts:
    """The issues of an image, and how often each label occurs in its label map."""

    issues: list[DataIssue] = field(default_factory=list)
    labels: Counter = field(default_factory=Counter)
    # how often each id of the file occurs that is no label
    unlabelled: Counter = field(default_factory=Counter)

    @contextmanager
    def noting(self, topic: str) -> Iterator[None]:
        """Turn a `DataError` into an issue."""
        try:
            yield
        except DataError as reason:
            self.issues.append(error(topic, str(reason)))


class DataSource:
    """One dataset of a config, with its paths resolved.

    A subclass describes a format and checks it. A format overrides the class attributes and
    `check_structure` and, where its files need it, `check_annotation`, `read_classes`,
    `set_classes` and `guarded_transforms`. The two checks may raise `DataError` where nothing
    further can be checked.

    Args:
        split: 'train', 'val' or 'test'.
        cfg: The dataset's own part of the config, to be read or changed.
        dataset_class: The class that ``cfg`` builds.
    """

    instructions = 'Put the data where the config expects it'  # how to obtain data of this format
    mini_folder = ''  # of the mini data of this format; '' for none
    # with which `make-mini-data` draws what the config trains on, its key of this name; '' for none
    mini_data_options = ''
    # of its split, each with its class; a dataset that is trained on has none
    metrics: Sequence[tuple[type | None, dict]] = ()
    steps: Sequence[tuple[type | None, dict]] = ()  # of its pipeline, each with its class
    pack_transform = ''  # packs a sample of this format
    is_part = False  # whether its split has other datasets, too
    absent_class = ''  # the fix for a class that one split does not have
    # whether the dataset class skips annotations of classes that the config does not name
    selects_classes = False

    def __init__(self, split: str, cfg: dict, dataset_class: type[Any]) -> None:
        self.split, self.cfg, self.dataset_class = split, cfg, dataset_class
        # this and the other paths are '' for none
        self.root = os.path.expanduser(cfg.get('data_root') or '')
        prefix = cfg.get('data_prefix') or {}
        if not isinstance(prefix, dict):
            prefix = dict(img_path=prefix)
        labels = prefix.get('seg_map_path')
        self.image_dir = os.path.join(self.root, prefix.get('img') or prefix.get('img_path') or '')
        self.label_dir = os.path.join(self.root, labels) if labels else ''
        self.ann_file = os.path.join(self.root, cfg['ann_file']) if cfg.get('ann_file') else ''
        given = (cfg.get('metainfo') or {}).get('classes')
        classes = given or self.class_metainfo
        if isinstance(classes, str):  # MMEngine takes a path to a list too
            classes = read_listed(classes) if os.path.isfile(classes) else [classes]
        # in label order; None where only the data has them
        self.classes = tuple(classes) if classes else None
        self.explicit = bool(given)  # the config, not the class, names the classes
        classes = self.classes or ()
        self.summary = DataSummary(split, self.ann_file or self.image_dir, None, len(classes), classes=classes)
        self.entries: list[ImageEntry] = []  # the images that exist, found by `check_structure`

    @property
    def class_metainfo(self) -> tuple[str, ...]:
        """The class names that the dataset class defines; () for none."""
        return tuple(getattr(self.dataset_class, 'METAINFO', {}).get('classes') or ())

    @property
    def is_local(self) -> bool:
        """Whether its paths are on this machine's file system."""
        return not any('://' in path for path in (self.root, self.ann_file, self.image_dir))

    def option(self, name: str) -> Any:
        """Return an argument's value: the config's, or the default of the nearest class that has one."""
        return self.cfg[name] if name in self.cfg else default_argument(self.dataset_class, name)

    def step_of(self, kind: type) -> Mapping[str, Any]:
        """Return the first transform of its pipeline of a class, or of one derived from it; empty for none."""
        return next((step for cls, step in self.steps if cls and issubclass(cls, kind)), {})

    def read_classes(self) -> tuple[str, ...] | None:
        """Read the class names from the data; None where it is missing or lists none."""
        return None

    def check_unlisted_classes(self) -> None:
        """Raise DataError unless data that lists no classes may be taken to have the config's."""
        if not self.classes:
            raise DataError(f'No classes found for {self.root}. {self.hint()}')

    def set_classes(self, classes: tuple[str, ...]) -> None:
        """Write class names and colours into ``cfg``."""
        palette = class_palette(len(classes))
        self.cfg['metainfo'] = {**(self.cfg.get('metainfo') or {}), 'classes': classes, 'palette': palette}

    def guarded_transforms(self) -> dict[str, dict]:
        """Return the options that replace transforms of these names by ones whose errors name the file."""
        return {}

    def hint(self) -> str:
        """Explain how to get such data, and how to point a config at it."""
        folder, options = self.mini_folder, self.mini_data_options
        if folder and os.path.isdir(nested := os.path.join(self.root, folder)):
            return f'Did you mean --cfg-options data_root={nested}?'
        parent, name = os.path.split(self.root.rstrip('/'))
        elsewhere = (
            'if it is elsewhere, pass --cfg-options data_root=DIR; if it has another layout, set data_prefix and '
            'ann_file of the datasets and evaluators.'
        )
        if name == folder and (options or os.path.basename(parent).startswith('mini')):
            words = ['mmlape make-mini-data', shlex.quote(parent or '.')]
            words += [options] * bool(options) + ['--overwrite'] * os.path.isdir(parent)
            return f'Generate it with "{" ".join(words)}"; {elsewhere}'
        mini = (
            ' For a first try, run "mmlape make-mini-data data/mini" and pass '
            f'--cfg-options data_root=data/mini/{folder}.'
        )
        return f'{self.instructions}; {elsewhere}' + mini * bool(folder)

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check paths, class names and annotations, all or some.

        Fill in ``entries`` and ``summary``.
        """
        yield from ()

    def check_annotation(self, entry: ImageEntry, size: tuple[int, int], facts: ImageFacts) -> None:
        """Check an entry's annotation against its image of ``size`` (width, height).

        May run in a thread.
        """

    def annotated(self, entry: ImageEntry) -> Annotated | None:
        """Return the size that an entry's boxes or label map say of its image; None without any."""
        return None

    def structure_issues(self, complete: bool) -> Iterator[DataIssue]:
        """Run `check_structure`, with its `DataError` as a last issue."""
        try:
            self._check_class_list()
            yield from self.check_structure(complete)
        except DataError as reason:
            yield error('cannot be read', str(reason))

    def check_image(self, entry: ImageEntry, smallest: int) -> ImageFacts:
        """Decode an image, with sides of ``smallest`` or more, and check its annotation.

        May run in a thread.
        """
        facts = ImageFacts()
        with facts.noting('unreadable image'):
            kind = stored_type(entry.path)
            image = ImageLoader.of(self.step_of(LoadImageFromFile)).load(entry.path, lambda: self.annotated(entry))
        if facts.issues:
            return facts
        with facts.noting('image smaller than a patch'):
            require_size(entry.path, *image.size, smallest)
        facts.issues += _orientation_issues(entry.path, image)
        size, brightest = image.size, image.pixels.max()
        del image  # one of 400 megapixels has 1.2 GB
        if kind != np.uint8:
            facts.issues.append(
                warning(
                    'image of 16 bits',
                    f'Image {entry.path} has {8 * kind.itemsize} bits a channel and is loaded with the upper 8: its '
                    f'largest value is then {brightest} of 255.',
                )
            )
        if (pages := count_pages(entry.path)) > 1:
            facts.issues.append(
                warning(
                    'image of several pages',
                    f'Image {entry.path} has {pages} pages, of which the first one is read: save each as a file.',
                )
            )
        self.check_annotation(entry, size, facts)
        return facts

    def count(self, facts: ImageFacts) -> None:
        """Add the labels of an image to the summary."""
        self.summary.labels.update(facts.labels)
        self.summary.seen |= set(facts.labels)
        if facts.unlabelled:
            self.summary.facts[UNLABELLED] += facts.unlabelled.total()
            self.summary.unlabelled.update(facts.unlabelled)

    def require(self, path: str, what: str, exists: Callable[[str], bool] = os.path.isdir) -> None:
        """Raise DataError unless a path of the config is '' or exists."""
        if path and not exists(path):
            raise DataError(
                f'{what} {path} of the {self.split} data does not exist{below_here(path)}{_near(path)}. {self.hint()}'
            )

    def missing_images(self, paths: Sequence[str], listed: int, fix: str = '') -> Iterator[DataIssue]:
        """Yield an error about the images that do not exist, of so many that the annotation file lists."""
        if paths:
            yield error(
                'image missing',
                f'{len(paths)} of {listed} images of {self.ann_file} do not exist; the first is '
                f'{paths[0]}{_near(paths[0])}. {fix or self.hint()}',
                len(paths),
            )

    def _check_class_list(self) -> None:
        """Raise DataError if the classes of the config are a text that is not the path of a list."""
        given = (self.cfg.get('metainfo') or {}).get('classes')
        if isinstance(given, str) and '://' not in given and not os.path.isfile(given):
            raise DataError(
                f'metainfo.classes of the {self.split} dataset is the text {given!r}, and there is '
                'no file of this name: OpenMMLab takes each letter for a class. Write a list of '
                f'names, as in metainfo=dict(classes=[{given!r}]).'
            )

    def nothing_to_learn(self) -> Iterator[DataIssue]:
        """Yield an error if the images, beyond those that were checked, have nothing to learn or to evaluate."""
        yield from ()

    def match_classes(self, names: Sequence[str], where: str) -> Iterator[DataIssue]:
        """Compare the class names of the data with the config's, which may be a selection in some formats.

        Args:
            names: Of the data.
            where: What has them, in the plural: a message begins with it.
        """
        if self.classes is None or tuple(names) == self.classes:
            return
        extra = [name for name in names if name not in self.classes]
        missing = [name for name in self.classes if name not in names]
        selection = self.selects_classes and self.explicit and not missing
        if selection and [name for name in names if name in self.classes] == list(self.classes):
            log(f'{where}: not in the config, so not used: {shorten(extra)}')
            return
        parts = [f'only in {one}: {shorten(of)}' for one, of in (('the data', extra), ('the config', missing)) if of]
        in_order = f'same names in another order: data {shorten(names)}, config {shorten(self.classes)}'
        difference = '; '.join(parts) or in_order
        root = self.root.rstrip('/') or self.image_dir
        absent = f' {self.absent_class}' * bool(missing and not extra)
        yield error(
            'class names differ',
            f'{where} do not match the classes of the config ({difference}).{absent} Pass '
            f'--cfg-options data_root={root} to take classes and num_classes from the data, or set '
            f'metainfo=dict(classes=...) of the {self.split} dataset.',
        )


def _near(path: str) -> str:
    """Return the remark that a file or folder of almost this name exists; '' without any."""
    folder, name = os.path.split(path.rstrip('/'))
    if not os.path.isdir(folder):
        return ''
    return other_form(name, (other for other in os.listdir(folder) if other != name))


def _orientation_issues(path: str, image: LoadedImage) -> Iterator[DataIssue]:
    """Warn of an image whose annotations are, or may be, of the stored pixels."""
    if image.annotated == STORED:
        yield warning(
            'image annotated as stored',
            f'Image {path} has the EXIF orientation {image.tag}, but its annotations are of the '
            'stored pixels, so it is loaded without being turned; other programs turn it. To '
            f'remove the tag: {WITHOUT_TAG}.',
        )
    elif image.annotated == EITHER:
        yield warning(
            'image with an orientation',
            f'Image {path} is turned by its EXIF orientation {image.tag} when it is loaded. If its '
            'annotations are of the stored pixels, which have the same size, they are of other '
            f'places, and scores are near 0. To remove the tag: {WITHOUT_TAG}.',
        )


def shorten(names: Iterable) -> str:
    """Join the first few names, and say how many more there are."""
    names = [str(name) for name in names]
    more = len(names) - MAX_NAMES
    return ', '.join(names[:MAX_NAMES]) + (f' and {more} more' if more > 0 else '')


def default_argument(cls: type[Any], name: str) -> Any:
    """Return the default of a constructor's argument, of the nearest base class that has one.

    None without any.
    """
    for base in cls.__mro__:
        parameter = inspect.signature(base.__init__).parameters.get(name)  # type: ignore[misc]
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return None
