"""Study files: one YAML file a grid of ablations, whose arms are a base config with overrides.

    title: DPN, Table 6
    paper: DPN (TMLR 2023)            # whose the figures are; needed as soon as an arm has one
    table: Table 6
    runs: not stated                  # how many runs a figure is of
    dataset: ImageNet-1K
    time: 8 h on two cores            # of all runs, if it is known
    metric: top-1                     # of the figures, as metafiles name it
    relative_to: dual                 # figures are differences from this arm; without it they are scores
    seeds: [121, 122, 123]
    bases:                            # or `base: CONFIG` for a single one
      b16: mmlape::vit/vit-base-p16_8xb512-93k_in1k
      s16:
        base: mmlape::vit/vit-small-p16_8xb512-93k_in1k
        title: S/16
        overrides: {}
    arms:
      rms:                            # on the first base; on the others its name is rms-s16
        overrides: {model.backbone.patch_norm: rms}
        variables: {}                 # of the base: the values of its {{$NAME:default}}
        figure: {b16: '0.0', s16: '-0.1'}  # as printed, in quotes: a number loses zeros
        also: {mask AP: '44.8'}       # further figures, of other metrics; of the arm's only base

An arm has further keys if an extension names them (`mmlape.lab.extension`): ``released`` is ours.
An arm is trained alone as ``FILE.yml:ARM``, and is the config ``FILE-ARM``. One without overrides
is its base, whose figures are in the metafile. ``!tuple [640, 640]`` is a tuple, which some
transforms need.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mmlape.errors import ConfigError
from mmlape.lab.extension import extensions
from mmlape.mim import PREFIX, mim_root

_REFERENCE = re.compile(r'(?P<file>.+\.ya?ml)(?::(?P<arm>[^:/]+))?')
_TEXT_KEYS = ('title', 'paper', 'table', 'runs', 'dataset', 'time', 'metric')
_STUDY_KEYS = (*_TEXT_KEYS, 'relative_to', 'seeds', 'base', 'bases', 'arms')
_ARM_KEYS = ('title', 'base', 'bases', 'overrides', 'variables', 'figure', 'also')
_BASE_KEYS = ('title', 'base', 'overrides')


def check_arm_name(name: str) -> None:
    """Check that an arm may have a name, which is also a folder's and a part of patterns; ConfigError if not."""
    if not re.fullmatch(r'[\w+][\w.+-]*', name):
        raise ConfigError(
            f"arm '{name}': a name consists of letters, digits, '_', '-', '+' and '.', and does not "
            "begin with '-' or '.'"
        )


@dataclass(frozen=True)
class StudyArm:
    """An arm of a study file on one base."""

    name: str  # unique in the file
    title: str  # what it is, for a reader
    base: str  # its config
    base_name: str  # the base's name in the study; empty if it has a single one
    base_title: str  # the base's title
    # changes of the base by dotted keys, as ``--cfg-options`` has them
    overrides: Mapping[str, Any]
    # values of the base's ``{{$NAME:default}}``, which MMEngine takes from the environment
    variables: Mapping[str, str]
    figure: str | None = None  # the paper's figure as it is printed; None if the study has none
    # the arm that the figure is the difference from; None if it is a score
    relative_to: str | None = None
    # further figures of the paper by metric, as printed
    also: Mapping[str, str] = field(default_factory=dict)
    # values of the keys that an extension reads
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyFile:
    """A study as its file describes it."""

    file: str  # as the user named it: a path, or ``mmlape::studies/NAME.yml``
    title: str  # what is compared
    arms: tuple[StudyArm, ...]  # all arms, row by row: an arm of the file on each of its bases
    seeds: tuple[int, ...] = ()  # what every arm is trained with; empty if the file has none
    paper: str = ''  # whose the figures are, such as 'DPN (TMLR 2023)'; empty without figures
    table: str = ''  # which table or section of the paper
    runs: str = 'not stated'  # how many runs a figure is of, as the paper says it
    # what they were measured on; without a paper, what the arms are trained on
    dataset: str = ''
    metric: str = 'top-1'  # what they are, as metafiles name it: 'top-1'
    time: str = ''  # what all runs take, and on what; empty if it is not known

    @property
    def processes(self) -> list[int]:
        """The numbers of processes that the configs of the arms are made for, by their names."""
        found = (re.search(r'_(\d+)xb\d', arm.base) for arm in self.arms)
        return sorted({int(match[1]) for match in found if match})

    @property
    def data(self) -> str:
        """The data that the arms are trained on: the dataset of a study of ours, else as the configs' names end."""
        if self.dataset and not self.paper:
            return self.dataset
        return ', '.join(dict.fromkeys(arm.base.rpartition('_')[2] for arm in self.arms))

    @property
    def source(self) -> str:
        """The paper and its table, or 'ours'."""
        return ', '.join(filter(None, [self.paper, self.table])) or 'ours'

    @property
    def name(self) -> str:
        """The name of the file."""
        return Path(self.file).stem

    def reference(self, arm: StudyArm) -> str:
        """Return what commands take as the config of an arm."""
        return f'{self.file}:{arm.name}'

    def config_file(self, arm: StudyArm) -> str:
        """Return the file that an arm would be as a config: beside the study, named after both."""
        return str(Path(self.file).with_name(f'{self.name}-{arm.name}.py'))

    def choose(self, names: Iterable[str]) -> list[StudyArm]:
        """Return arms by name, in this order, or raise ConfigError."""
        by_name = {arm.name: arm for arm in self.arms}
        for name in names:
            if name not in by_name:
                raise ConfigError(f"{self.file} has no arm '{name}'; {similar_to(name, by_name)}")
        return [by_name[name] for name in names]


