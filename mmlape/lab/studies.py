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
is its base, whose figures are in the metafile. Values are YAML 1.2's, and ``!tuple [640, 640]`` is a
tuple, which some transforms need.
"""

import copy
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from mmlape.errors import ConfigError, similar_to
from mmlape.lab.decoding import UNSTORED, Closed, FieldRule, Seed, UnfitError, decoded
from mmlape.lab.extension import extensions
from mmlape.openmmlab.mim import PREFIX, mim_root

_REFERENCE = re.compile(r'(?P<file>.+\.ya?ml)(?::(?P<arm>[^:/]+))?')


def check_arm_name(name: str) -> None:
    """Check that an arm may have a name, which is also a folder's and a part of patterns; ConfigError if not."""
    if not re.fullmatch(r'[\w+][\w.+-]*', name):
        raise ConfigError(
            f"arm '{name}': a name consists of letters, digits, '_', '-', '+' and '.', and does not "
            "begin with '-' or '.'"
        )


@dataclass(frozen=True, kw_only=True)
class StudyText:
    """What a study says of itself."""

    # as the user named it: a path, or ``mmlape::studies/NAME.yml``
    file: str = field(default='', metadata=UNSTORED)
    title: str = ''  # what is compared; by default the name of the file
    paper: str = ''  # whose the figures are, such as 'DPN (TMLR 2023)'; empty without figures
    table: str = ''  # which table or section of the paper
    runs: str = 'not stated'  # how many runs a figure is of, as the paper says it
    # what they were measured on; without a paper, what the arms are trained on
    dataset: str = ''
    metric: str = 'top-1'  # what they are, as metafiles name it: 'top-1'
    time: str = ''  # what all runs take, and on what; empty if it is not known


@dataclass(frozen=True)
class Arm:
    """One config of a comparison, with changes: what a study file has on one base, or what a command line names.

    Its name is that of its folder, and of its rows in tables.
    """

    name: str  # unique in its study
    config: str  # as commands take it: a file, ``mmlape::folder/name``, or a study's arm, ``FILE.yml:ARM``
    cfg_options: tuple[str, ...] = ()  # changes by the command line
    # what follows is of an arm of a study
    title: str = ''  # what it is, for a reader
    base: str = ''  # its config
    base_name: str = ''  # the base's name in the study; empty if it has a single one
    base_title: str = ''  # the base's title
    # changes of the base by dotted keys, as ``--cfg-options`` has them
    overrides: Mapping[str, Any] = field(default_factory=dict)
    # values of the base's ``{{$NAME:default}}``, which MMEngine takes from the environment
    variables: Mapping[str, str] = field(default_factory=dict)
    figure: str | None = None  # the paper's figure as it is printed; None if the study has none
    # the arm that the figure is the difference from; None if it is a score
    relative_to: str | None = None
    # further figures of the paper by metric, as printed
    also: Mapping[str, str] = field(default_factory=dict)
    # values of the keys that an extension reads
    extra: Mapping[str, Any] = field(default_factory=dict)
    study: StudyText = StudyText()  # what its study says of itself

    @property
    def config_file(self) -> str:
        """The file that an arm of a study would be as a config: beside the study, named after both."""
        file = Path(self.study.file)
        return str(file.with_name(f'{file.stem}-{self.name}.py'))

    @classmethod
    def of(cls, config: str | Path, cfg_options: Sequence[str] = ()) -> 'Arm':
        """Build an arm named after its config."""
        name = re.split(r'/|::', str(config))[-1].removesuffix('.py')
        return cls(name, str(config), tuple(cfg_options))


@dataclass(frozen=True, kw_only=True)
class StudyFile(StudyText):
    """A study as its file describes it."""

    arms: tuple[Arm, ...]  # all arms, row by row: an arm of the file on each of its bases
    seeds: tuple[int, ...] = ()  # what every arm is trained with; empty if the file has none

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

    def arm(self, name: str) -> Arm:
        """Return an arm by its name, or raise ConfigError."""
        by_name = {arm.name: arm for arm in self.arms}
        if name not in by_name:
            raise ConfigError(f"{self.file} has no arm '{name}'; {similar_to(name, by_name)}")
        return by_name[name]


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
    study = _read(match['file'])
    return study if match['arm'] is None else replace(study, arms=(study.arm(match['arm']),))


def read_arm(path: str | Path) -> Arm:
    """Return the arm that ``FILE.yml:ARM`` names.

    ConfigError for a path without ARM.
    """
    study = read_study(path)
    if ':' not in str(path).removeprefix(PREFIX):
        arms = ', '.join(arm.name for arm in study.arms)
        example = f'{path}:{study.arms[0].name}'
        raise ConfigError(f'{path} is a study: name one of its arms, as {example} (of {arms})')
    return study.arms[0]


