"""The contract of the data checks: what they accept is trained on and tested to the end, and its numbers are right.

A table of `Case` has changes of small valid data, and what becomes of each: `Refused`, `Perfect` or `Warned`. `hold`
asks it of check-data, of what training checks before its first step, of testing, and of every sample that is loaded.
The perfect model of the test is `seen`: it knows the colours that the classes are drawn in, and gets the pixels that a
model would get, after EXIF tags and whatever else a loader makes of a file. No image is square.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from mmengine import Config
from mmengine.dataset import BaseDataset
from mmengine.evaluator import Evaluator
from mmengine.registry import DATASETS, init_default_scope

from mmlape.errors import DataError
from mmlape.lab.datasets import checks
from mmlape.lab.datasets.formats import SPLITS, iter_sources
from mmlape.lab.datasets.transforms import guard_loading, load_again


@dataclass(frozen=True)
class Refused:
    """One line with all these words, by check-data and by train or test, in whichever file it is.

    Without words it is the line that is recorded, see `told`. With ``in_images`` what is wrong shows in an image that
    the quick check may not have opened: then the loader stops, too.
    """

    words: tuple[str, ...] = ()
    in_images: bool = False
    splits: tuple[str, ...] = ('train', 'val')


@dataclass(frozen=True)
class Perfect:
    """No error; training gets what the pixels show, and perfect predictions score 1.

    Without ``complete`` training need not get every object, as of a crowd.
    """

    complete: bool = True


@dataclass(frozen=True)
class Warned:
    """A warning with these words, everything runs to its end, and perfect predictions score this where it is given."""

    words: tuple[str, ...]
    score: float | None = None


@dataclass(frozen=True)
class Case:
    """A change of small valid data, and what becomes of it."""

    name: str
    # changes the data in a folder, those of a split: 'train' or 'val'
    change: Callable[[Path, str], None]
    outcome: Refused | Perfect | Warned
    options: dict = field(default_factory=dict)  # of the config, as --cfg-options
    configure: Callable[[Config], None] | None = None  # changes the config

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Kind:
    """A format of data, and its perfect model."""

    make: Callable[[Path], None]  # writes small valid data
    config: Callable[[Path], Config]
    answer: Callable[[dict], object]  # the data sample of an image with perfect predictions
    require_learnt: Callable[[dict], None]  # asserts that a training sample is what its pixels show
    scores: tuple[str, ...]  # of the metrics, which perfect predictions make `perfect`
    perfect: float = 1.0


of_splits = pytest.mark.parametrize(
    'every_split', [False, pytest.param(True, marks=pytest.mark.release)], ids=['the last split', 'every split']
)
"""`make test` changes one split, validation where it can be: training and testing read it. A release changes both."""


def hold(case: Case, kind: Kind, folder: Path, every_split: bool) -> list[str]:
    """Assert what becomes of a case, a refused one in each split or in the last one; return lines to be recorded."""
    original = folder / 'original'
    if not original.exists():
        kind.make(original)
    root = folder / 'changed'
    if isinstance(case.outcome, Refused):
        for split in case.outcome.splits[0 if every_split else -1 :]:
            cfg = _changed(case, kind, original, root, (split,))
            told = _require_refusal(cfg, split, case.outcome)
        return [f'{case}: {line.replace(str(root), "data")}' for line in told]
    cfg = _changed(case, kind, original, root, ('train', 'val'))
    warned = isinstance(case.outcome, Warned)
    _require_acceptance(cfg, case.outcome.words if warned else ())
    for _, sample in loaded(cfg, 'train'):
        if not warned and case.outcome.complete:
            kind.require_learnt(sample)
    scores = perfect_scores(cfg, kind)
    wanted = case.outcome.score if warned else kind.perfect
    if wanted is not None:
        found = {name: scores[name] for name in kind.scores if name in scores}
        assert found and found == pytest.approx(dict.fromkeys(found, wanted), abs=1e-6), found
    return []


def _changed(case: Case, kind: Kind, original: Path, root: Path, splits: tuple[str, ...]) -> Config:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(original, root)
    for split in splits:
        case.change(root, split)
    cfg = kind.config(root)
    cfg.merge_from_dict(case.options)
    if case.configure:
        case.configure(cfg)
    return cfg


def _require_refusal(cfg: Config, split: str, outcome: Refused) -> list[str]:
    """Assert that each command refuses data in the same words, and return these where they are to be recorded."""
    command = (lambda: checks.check_data(cfg, ('test',))) if split == 'val' else (lambda: _of_train(cfg))
    report = checks.full_check(cfg, ('train', 'test') if split == 'val' else SPLITS)
    messages = [example for group in report.errors for example in group.examples]
    with pytest.raises(DataError) as caught:
        command()
    told = [str(caught.value)]
    if outcome.in_images:
        with patch.object(checks, 'SAMPLE', 0):
            command()
        with pytest.raises(DataError) as caught:
            list(loaded(cfg, 'train' if split == 'train' else 'test'))
        told += [str(caught.value)] * (str(caught.value) not in told)
    if outcome.words:
        for lines in (messages, *([line] for line in told)):
            _require_words(outcome.words, lines)
        return []
    assert any(told[0].startswith(message) for message in messages), (told, messages)
    assert not any('\n' in line for line in told)
    return told


def _require_acceptance(cfg: Config, words: tuple[str, ...]) -> None:
    """Assert that no command finds an error, and that each warns in these words."""
    report = checks.full_check(cfg, SPLITS)
    assert not report.errors, [group.examples for group in report.errors]
    told = [[example for group in report.issues for example in group.examples]]
    for command in (lambda: _of_train(cfg), lambda: checks.check_data(cfg, ('test',))):
        with patch.object(checks, 'log') as log:
            command()
        told.append([str(call.args[0]) for call in log.call_args_list])
    for messages in told if words else ():
        _require_words(words, messages)


def _of_train(cfg: Config) -> None:
    """Check what training checks, as it does."""
    checks.check_data(cfg, ('train', 'val'), list(iter_sources(cfg)))


def _require_words(words: tuple[str, ...], messages: list[str]) -> None:
    matching = [message for message in messages if all(word in message for word in words)]
    assert matching, f'no line has all of {words}: {messages}'
    assert '\n' not in matching[0], matching[0]


def loaded(cfg: Config, split: str) -> Iterator[tuple[BaseDataset, dict]]:
    """Load every sample of a split as a run does."""
    import mmseg.datasets  # noqa: F401

    cfg = Config(cfg.to_dict())
    guard_loading(cfg)
    init_default_scope(cfg.default_scope)
    dataset = DATASETS.build(cfg[f'{split}_dataloader'].dataset)
    assert len(dataset)
    for index in range(len(dataset)):
        yield dataset, dataset[index]


def pixels_of(sample: dict) -> np.ndarray:
    """Return the RGB image of a packed sample, (H, W, 3)."""
    return sample['inputs'].numpy()[::-1].transpose(1, 2, 0)


def perfect_scores(cfg: Config, kind: Kind) -> dict[str, float]:
    """Evaluate perfect predictions of the test data, whose images are loaded again as a page draws them."""
    evaluator, count = None, 0
    for dataset, sample in loaded(cfg, 'test'):
        if evaluator is None:
            evaluator = Evaluator(Config(cfg.to_dict()).test_evaluator)
            evaluator.dataset_meta = dataset.metainfo
        evaluator.process([kind.answer(sample)], sample)
        np.testing.assert_array_equal(load_again(sample['data_samples']), pixels_of(sample))
        count += 1
    return evaluator.evaluate(count)


def edit_json(path: Path, change: Callable[[dict], object]) -> None:
    """Change the content of a JSON file; what ``change`` returns, if anything, replaces it."""
    content = json.loads(path.read_text())
    result = change(content)
    path.write_text(json.dumps(content if result is None else result))