def similar_to(name: str, others: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: similar ones, else all that there are."""
    names = [str(one) for one in others]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f'did you mean {" or ".join(close)}?' if close else f'there are: {", ".join(names)}'


def is_study(path: str | Path) -> bool:
    """Return whether a path names a study file, or an arm of one, and not a config."""
    return _REFERENCE.fullmatch(str(path)) is not None


def read_study(path: str | Path) -> StudyFile:
    """Read ``FILE.yml``, or ``FILE.yml:ARM`` with that arm only.

    FILE is a path or ``mmlape::studies/NAME``. What is wrong in the file, or not there, raises
    ConfigError, whose message names file and key.
    """
    match = _REFERENCE.fullmatch(str(path))
    if match is None:
        raise ConfigError(f'{path} is no study file: its name ends with .yml')
    study = _Reader(match['file']).study()
    if match['arm'] is None:
        return study
    chosen = tuple(study.choose([match['arm']]))
    return StudyFile(**{**vars(study), 'arms': chosen})


def read_arm(path: str | Path) -> tuple[StudyFile, StudyArm]:
    """Return the arm that ``FILE.yml:ARM`` names, with its study.

    ConfigError for a path without ARM.
    """
    study = read_study(path)
    if ':' not in str(path).removeprefix(PREFIX):
        arms = ', '.join(arm.name for arm in study.arms)
        example = f'{path}:{study.arms[0].name}'
        raise ConfigError(f'{path} is a study: name one of its arms, as {example} (of {arms})')
    return study, study.arms[0]


def find_arm(config: str) -> tuple[StudyFile, StudyArm] | None:
    """Return the study and the arm that a run was trained on; None for another config.

    Args:
        config: What the run's record names as its study, ``FILE.yml:ARM``; or as its config, in
            records of older versions, which is what ``StudyFile.config_file`` returns. A study that
            is not in its place any more is looked for among those of this package.
    """
    folder, _, name = str(config).removeprefix(PREFIX).rpartition('/')
    beside = [] if str(config).startswith(PREFIX) else [Path(folder)]
    for place in (*beside, _packaged()):
        for file in _study_files(place):
            named = _named_arm(file, name)
            arms = read_study(file).arms if named else ()
            for arm in arms:
                if arm.name == named:
                    return read_study(file), arm
    return None


def _named_arm(file: Path, name: str) -> str | None:
    """Return which arm of a study file 'FILE.yml:ARM' or 'FILE-ARM.py' names; None for another file's."""
    for start in (f'{file.name}:', f'{file.stem}-'):
        if name.startswith(start):
            return name.removeprefix(start).removesuffix('.py')
    return None


def packaged_studies() -> list[StudyFile]:
    """Return the studies of this package, by name."""
    return [read_study(f'{PREFIX}studies/{file.name}') for file in _study_files(_packaged())]


def _packaged() -> Path:
    """Return the folder of this package's studies."""
    return mim_root() / 'studies'


def _study_files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be studies, by name: those of YAML that have arms."""
    files = (path for path in folder.glob('[!.]*.y*ml') if path.suffix in ('.yml', '.yaml'))
    return sorted(path for path in files if re.search(rb'^arms:', path.read_bytes(), re.MULTILINE))


class _Base(NamedTuple):
    config: str
    title: str = ''
    overrides: Mapping[str, Any] = {}


class _Reader:
    """Reads one study file, named as the user named it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.path = Path(file)
        if file.startswith(PREFIX):
            self.path = mim_root() / file.removeprefix(PREFIX)
        if not self.path.is_file():
            folders = (self.path.parent, _packaged())
            known = sorted({path.name for folder in folders for path in _study_files(folder)})
            hint = f'; {similar_to(self.path.name, known)}' if known else ''
            raise ConfigError(f'study {file} does not exist{hint}')
        try:
            text = self.path.read_text(encoding='utf-8')
        except UnicodeDecodeError as error:
            raise ConfigError(f'{file} is no text in UTF-8 ({error})') from error
        from mmlape.lab.studies.parsing import parse  # yaml, without which the doctor starts

        self.content = parse(text, file)

    def study(self) -> StudyFile:
        """Return the study, or raise ConfigError if something in the file is wrong."""
        content = self._mapping('the file', self.content, _STUDY_KEYS)
        entries = self._named('arms', content.get('arms'))
        if not entries:
            raise self._error('arms: there are none')
        bases = self._bases('', content)
        relative_to = content.get('relative_to')
        if relative_to is not None:
            relative_to = self._name('relative_to', relative_to)
        arms: list[StudyArm] = []
        for name, entry in entries.items():
            arms.extend(self._arms(name, entry, bases, relative_to))
        self._check_arms(arms, content)
        seeds = self._seeds(content.get('seeds') or [])
        texts = {key: str(content[key]) for key in _TEXT_KEYS if content.get(key) is not None}
        texts.setdefault('title', self.path.stem)
        return StudyFile(self.file, arms=tuple(arms), seeds=seeds, **texts)

    def _check_arms(self, arms: list[StudyArm], content: Mapping) -> None:
        """Raise ConfigError if two arms have one name, or a figure has no source or no reference."""
        counts = Counter(arm.name for arm in arms)
        repeated = next((name for name, count in counts.items() if count > 1), None)
        if repeated:
            raise self._error(f"arms: two are named '{repeated}'")
        has_figures = any(arm.figure or arm.also for arm in arms)
        if has_figures and not content.get('paper'):
            raise self._error('paper: arms have figures, so name their source: paper: NAME (VENUE YEAR)')
        for arm in arms:
            if arm.relative_to:
                self._require_known('relative_to', arm.relative_to, list(counts))

    def _seeds(self, seeds: Any) -> tuple[int, ...]:
        is_list = isinstance(seeds, list)
        if not is_list or not all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds):
            raise self._error(f'seeds: {seeds} is no list of numbers between 0 and 2**32 - 1')
        return tuple(seeds)

    def _arms(self, name: str, entry: Any, bases: Mapping[str, _Base], relative_to: str | None) -> Iterator[StudyArm]:
        """Yield an arm on each of its bases."""
        where = f'arm {name}'
        try:
            check_arm_name(name)
        except ConfigError as error:
            raise self._error(str(error)) from None
        further = [key for one in extensions() for key in one.arm_keys]
        entry = self._mapping(where, entry or {}, (*_ARM_KEYS, *further))
        chosen = self._chosen_bases(where, entry, bases)
        title = str(entry.get('title', name))
        overrides = self._overrides(where, entry)
        variables = self._mapping(f'{where}: variables', entry.get('variables') or {})
        figures = self._figures(where, entry.get('figure'), chosen)
        also = self._also(where, entry.get('also'), chosen)
        first = next(iter(bases or chosen))
        for key, base in chosen.items():
            suffix = f'-{key}' if key and key != first else ''
            is_difference = relative_to and figures.get(key)
            yield StudyArm(
                name=name + suffix,
                title=', '.join(filter(None, [title, base.title])),
                base=base.config,
                base_name=key,
                base_title=base.title,
                overrides={**base.overrides, **overrides},
                variables={str(variable): str(value) for variable, value in variables.items()},
                figure=figures.get(key),
                relative_to=f'{relative_to}{suffix}' if is_difference else None,
                also=also,
                extra={key: entry[key] for key in further if key in entry},
            )

    def _chosen_bases(self, where: str, entry: Mapping, bases: Mapping[str, _Base]) -> Mapping[str, _Base]:
        """Return the bases of an arm: some of the study's, its own, or all of the study's."""
        if isinstance(entry.get('bases'), list):
            names = [self._name(f'{where}: bases', name) for name in entry['bases']]
            for name in names:
                self._require_known(f'{where}: bases', name, bases)
            return {name: bases[name] for name in names}
        chosen = self._bases(f'{where}: ', entry) or bases
        if not chosen:
            raise self._error(f'{where} has no base: give base: CONFIG for it or for the study')
        return chosen

    def _bases(self, where: str, content: Mapping) -> dict[str, _Base]:
        """Return ``base`` or ``bases`` by name."""
        if content.get('base') is not None and content.get('bases') is not None:
            raise self._error(f'{where}base and bases: give one of the two')
        if content.get('base') is not None:
            return {'': _Base(self._config(f'{where}base', content['base']))}
        bases = {}
        for key, value in self._named(f'{where}bases', content.get('bases') or {}).items():
            place = f'{where}bases: {key}'
            if not isinstance(value, dict) or not value:
                bases[key] = _Base(self._config(place, value), key)
                continue
            entry = self._mapping(place, value, _BASE_KEYS)
            config = self._config(f'{place}: base', entry.get('base'))
            overrides = self._overrides(place, entry)
            bases[key] = _Base(config, str(entry.get('title', key)), overrides)
        return bases

    def _config(self, where: str, value: Any) -> str:
        """Return a base; a path is relative to the study, as ``_base_`` is to a config."""
        if not isinstance(value, str):
            raise self._error(f'{where}: {value!r} is no config')
        if '::' in value:
            return value
        path = self.path.parent / value
        if not path.is_file():
            raise self._error(f'{where}: {path} does not exist')
        return str(path)

    def _figures(self, where: str, given: Any, bases: Mapping[str, _Base]) -> dict[str, str]:
        """Return the printed figure of an arm on each base that has one."""
        if given is None:
            return {}
        if isinstance(given, dict):
            figures = self._named(f'{where}: figure', given)
        elif len(bases) == 1:
            figures = {next(iter(bases)): given}
        else:
            first = next(iter(bases))
            raise self._error(f'{where}: figure: give one for each base: {{{first}: ...}}')
        for key in figures:
            self._require_known(f'{where}: figure', key, bases)
        return {key: self._printed(f'{where}: figure', value) for key, value in figures.items()}

    def _also(self, where: str, given: Any, bases: Mapping[str, _Base]) -> dict[str, str]:
        """Return the printed further figures of an arm with one base."""
        if given is None:
            return {}
        if len(bases) > 1:
            raise self._error(f'{where}: also: needs a single base, not {", ".join(bases)}')
        figures = self._mapping(f'{where}: also', given)
        return {metric: self._printed(f'{where}: also: {metric}', value) for metric, value in figures.items()}

    def _printed(self, where: str, value: Any) -> str:
        """Return a figure with the digits that the paper prints, or raise ConfigError."""
        if isinstance(value, float):
            raise self._error(
                f"{where}: {value} may have lost digits: quote it as it is printed, such as '{value:.2f}'"
            )
        try:
            float(str(value))
        except ValueError:
            raise self._error(f'{where}: {value} is no number') from None
        return str(value)

    def _named(self, where: str, value: Any) -> dict[str, Any]:
        """Return a mapping from names, or raise ConfigError."""
        entries = self._mapping(where, value)
        return {self._name(where, key): entry for key, entry in entries.items()}

    def _overrides(self, where: str, entry: Mapping) -> dict[str, Any]:
        overrides = self._mapping(f'{where}: overrides', entry.get('overrides') or {})
        for key in overrides:
            if not isinstance(key, str):
                raise self._error(f'{where}: overrides: {key} is no key of a config')
        return overrides

    def _name(self, where: str, value: Any) -> str:
        """Return a name as it is written, or raise ConfigError: of 1e-3 only the number is left."""
        if isinstance(value, str) or type(value) is int:
            return str(value)
        raise self._error(f'{where}: {value} is no name: quote it')

    def _mapping(self, where: str, value: Any, keys: Iterable[str] | None = None) -> dict:
        """Return a mapping whose keys are known, or raise ConfigError."""
        if not isinstance(value, dict):
            raise self._error(f'{where} is no mapping of keys to values')
        for key in value if keys else ():
            self._require_known(where, key, keys)
        return value

    def _require_known(self, where: str, key: Any, names: Iterable[str]) -> None:
        if key not in names:
            raise self._error(f"{where}: unknown '{key}'; {similar_to(str(key), names)}")

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f'{self.file}: {message}')