def find_arm(config: str) -> Arm | None:
    """Return the arm of a study that a run was trained on; None for another config.

    Args:
        config: What the run's record names as its study, ``FILE.yml:ARM``; or as its config, in
            records of older versions, which is what `Arm.config_file` is. A study that
            is not in its place any more is looked for among those of this package.
    """
    folder, _, name = str(config).removeprefix(PREFIX).rpartition('/')
    beside = [] if str(config).startswith(PREFIX) else [Path(folder)]
    for place in (*beside, _packaged()):
        for file in _study_files(place, name):
            for arm in read_study(file).arms:
                if name.removesuffix('.py') in (f'{file.name}:{arm.name}', f'{file.stem}-{arm.name}'):
                    return arm
    return None


def packaged_studies() -> list[StudyFile]:
    """Return the studies of this package, by name."""
    return [read_study(f'{PREFIX}studies/{file.name}') for file in _study_files(_packaged())]


def _packaged() -> Path:
    """Return the folder of this package's studies."""
    return mim_root() / 'studies'


def _study_files(folder: Path, arm: str = '') -> list[Path]:
    """Return the files of a folder that may be studies, by name: those of YAML that have arms.

    With ``arm``, ``FILE.yml:ARM`` or ``FILE-ARM.py``, only those that it may be of.
    """
    files = [path for path in sorted(folder.glob('[!.]*.y*ml')) if path.suffix in ('.yml', '.yaml')]
    if arm:
        files = [path for path in files if arm.startswith((f'{path.name}:', f'{path.stem}-'))]
    return [path for path in files if re.search(rb'^arms:', path.read_bytes(), re.MULTILINE)]


def _is_printed(value: Any) -> bool:
    """Return whether a figure may have all digits that its paper prints; YAML's numbers have lost zeros."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return isinstance(value, str) or type(value) is int


Name = Annotated[str, FieldRule('a name: quote it', lambda value: isinstance(value, str) or type(value) is int)]
Printed = Annotated[str, FieldRule("a number as it is printed, in quotes, such as '80.50'", _is_printed)]
Key = Annotated[str, FieldRule('a key of a config', lambda value: isinstance(value, str))]


@dataclass(frozen=True, kw_only=True)
class _Base(Closed):
    """An entry of ``bases``."""

    base: str
    title: Any = ''
    overrides: dict[Key, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Entry(Closed):
    """An entry of ``arms``."""

    title: Any = None
    base: str | None = None
    bases: list[Name] | dict[Name, str | _Base] | None = None  # some of the study's, or its own
    overrides: dict[Key, Any] = field(default_factory=dict)
    variables: dict[Name, Any] = field(default_factory=dict)
    figure: Printed | dict[Name, Printed] | None = None
    also: dict[str, Printed] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Study(StudyText, Closed):
    """The content of a file."""

    relative_to: Name | None = None
    seeds: list[Seed] = field(default_factory=list)
    base: str | None = None
    bases: dict[Name, str | _Base] | None = None
    arms: dict[Name, Any]


def _read(file: str) -> StudyFile:
    """Read one study file, named as the user named it."""
    path = mim_root() / file.removeprefix(PREFIX) if file.startswith(PREFIX) else Path(file)
    if not path.is_file():
        folders = (path.parent, _packaged())
        known = sorted({near.name for folder in folders for near in _study_files(folder)})
        hint = f'; {similar_to(path.name, known)}' if known else ''
        raise ConfigError(f'study {file} does not exist{hint}')
    try:
        text = path.read_text(encoding='utf-8')
    except UnicodeDecodeError as error:
        raise ConfigError(f'{file} is no text in UTF-8 ({error})') from error
    try:
        study: _Study = decoded(_Study, _parse(text, file) or {}, '')
        study = replace(study, file=file, title=study.title or path.stem)
        about = {text.name: getattr(study, text.name) for text in fields(StudyText)}
        arms = tuple(replace(arm, study=StudyText(**about)) for arm in _arms(study, path.parent))
        _check_arms(study, arms)
    except UnfitError as error:
        raise ConfigError(f'{file}: {error}') from None
    return StudyFile(arms=arms, seeds=tuple(study.seeds), **about)


def _parse(text: str, file: str) -> Any:
    """Return the content of a file; a ConfigError names file and line if it is no YAML."""
    import yaml  # without which the doctor starts

    try:
        return copy.deepcopy(_values(text))
    except yaml.YAMLError as error:
        mark = getattr(error, 'problem_mark', None)
        line = f':{mark.line + 1}' if mark else ''
        reason = getattr(error, 'problem', None) or error
        raise ConfigError(f'{file}{line} does not parse: {reason}') from error


@functools.lru_cache(maxsize=64)  # all studies of the package
def _values(text: str) -> Any:
    """Read YAML 1.2's plain values: ``on`` is a word (iRPE has ``on: k``), 1e-3 is a number. No key stands twice."""
    import yaml

    class Loader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
            keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            for key, count in keys.items():
                if count > 1:
                    raise yaml.constructor.ConstructorError(None, None, f"'{key}' is given twice", node.start_mark)
            return super().construct_mapping(node, deep)

    boolean, number = 'tag:yaml.org,2002:bool', 'tag:yaml.org,2002:float'
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != boolean]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(boolean, re.compile('(true|True|TRUE|false|False|FALSE)$'), list('tTfF'))
    Loader.add_implicit_resolver(number, re.compile(r'[-+]?\d+(\.\d*)?[eE][-+]?\d+$'), list('-+0123456789'))
    Loader.add_constructor('!tuple', lambda loader, node: tuple(loader.construct_sequence(node, deep=True)))
    return yaml.load(text, Loader)


