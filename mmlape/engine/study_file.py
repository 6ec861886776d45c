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
      b16: mmlape::classification/imagenet/vit-base-p16_8xb512-93k_in1k
      s16: {base: mmlape::classification/imagenet/vit-small-p16_8xb512-93k_in1k, title: S/16, overrides: {}}
    arms:
      rms:                            # on the first base; on the others its name is rms-s16
        overrides: {model.backbone.patch_norm: rms}
        variables: {}                 # of the base: the values of its {{$NAME:default}}
        figure: {b16: 0.0, s16: -0.1}
        also: {mask AP: 44.8}         # further figures, of other metrics; of the arm's only base
        released: {head: UperNet of mmseg, classes: 150, width: 384, layers: 12}  # a public file has such a model

An arm is trained alone as ``FILE.yml:ARM``, and is the config ``FILE-ARM``. One without overrides is its base, whose
figures are in the metafile. ``!tuple [640, 640]`` is a tuple, which some transforms need.
"""

import copy
import difflib
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from mmlape.errors import ConfigError
from mmlape.files import parse_yaml
from mmlape.mim import PREFIX, mim_root

_REFERENCE = re.compile(r'(?P<file>.+\.ya?ml)(?::(?P<arm>[^:/]+))?')
_NAME = re.compile(r'[\w+][\w.+-]*')
_STUDY_KEYS = (
    'title', 'paper', 'table', 'runs', 'dataset', 'time', 'metric', 'relative_to', 'seeds', 'base', 'bases', 'arms',
)  # fmt: skip
_ARM_KEYS = ('title', 'base', 'bases', 'overrides', 'variables', 'figure', 'also', 'released')
_RELEASED_KEYS = ('head', 'classes', 'width', 'layers', 'channels')
_BASE_KEYS = ('title', 'base', 'overrides')


@dataclass(frozen=True)
class StudyArm:
    """An arm of a study file on one base."""

    name: str  # unique in the file
    title: str  # what it is, for a reader
    base: str  # its config
    base_name: str  # the base's name in the study; empty if it has a single one
    base_title: str  # the base's title
    overrides: Mapping[str, Any]  # changes of the base by dotted keys, as ``--cfg-options`` takes them
    # values of the base's ``{{$NAME:default}}``, which MMEngine takes from the environment
    variables: Mapping[str, str]
    figure: str | None = None  # the paper's figure as it is printed; None if the study has none for it
    relative_to: str | None = None  # the arm that the figure is the difference from; None if it is a score
    also: Mapping[str, str] = field(default_factory=dict)  # further figures of the paper by metric, as printed
    # of models with public weights: ``head`` and ``classes``, ``width`` and ``layers`` of the backbone, and the
    # ``channels`` of a head that is released alone; empty for others
    released: Mapping[str, Any] = field(default_factory=dict)


class _Base(NamedTuple):
    config: str
    title: str = ''
    overrides: Mapping[str, Any] = {}


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
    dataset: str = ''  # what they were measured on
    metric: str = 'top-1'  # what they are, as metafiles name it: 'top-1'
    time: str = ''  # what all runs take, and on what; empty if it is not known

    @property
    def processes(self) -> list[int]:
        """The numbers of processes that the configs of the arms are made for, by their names."""
        found = (re.search(r'_(\d+)xb\d', arm.base) for arm in self.arms)
        return sorted({int(match[1]) for match in found if match})

    @property
    def data(self) -> str:
        """The data that the arms are trained on, as the names of their configs end."""
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
        known = {arm.name: arm for arm in self.arms}
        for name in names:
            if name not in known:
                raise ConfigError(f"{self.file} has no arm '{name}'; {_similar(name, known)}")
        return [known[name] for name in names]


def is_study(path: str | Path) -> bool:
    """Return whether a path names a study file, or an arm of one, and not a config."""
    return _REFERENCE.fullmatch(str(path)) is not None


def read_study(path: str | Path) -> StudyFile:
    """Read ``FILE.yml``, or ``FILE.yml:ARM`` with that arm only; FILE is a path or ``mmlape::studies/NAME``.

    What is wrong in the file, or not there, raises ConfigError, whose message names file and key.
    """
    match = _REFERENCE.fullmatch(str(path))
    if match is None:
        raise ConfigError(f'{path} is no study file: its name ends with .yml')
    study = _Reader(match['file']).study()
    if match['arm'] is None:
        return study
    return StudyFile(**{**vars(study), 'arms': tuple(study.choose([match['arm']]))})


def read_arm(path: str | Path) -> tuple[StudyFile, StudyArm]:
    """Return the arm that ``FILE.yml:ARM`` names, with its study; a path of all arms raises ConfigError."""
    study = read_study(path)
    if ':' not in str(path).removeprefix(PREFIX):
        arms = ', '.join(arm.name for arm in study.arms)
        raise ConfigError(f'{path} is a study: name one of its arms, as {path}:{study.arms[0].name} (of {arms})')
    return study, study.arms[0]


def find_arm(config: str) -> tuple[StudyFile, StudyArm] | None:
    """Return the study and the arm that a run was trained on, from the config that its record names; None for others.

    That is ``FILE.yml:ARM``, or what ``StudyFile.config_file`` returns. A study that is not in its place any more is
    looked for among those of this package.
    """
    folder, _, name = str(config).removeprefix(PREFIX).rpartition('/')
    name = re.sub(r'\.ya?ml:', '-', name)
    for place in (Path(folder), _packaged()):
        for file in sorted(place.glob('*.yml')):
            if not name.startswith(f'{file.stem}-'):
                continue
            arm_name = name.removeprefix(f'{file.stem}-').removesuffix('.py')
            study = read_study(file)
            arm = next((arm for arm in study.arms if arm.name == arm_name), None)
            if arm:
                return study, arm
    return None


def packaged_studies() -> list[StudyFile]:
    """Return the studies of this package, by name."""
    return [read_study(f'{PREFIX}studies/{file.name}') for file in sorted(_packaged().glob('*.yml'))]


def _packaged() -> Path:
    """Return the folder of this package's studies."""
    return mim_root() / 'studies'


