"""Take out of records and configs what is not for publication.

Secrets, people, machines and folders. A text is known by its key (``api_key``, ``host``, ``user``)
or by its form (a token, an address, a path). Secrets, hosts and people become the words SECRET,
HOST and USER. Of a path the name stays, of an address of a public site its path.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import urlsplit

SECRET, HOST, USER = 'SECRET', 'HOST', 'USER'
PUBLIC = (
    'huggingface.co', 'github.com', 'openmmlab.com', 'fbaipublicfiles.com', 'pytorch.org', 'arxiv.org', 'thecvf.com',
    'pypi.org', 'doi.org', 'apache.org', 'creativecommons.org',
)  # fmt: skip
"""Hosts, with those below them, whose addresses stay but for user, query and fragment."""
LONGEST = 10_000
"""Longer texts, which no config or record needs, are left out: what they hold cannot be told in a
reasonable time."""
MODEL_SCHEMES = ('torchvision', 'open-mmlab', 'openmmlab', 'mmcls', 'jhu', 'bcdata')
"""Before names of weights, which are no addresses."""
_SECRET_KEY = re.compile(
    r'(.*_)?(secret|passw(or)?d|passphrase|pwd|credential|cookie|authorization|bearer|webhook(_url)?|dsn|session_id|'
    r'connection_string|sig|signature)s?'
    r'|.*(api|access|private|account|auth|license|signing|ssh|deploy|secret)_?key(_id)?s?'
)
_TOKEN_KEY = re.compile(
    r'(?!.*(cls|dist|reg|mask|pad|unk|sep|bos|eos|prefix|query|num|class|patch)_)(.*_)?tokens?'
)
"""A token that grants access; models have tokens of other kinds."""
_HOST_KEY = re.compile(
    r'(.*_)?(host(_?name)?|node(_?name|_?list)?|addr|(master|ip|mac|server)_?addr(ess)?|server|ip|fqdn|machine)s?'
)
_USER_KEY = re.compile(r'(.*_)?(user(_?name)?|login|entity|account|e_?mail)s?')
_BY_KEY = ((_SECRET_KEY, SECRET), (_TOKEN_KEY, SECRET), (_HOST_KEY, HOST), (_USER_KEY, USER))
_SECRET_FORMS = re.compile(
    r'-----BEGIN [A-Z ]*KEY-----.*?(-----END [A-Z ]*KEY-----|\Z)'
    r'|(?<![A-Za-z0-9-])('
    r'(hf|gh[pousr]|npm|dckr_pat|github_pat|dop_v1|[sr]k_live|[sr]k_test|secret)_[A-Za-z0-9]\w{7,}'
    r'|(AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{8,}|AIza[\w-]{10,}|ya29\.[\w-]+|SG\.[\w-]+\.[\w-]+'
    r'|(sk|glpat|pypi|xox[a-z]|xapp|local)-[\w-]{8,}|eyJ[\w-]{6,}\.[\w-]+(\.[\w-]*)?)'
    r'|(?<=Bearer )\S+|(?<=Basic )[\w+/]{6,}=*',
    re.DOTALL,
)
_BEFORE_VALUE = re.compile(r'(?<![\w.-])([\w.-]+)(?:["\']?\s*[=:]\s*["\']?|\s+)')
_VALUE = re.compile(r'[^\s"\',;&?]+')
_AT_HOME = re.compile(
    r'(?<=home/|sers/|sers\\)(?:[^/\\\n\'"]+(?=[/\\])|[\w.+-]+)|(?<![\w/.])~[A-Za-z]\w+'
)
_ADDRESS = re.compile(r'(?<![\w+.-])[A-Za-z][A-Za-z0-9+.-]*:/{2,}[^\s\'"<>]*')
_SCP = re.compile(
    r'(?<![\w.+-])(?!hf-hub:)([\w.+-]+@\[?[\w.:-]+\]?:|[\w.-]{2,}:(?=~?\w*/(?!/)))[^\s\'",;]*'
)
_PERSON = re.compile(
    r'(?<![\w.+-])[\w.+-]+@(?:[A-Za-z0-9][\w-]*\.)+[A-Za-z]{2,}'
    r'|(?<![\w/.+-])(?=[\w.+-]*[A-Za-z])[\w.+-]+@[A-Za-z](?:[\w.-]*\w)?'
)
_WINDOWS = re.compile(
    r'(?<![A-Za-z0-9])(?:[A-Za-z]:[\\/]+|\\\\)(?:[^\\/:*?"<>|\n\']+[\\/]+)*([^\\/:*?"<>|\s\']*)'
)
_POSIX = re.compile(r'(?<![\w.~/}])(?:~\w*|\$\{?\w+\}?)?/(?!/)(?:[\w.+@=-]+/)*([\w.+@=-]+)/?')
_BELOW_HOME = re.compile(r'(?<![\w.])(?:[\w.+@=-]+/)*(?:home|Users)/(?:[\w.+@=-]+/)*([\w.+@=-]+)')
_NUMBERS = re.compile(r'(?<![\w.:-])[0-9A-Fa-f]*[.:][0-9A-Fa-f:.]*[0-9A-Fa-f:](?![\w-])')
_MAC = re.compile(r'(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])')
_DOMAIN = re.compile(
    r'(?<![\w@/.-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+(?:internal|local|localdomain|lan|corp|intranet|'
    r'intra|home|cluster|svc|edu|org|com|net|gov|mil|cloud|io|ai|dev)(?![\w-]|\.\w)'
    r'|(?<![\w@/.-])(?:[A-Za-z0-9-]+\.){2,}(?!py|md|sh|gz|pt|js|cc|cu|so|th|ts|xz)[a-z]{2}(?![\w-]|\.\w)'
)  # a country's domain has three parts, so that a file is none


class Redaction:
    """Redacts values, and keeps the places of those that it changed.

    Args:
        hosts: Names of machines beside this one's.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        names = sorted({*hosts, socket.gethostname()} - {'', 'localhost'}, key=len, reverse=True)
        self.changed: list[str] = []
        self._hosts = None
        if names:
            any_name = '|'.join(map(re.escape, names))
            self._hosts = re.compile(rf'(?<![\w.-])({any_name})(?![\w-])')

    def values(self, node: Any, place: str = '', key: str = '') -> Any:
        """Return plain values without what is not for publication.

        Args:
            node: The values.
            place: Their dotted place, under which changes are noted.
            key: Their key, which says whether a text is a secret.
        """
        if isinstance(node, Mapping):
            inherited = key if _word_of(key) == SECRET else ''
            values = {}
            for name, value in node.items():
                inner = f'{place}.{name}' if place else str(name)
                shown = self._text(name) if isinstance(name, str) else name
                values[shown] = self.values(value, inner, inherited or str(name))
            return values
        if isinstance(node, list | tuple):
            flags = [
                str(entry).lstrip('-') if str(entry).startswith('--') else key
                for entry in (key, *node)
            ]
            return type(node)(
                self.values(one, f'{place}.{i}', flags[i]) for i, one in enumerate(node)
            )
        if key == 'type' or node is None or isinstance(node, bool):
            return node
        word = _word_of(key)
        is_secret_number = word == SECRET and isinstance(node, int | float)
        if not isinstance(node, str) and not is_secret_number:
            return node
        redacted = word if word and node not in ('', SECRET, HOST, USER) else self._text(str(node))
        if redacted != node:
            self.changed.append(place)
        return redacted

    def _text(self, text: str) -> str:
        """Return a text without what its form tells."""
        if len(text) > LONGEST:
            return f'{len(text):,} characters, left out'
        text = _SECRET_FORMS.sub(SECRET, text)
        text = _without_assigned(text)
        text = _ADDRESS.sub(_address, text)
        text = _SCP.sub(lambda match: _name(match[0].partition(':')[2]) or HOST, text)
        text = _AT_HOME.sub(USER, _PERSON.sub(USER, text))
        if re.match(r'([A-Za-z]:[\\/]|\\\\)', text):
            return PureWindowsPath(text).name or HOST
        text = _WINDOWS.sub(r'\1', text)
        if re.match(r'(~\w*|\$\{?\w+\}?)?/(?!/)', text) and '\n' not in text:
            text = _name(text)
        text = _POSIX.sub(r'\1', text)
        text = _BELOW_HOME.sub(r'\1', text)
        text = _MAC.sub(HOST, text)
        text = _NUMBERS.sub(_number, text)
        text = _DOMAIN.sub(lambda match: match[0] if _is_public(match[0]) else HOST, text)
        if self._hosts is None or (text.isalpha() and self._hosts.fullmatch(text)):
            return text  # a machine may be called as an argument of the model is, such as 'default'
        return self._hosts.sub(HOST, text)