def _check_arms(study: _Study, arms: Iterable[Arm]) -> None:
    """Raise UnfitError if two arms have one name, or a figure has no source or no reference."""
    counts = Counter(arm.name for arm in arms)
    if not counts:
        raise UnfitError('arms: there are none')
    name, count = counts.most_common(1)[0]
    if count > 1:
        raise UnfitError(f"arms: two are named '{name}'")
    if not study.paper and any(arm.figure or arm.also for arm in arms):
        raise UnfitError('paper: arms have figures, so name their source: paper: NAME (VENUE YEAR)')
    for arm in arms:
        if arm.relative_to:
            _require_known('relative_to', arm.relative_to, counts)


def _arms(study: _Study, folder: Path) -> Iterator[Arm]:
    """Yield each arm on each of its bases."""
    bases = _bases('', study.base, study.bases, folder)
    further = [key for one in extensions() for key in one.arm_keys]
    for name, content in study.arms.items():
        where = f'arm {name}'
        try:
            check_arm_name(name)
        except ConfigError as error:
            raise UnfitError(str(error)) from None
        extra = {key: content.pop(key) for key in further if isinstance(content, dict) and key in content}
        entry: _Entry = decoded(_Entry, content or {}, where)
        if isinstance(entry.bases, list):
            for key in entry.bases:
                _require_known(f'{where}: bases', str(key), bases)
            chosen = {str(key): bases[str(key)] for key in entry.bases}
        else:
            chosen = _bases(f'{where}: ', entry.base, entry.bases, folder) or bases
        if not chosen:
            raise UnfitError(f'{where} has no base: give base: CONFIG for it or for the study')
        first = next(iter(chosen))
        figures = entry.figure if isinstance(entry.figure, dict) else {first: entry.figure}
        if len(chosen) > 1 and not isinstance(entry.figure, dict | None):
            raise UnfitError(f'{where}: figure: give one for each base: {{{first}: ...}}')
        if len(chosen) > 1 and entry.also:
            raise UnfitError(f'{where}: also: needs a single base, not {", ".join(chosen)}')
        for key in figures:
            _require_known(f'{where}: figure', key, chosen)
        first = next(iter(bases or chosen))
        title = name if entry.title is None else str(entry.title)
        for key, base in chosen.items():
            suffix = f'-{key}' if key and key != first else ''
            figure = figures.get(key)
            yield Arm(
                name=name + suffix,
                config=f'{study.file}:{name}{suffix}',
                title=', '.join(filter(None, [title, str(base.title)])),
                base=base.base,
                base_name=key,
                base_title=str(base.title),
                overrides={**base.overrides, **entry.overrides},
                variables={variable: str(value) for variable, value in entry.variables.items()},
                figure=None if figure is None else str(figure),
                relative_to=f'{study.relative_to}{suffix}' if study.relative_to is not None and figure else None,
                also={metric: str(value) for metric, value in entry.also.items()},
                extra=extra,
            )


def _bases(where: str, base: str | None, bases: Mapping[str, str | _Base] | None, folder: Path) -> dict[str, _Base]:
    """Return ``base`` or ``bases`` by name; a path is relative to the study, as ``_base_`` is to a config."""
    if base is not None and bases is not None:
        raise UnfitError(f'{where}base and bases: give one of the two')
    complete = {}
    for name, value in ((bases or {}) if base is None else {'': base}).items():
        place = f'{where}bases: {name}' if name else f'{where}base'
        entry = value if isinstance(value, _Base) else decoded(_Base, dict(base=value, title=name), place)
        file = entry.base if '::' in entry.base else folder / entry.base
        if isinstance(file, Path) and not file.is_file():
            raise UnfitError(f'{place}: {file} does not exist')
        complete[name] = replace(entry, base=str(file), title=entry.title or name)
    return complete


def _require_known(where: str, key: str, names: Iterable[str]) -> None:
    if key not in names:
        raise UnfitError(f"{where}: unknown '{key}'; {similar_to(key, names)}")
