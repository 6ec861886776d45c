"""What `pytest --shake` changes."""

import os
import subprocess
import sys

import shaking

CODE = """
import os, pathlib, sys, time
import shaking
shaking.start()
folder = sys.argv[1]
for found in (
    os.listdir(folder),
    [entry.name for entry in os.scandir(folder)],
    [path.name for path in pathlib.Path(folder).iterdir()],
    [path.name for path in pathlib.Path(folder).rglob('*')],
):
    assert found == ['c', 'b', 'a'], found
first, second = time.time(), time.time()
assert -shaking.HOUR <= second - first < 60 - shaking.HOUR
assert time.timezone == -12.75 * shaking.HOUR
assert open(os.devnull).encoding.lower() != 'utf-8'
"""


def test_a_shaken_process_has_other_listings_clock_zone_and_encoding(tmp_path):
    for name in 'bca':
        (tmp_path / name).touch()
    variables = dict(os.environ, PYTHONPATH=str(shaking.TESTS), PYTHONUTF8='0')
    subprocess.run([sys.executable, '-c', CODE, tmp_path], env=variables, check=True)