def hosts_in(node: Any, key: str = '') -> set[str]:
    """Return the texts of plain values whose keys say that they name machines."""
    if isinstance(node, Mapping):
        return set().union(*(hosts_in(value, str(name)) for name, value in node.items()))
    if isinstance(node, list | tuple):
        return set().union(*(hosts_in(value, key) for value in node))
    is_name = isinstance(node, str) and re.fullmatch(r'[A-Za-z][\w.-]{2,}', node)
    return {node} if is_name and _word_of(key) == HOST else set()


def _word_of(key: str) -> str:
    """Return what stands for a text of this key; empty where the key tells nothing."""
    snake = re.sub(r'(?<=[a-z])(?=[A-Z])', '_', key.rpartition('.')[2]).lower().replace('-', '_')
    return next((word for pattern, word in _BY_KEY if pattern.fullmatch(snake)), '')


def _without_assigned(text: str) -> str:
    """Redact the values of ``key=value``, ``key: value`` and ``--key value``."""
    parts, end = [], 0
    for found in _BEFORE_VALUE.finditer(text):
        key, value = found[1], _VALUE.match(text, found.end())
        is_key = found[0].strip() != key or key.startswith('--')
        if value and found.start() >= end and is_key and _word_of(key.lstrip('-')) == SECRET:
            parts += [text[end : found.end()], SECRET]
            end = value.end()
    return ''.join([*parts, text[end:]])


def _address(match: re.Match) -> str:
    scheme = match[0].partition(':')[0].lower()
    if scheme in MODEL_SCHEMES:
        return match[0]
    try:
        parts = urlsplit(match[0])
        host = parts.hostname or ''
    except ValueError:  # of brackets that hold no address
        return f'{scheme}://{HOST}'
    if scheme == 'file' or not host:
        return _name(parts.path)
    if _is_public(host):
        return f'{scheme}://{host}{parts.path}'
    return f'{scheme}://{HOST}/{_name(parts.path)}'.rstrip('/')


def _is_public(host: str) -> bool:
    return any(host.lower() == name or host.lower().endswith(f'.{name}') for name in PUBLIC)


def _name(path: str) -> str:
    return PurePosixPath(path).name.lstrip('~')


def _number(match: re.Match) -> str:
    """Redact an IP address, with its port."""
    for text in (match[0], match[0].rpartition(':')[0], match[0].rstrip('.:')):
        try:
            ipaddress.ip_address(text)
        except ValueError:
            continue
        return HOST
    return match[0]