def _similar(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, [str(one) for one in known], n=3, cutoff=0.6)
    return f'did you mean {" or ".join(close)}?' if close else f'there are: {", ".join(map(str, known))}'


class _Loader(yaml.SafeLoader):
    """YAML 1.2's plain values: ``on`` is a word (iRPE has ``on: k``), 1e-3 a number. No key may be given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        counts = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        twice = next((key for key, count in counts.items() if count > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"'{twice}' is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != 'tag:yaml.org,2002:bool']
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    'tag:yaml.org,2002:bool', re.compile('(true|True|TRUE|false|False|FALSE)$'), list('tTfF')
)
_Loader.add_implicit_resolver(
    'tag:yaml.org,2002:float', re.compile(r'[-+]?\d+(\.\d*)?[eE][-+]?\d+$'), list('-+0123456789')
)
_Loader.add_constructor('!tuple', lambda loader, node: tuple(loader.construct_sequence(node, deep=True)))


@functools.lru_cache(maxsize=8)
def _parse(text: str) -> tuple:
    """Return the content of a study, and with figures as they are printed: 80.50 has two decimals in the paper."""
    return parse_yaml(text, _Loader), parse_yaml(text, yaml.BaseLoader)


class _Reader:
    """Reads one study file, named as the user named it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.path = mim_root() / file.removeprefix(PREFIX) if file.startswith(PREFIX) else Path(file)
        if not self.path.is_file():
            known = {path.name for folder in (self.path.parent, _packaged()) for path in folder.glob('*.yml')}
            hint = f'; {_similar(self.path.name, sorted(known))}' if known else ''
            raise ConfigError(f'study {file} does not exist{hint}')
        try:
            self.content, self.printed = copy.deepcopy(_parse(self.path.read_text(encoding='utf-8')))
        except UnicodeDecodeError as error:
            raise ConfigError(f'{file} is no text in UTF-8 ({error})') from error
        except yaml.YAMLError as error:
            mark = getattr(error, 'problem_mark', None)
            line = f':{mark.line + 1}' if mark else ''
            raise ConfigError(f'{file}{line} does not parse: {getattr(error, "problem", None) or error}') from error

        if isinstance(self.content, dict):
            self._read_names()

    def _read_names(self) -> None:
        """Take names as they are written, 16 and 1e-3 too: those of arms and bases, and ``relative_to``."""
        for key in ('arms', 'bases'):
            given, printed = self.content.get(key), self.printed.get(key)
            if isinstance(given, dict):
                if '<<' in printed:
                    raise self._error(f'{key}: << merges inside of an entry, not among them')
                self.content[key] = dict(zip(printed, given.values(), strict=True))
        if self.content.get('relative_to') is not None:
            self.content['relative_to'] = self.printed['relative_to']
        arms, printed = self.content.get('arms'), self.printed.get('arms')
        for name, arm in arms.items() if isinstance(arms, dict) else ():
            if isinstance(arm, dict) and isinstance(arm.get('bases'), list):
                arm['bases'] = printed[name].get('bases', arm['bases'])

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f'{self.file}: {message}')

    def study(self) -> StudyFile:
        """Return the study, or raise ConfigError if something in the file is wrong."""
        content = self._mapping('the file', self.content, _STUDY_KEYS)
        entries = self._mapping('arms', content.get('arms'))
        if not entries:
            raise self._error('arms: there are none')
        bases = self._bases('', content)
        arms = [arm for name in entries for arm in self._arms(name, bases)]
        names = [arm.name for arm in arms]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice:
            raise self._error(f"arms: two are named '{twice}'")
        if any(arm.figure or arm.also for arm in arms) and not content.get('paper'):
            raise self._error('paper: arms have figures, so name their source: paper: NAME (VENUE YEAR)')
        for arm in arms:
            if arm.relative_to:
                self._require_known('relative_to', arm.relative_to, names)
        seeds = content.get('seeds') or []
        if not isinstance(seeds, list) or not all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds):
            raise self._error(f'seeds: {seeds} is no list of numbers between 0 and 2**32 - 1')
        texts = ('title', 'paper', 'table', 'runs', 'dataset', 'time', 'metric')
        given = {key: str(content[key]) for key in texts if content.get(key) is not None}
        return StudyFile(self.file, arms=tuple(arms), seeds=tuple(seeds), **{'title': self.path.stem, **given})

    def _arms(self, name: str, bases: Mapping[str, _Base]) -> Iterator[StudyArm]:
        """Yield an arm on each of its bases."""
        where = f'arm {name}'
        if not _NAME.fullmatch(name):
            raise self._error(f"{where}: a name consists of letters, digits, '_', '-', '+' and '.'")
        entry = self._mapping(where, self.content['arms'][name] or {}, _ARM_KEYS)
        if isinstance(entry.get('bases'), list):
            for key in entry['bases']:
                self._require_known(f'{where}: bases', key, bases)
            chosen: Mapping[str, _Base] = {key: bases[key] for key in entry['bases']}
        else:
            chosen = self._bases(f'{where}: ', entry) or bases
        if not chosen:
            raise self._error(f'{where} has no base: give base: CONFIG for it or for the study')
        overrides = self._mapping(f'{where}: overrides', entry.get('overrides') or {})
        variables = self._mapping(f'{where}: variables', entry.get('variables') or {})
        released = self._mapping(f'{where}: released', entry.get('released') or {}, _RELEASED_KEYS)
        absent = [key for key in _RELEASED_KEYS[:4] if released and key not in released]
        if absent:
            raise self._error(f'{where}: released: {absent[0]} is missing; give {", ".join(_RELEASED_KEYS[:4])}')
        printed = self.printed['arms'][name] or {}
        figures, also = self._figures(where, printed.get('figure'), chosen), self._also(where, printed, chosen)
        first, relative_to = next(iter(bases or chosen)), self.content.get('relative_to')
        for key, base in chosen.items():
            suffix = f'-{key}' if key and key != first else ''
            yield StudyArm(
                name + suffix,
                ', '.join(filter(None, [str(entry.get('title', name)), base.title])),
                base.config,
                key,
                base.title,
                {**base.overrides, **overrides},
                {str(variable): str(value) for variable, value in variables.items()},
                figures.get(key),
                f'{relative_to}{suffix}' if relative_to and figures.get(key) else None,
                also,
                released,
            )

    def _also(self, where: str, printed: Mapping, bases: Mapping[str, _Base]) -> dict[str, str]:
        """Return the printed further figures of an arm with one base."""
        if printed.get('also') is None:
            return {}
        if len(bases) > 1:
            raise self._error(f'{where}: also: needs a single base, not {", ".join(bases)}')
        texts = self._mapping(f'{where}: also', printed['also'])
        return {metric: self._number(f'{where}: also: {metric}', text) for metric, text in texts.items()}

    def _number(self, where: str, text: Any) -> str:
        """Return a figure as it is printed, or raise ConfigError."""
        try:
            float(text)
        except (TypeError, ValueError):
            raise self._error(f'{where}: {text} is no number') from None
        return text

    def _figures(self, where: str, given: Any, bases: Mapping[str, _Base]) -> dict[str, str]:
        """Return the printed figure of an arm on each base that has one."""
        if given is None:
            return {}
        figures = given if isinstance(given, dict) else {next(iter(bases)): given}
        if not isinstance(given, dict) and len(bases) > 1:
            raise self._error(f'{where}: figure: give one for each base: {{{next(iter(bases))}: ...}}')
        for key, text in figures.items():
            self._require_known(f'{where}: figure', key, bases)
            self._number(f'{where}: figure', text)
        return figures

    def _bases(self, where: str, content: Mapping) -> dict[str, _Base]:
        """Return ``base`` or ``bases`` by name."""
        if content.get('base') is not None and content.get('bases') is not None:
            raise self._error(f'{where}base and bases: give one of the two')
        if content.get('base') is not None:
            return {'': _Base(self._config(f'{where}base', content['base']))}
        bases = {}
        for key, value in self._mapping(f'{where}bases', content.get('bases') or {}).items():
            place = f'{where}bases: {key}'
            entry = self._mapping(place, value, _BASE_KEYS) if isinstance(value, dict) else {}
            config = self._config(f'{place}: base' if entry else place, entry.get('base') if entry else value)
            overrides = self._mapping(f'{place}: overrides', entry.get('overrides') or {})
            bases[str(key)] = _Base(config, str(entry.get('title', key)), overrides)
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

    def _mapping(self, where: str, value: Any, known: Iterable[str] | None = None) -> dict:
        """Return a mapping whose keys are known, or raise ConfigError."""
        if not isinstance(value, dict):
            raise self._error(f'{where} is no mapping of keys to values')
        for key in value if known else ():
            self._require_known(where, key, known)
        return value

    def _require_known(self, where: str, key: Any, known: Iterable[str]) -> None:
        if key not in known:
            raise self._error(f"{where}: unknown '{key}'; {_similar(str(key), known)}")
