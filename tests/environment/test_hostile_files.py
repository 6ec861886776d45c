"""Files that lie about what they hold: each ends in one line that names it, before time or memory is lost."""

import struct
import zipfile

import pytest
import torch
from checkpoint_helpers import record_in, save
from each import each
from model_helpers import vit

from mmlape.checkpoint import read_checkpoint
from mmlape.checkpoint.metadata import KEY
from mmlape.cli import main
from mmlape.errors import CheckpointError, DataError
from mmlape.lab.datasets.formats.coco_file import read_coco
from mmlape.lab.runs.resume import is_complete
from mmlape.projects.lit.captions import read_captions

DEEP = '[' * 100_000


def test_each_reader_of_json_names_the_file(tmp_path):
    for name, read in each((('coco.json', read_coco), ('captions.json', read_captions), ('c.jsonl', read_captions))):
        (tmp_path / name).write_text(DEEP)
        with pytest.raises(DataError, match=name) as caught:
            read(str(tmp_path / name))
        assert len(str(caught.value)) < 500


# checkpoints


def convert(path, capsys):
    """Convert and publish a file; return what either printed, and the exit status of both."""
    printed = []
    for words in (['convert', '--to', 'mmlape'], ['publish']):
        command, *options = words
        status = main(['checkpoint', command, str(path), str(path.with_name(f'{command}.safetensors')), *options])
        printed.append((status, capsys.readouterr().err))
    return printed


EXPANDED = {'stride 0': torch.zeros(1).expand(1 << 34), 'sparse': torch.eye(3).to_sparse()}


@pytest.mark.parametrize('name', EXPANDED)
def test_tensors_larger_than_their_file_are_refused(tmp_path, capsys, name):
    path = tmp_path / 'a.pth'
    save(path, {**vit().state_dict(), 'blocks.0.more': EXPANDED[name]}, 'state_dict')
    for status, printed in convert(path, capsys):
        assert status == 1 and 'Traceback' not in printed
        line = printed.strip().splitlines()[-1]
        assert line.startswith(f'mmlape: error: checkpoint {path}: ') and 'blocks.0.more' in line


def test_a_small_expanded_tensor_is_read(tmp_path):
    """Old code saved masks and indices so."""
    weights = vit().state_dict()
    expanded = {**weights, 'norm.weight': weights['norm.weight'][:1].expand(24)}
    path = tmp_path / 'a.pth'
    save(path, expanded, 'state_dict')
    assert main(['checkpoint', 'convert', str(path), str(tmp_path / 'b.pth'), '--to', 'mmlape']) == 0
    written = read_checkpoint(tmp_path / 'b.pth')['state_dict']['norm.weight']
    assert written.is_contiguous() and torch.equal(written, expanded['norm.weight'])


@pytest.mark.parametrize('grid', [[10**9, 10**9], [10**5, 1], [1, 1 << 15]])
def test_a_grid_that_no_image_has_is_not_recorded(tmp_path, capsys, grid):
    path = tmp_path / 'a.pth'
    save(path, vit().state_dict(), 'state_dict', meta={KEY: {'backbones': {'backbone': {'grid': grid}}}})
    assert [status for status, _ in convert(path, capsys)] == [0, 0]
    assert 'grid' not in record_in(tmp_path / 'convert.safetensors').backbone


@pytest.mark.parametrize('mean', [[10**400] * 3, [float('nan')] * 3, [1e300] * 3])
def test_a_mean_that_no_image_has_is_unknown(tmp_path, mean):
    path = tmp_path / 'a.pth'
    save(path, vit().state_dict(), 'state_dict', meta={KEY: {'mean': mean, 'std': [1.0] * 3}})
    assert record_in(path).normalisation is None


# offset in the local header, offset in the central directory, format and value of what is changed in an archive
LIES = {
    'size': (22, 24, '<I', 1 << 20),
    'compressed size': (18, 20, '<I', 1 << 20),
    'smaller size': (22, 24, '<I', 100),
    'checksum': (14, 16, '<I', 7),
    'compression': (8, 10, '<H', 99),
    'deflated': (8, 10, '<H', zipfile.ZIP_DEFLATED),
    'lzma': (8, 10, '<H', zipfile.ZIP_LZMA),
    'bzip2': (8, 10, '<H', zipfile.ZIP_BZIP2),
    'encrypted': (6, 8, '<H', 1),
}


@pytest.mark.parametrize('lie', LIES)
@pytest.mark.parametrize('both', [True, False], ids=['both', 'directory only'])
def test_an_archive_that_lies_is_one_line(tmp_path, capsys, lie, both):
    local, central, form, value = LIES[lie]
    inner, path = tmp_path / 'a.pth', tmp_path / 'a.zip'
    save(inner, vit().state_dict(), 'state_dict')
    with zipfile.ZipFile(path, 'w') as archive:
        archive.write(inner, 'a.pth')
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, data.rindex(b'PK\1\2') + central, value)
    if both:
        struct.pack_into(form, data, local, value)
    path.write_bytes(data)
    try:
        content = read_checkpoint(path)
    except CheckpointError as error:
        assert str(error).startswith(f'checkpoint {path}')
        assert not is_complete(path)
    else:  # what is there was read nevertheless
        assert lie.endswith('size') and content.keys() == read_checkpoint(inner).keys()
