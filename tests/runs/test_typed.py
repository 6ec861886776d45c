"""A field of a record that is renamed in its class alone: mypy names every module that reads it."""

import ast
import re
import shutil
import subprocess
import sys

import pytest
import tiny

SCHEMA = 'mmlape/lab/runs/schema.py'
FIELDS = (
    'cause', 'hook', 'job', 'memory_kind', 'peak_memory_mib', 'seconds_per_iter', 'settings_sha256', 'total_batch',
    'train_seconds',
)  # fmt: skip
"""Of several classes; nothing else in the package or in a library has an attribute of these names."""


@pytest.mark.release
def test_a_field_renamed_in_its_class_alone_is_found_in_every_reader(tmp_path):
    for name in ('mmlape', '.mypy_cache'):  # which saves a minute
        if (tiny.ROOT / name).is_dir():
            shutil.copytree(tiny.ROOT / name, tmp_path / name, symlinks=True)
    shutil.copy2(tiny.ROOT / 'pyproject.toml', tmp_path)
    reads = {
        (path.relative_to(tmp_path).as_posix(), node.attr)
        for path in (tmp_path / 'mmlape').rglob('*.py')
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in FIELDS
    }
    schema = tmp_path / SCHEMA
    text, count = re.subn(rf'^    ({"|".join(FIELDS)}): ', r'    \1_renamed: ', schema.read_text(), flags=re.MULTILINE)
    assert count >= len(FIELDS)
    schema.write_text(text)
    mypy = [sys.executable, '-m', 'mypy']
    printed = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    found = set(re.findall(r'^(\S+?):\d+: error: .*has no attribute "(\w+)"', printed, re.MULTILINE))
    assert {name for _, name in reads} == {*FIELDS} and reads <= found, sorted(reads - found)
