"""Files that cannot be written: one line that names the file, and nothing half of it is left."""

import contextlib
import errno
import io
import resource
import sys

import numpy as np
import onnx
import pytest
import synthetic
import torch
from checkpoint_helpers import save
from each import each
from matplotlib.figure import Figure
from model_helpers import vit

from mmlape.checkpoint.converting import write_tensors
from mmlape.cli import main
from mmlape.commands import COMMANDS
from mmlape.console.figures import save_figure
from mmlape.console.tables import write_csv
from mmlape.files import atomic_path, write_bytes, write_json, write_text
from mmlape.lab.evaluation.saved import save_label_map

NOISE = torch.rand(64, 64)
PIXELS = (NOISE[..., None] * 255).repeat(1, 1, 3).byte().numpy()


def atomically(write):
    def write_to(path):
        with atomic_path(path) as partial:
            write(partial)

    return write_to


def graph(path):
    tensor = onnx.helper.make_tensor('a', onnx.TensorProto.FLOAT, [4096], NOISE.flatten().tolist())
    node = onnx.helper.make_node('Constant', [], ['b'], value=tensor)
    output = onnx.helper.make_tensor_value_info('b', onnx.TensorProto.FLOAT, [4096])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], 'g', [], [output])), path)


WRITERS = {
    'a.pth': lambda path: write_tensors({'a': NOISE}, path, 'state_dict', overwrite=True),
    'a.safetensors': lambda path: write_tensors({'a': NOISE}, path, overwrite=True),
    'a.npz': atomically(lambda path: np.savez(path, a=NOISE.numpy())),
    'a.bin': lambda path: write_bytes(path, PIXELS.tobytes()),
    'map.png': lambda path: save_label_map(path, (NOISE * 9).long(), 9, False),
    'figure.png': lambda path: save_figure(Figure(), path),
    'figure.svg': lambda path: save_figure(Figure(), path),
    'a.onnx': atomically(graph),
    'a.json': lambda path: write_json(path, {'a': NOISE.tolist()}),
    'a.txt': lambda path: write_text(path, 'a' * 9999),
    'a.csv': lambda path: write_csv(path, ('a',), [(value,) for value in NOISE.flatten().tolist()]),
}
"""By each library that writes here."""


@contextlib.contextmanager
def files_of_at_most(size):
    """Let no file grow beyond ``size`` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def files_in(folder):
    return sorted(path for path in folder.rglob('*') if path.is_file())


def test_what_cannot_be_written_names_the_file_and_leaves_the_one_before(tmp_path):
    for name, write in each([*WRITERS.items()]):
        path = tmp_path / name
        for before in ('', 'before'):
            if before:
                path.write_text(before)
            for size in (0, 100):
                with files_of_at_most(size), pytest.raises(OSError) as caught:
                    write(path)
                assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path)), size
                assert files_in(tmp_path) == ([path] if before else [])
        assert path.read_text() == 'before'
        write(path)
        written = files_in(tmp_path)
        assert path.stat().st_size > 100 and {one.with_suffix('') for one in written} == {path.with_suffix('')}
        for one in written:
            one.unlink()


@pytest.fixture(scope='module')
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp('inputs')
    for name in ('a', 'b'):
        save(folder / f'{name}.pth', vit().state_dict(), 'state_dict')
    synthetic.write_run(folder / 'runs' / 'arm', 1, 50.0)
    synthetic.write_run(folder / 'runs' / 'arm', 2, 51.0)
    return folder


WORDS = {
    'out.safetensors': ('checkpoint', 'convert', 'IN/a.pth', 'OUT', '--to', 'mmlape'),
    'published.safetensors': ('checkpoint', 'publish', 'IN/a.pth', 'OUT'),
    'average.pth': ('checkpoint', 'average', 'IN/a.pth', 'IN/b.pth', '--out', 'OUT'),
    'report': ('report', 'IN/runs', '--out', 'OUT'),
    'mini': ('make-mini-data', 'OUT', '--train', '2', '--val', '1', '--digits', '10'),
}  # fmt: skip
"""Commands that write without a model, by what they write."""


def refused(words, capsys):
    """Call a command that cannot write; return its one line."""
    capsys.readouterr()
    status = main(list(words))
    printed = capsys.readouterr()
    lines = printed.err.strip().splitlines()
    assert status == 1 and len(lines) == 1, (words, printed.err)
    assert lines[0].startswith('mmlape: error: ') and 'Traceback' not in printed.out
    return lines[0]


def test_each_command_that_cannot_write_is_one_line(inputs, tmp_path, capsys):
    """A full disk, a file where a folder should be, a folder that is forbidden, also for root, and too long a name."""
    (tmp_path / 'file').touch()
    before = files_in(tmp_path)
    places = {
        'full': (tmp_path / 'full', 'File too large'),
        'below a file': (tmp_path / 'file', 'ot a directory|exists'),
        'forbidden': (tmp_path.__class__('/sys/kernel/mmlape'), 'permitted|denied|Permission'),
        'long': (tmp_path / ('a' * 300), 'too long'),
    }
    for (name, words), (kind, (folder, reason)) in each([(c, p) for c in WORDS.items() for p in places.items()]):
        out = str(folder / name)
        given = [word.replace('IN', str(inputs), 1) if word.startswith('IN/') else word for word in words]
        given = [out if word == 'OUT' else word for word in given]
        limit = files_of_at_most(0) if kind == 'full' else contextlib.nullcontext()
        with limit:
            line = refused(given, capsys)
        assert any(part in line for part in reason.split('|')) and str(folder) in line, (given, line)
        assert files_in(tmp_path) == before, given


# streams and names


def test_every_help_is_printed_to_any_stream(monkeypatch):
    """In ASCII: what a stream cannot encode is written as an escape."""
    for name in each(['', *COMMANDS]):
        words = [name, '--help'] if name else ['--help']
        stream = io.TextIOWrapper(io.BytesIO(), encoding='ascii')
        monkeypatch.setattr(sys, 'stdout', stream)
        assert main(words) == 0
        stream.flush()
        assert len(stream.buffer.getvalue()) > 100
