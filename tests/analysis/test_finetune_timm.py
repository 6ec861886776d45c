"""The example that fine-tunes a ViT of timm after `add_lape`, with a few images of two kinds."""

import gzip
import json
import struct

import finetune_timm
import numpy as np
import pytest

ARGUMENTS = '--images 64 --pretrain 6 --tune 2 --batch 16 --width 16 --depth 2 --lr 3e-3 --seeds 1 2'


@pytest.fixture
def data(tmp_path):
    """Bright images are of class 1, dark ones of class 0."""
    random = np.random.RandomState(0)
    for stem, count in (('train', 80), ('t10k', 40)):
        labels = (np.arange(count) % 2).astype(np.uint8)
        images = random.randint(0, 100, (count, 28, 28)).astype(np.uint8) + 120 * labels[:, None, None]
        for name, array in (('images-idx3', images), ('labels-idx1', labels)):
            header = bytes((0, 0, 8, array.ndim)) + struct.pack(f'>{array.ndim}I', *array.shape)
            path = tmp_path / f'{stem}-{name}-ubyte.gz'
            path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))
    return tmp_path


def test_every_arm_is_in_the_table_and_a_second_call_goes_on(data, capsys, monkeypatch):
    out = data / 'out'
    command = ['--data', str(data), '--out', str(out), *ARGUMENTS.split()]
    finetune_timm.main(command[:-1])
    first, own = json.loads((out / 'results.json').read_text())['top-1'], finetune_timm.run_seed
    monkeypatch.setattr(finetune_timm, 'run_seed', lambda seed, *args: seed == 2 and own(seed, *args))
    finetune_timm.main(command)
    with pytest.raises(SystemExit):
        finetune_timm.main([*command, '--images', '60'])
    assert 'has results of other arguments' in capsys.readouterr().err
    assert json.loads((out / 'results.json').read_text())['top-1']['1'] == first['1']
    results = json.loads((out / 'results.json').read_text())['top-1']
    assert set(results) == {'1', '2'} and all(list(one) == list(finetune_timm.ARMS) for one in results.values())
    trained = [value for one in results.values() for arm, value in one.items() if arm != 'changed lape']
    assert min(trained) > 90
    assert finetune_timm.summary([1.0, 2.0]) == '1.50 ± 0.71'
    text = (out / 'results.md').read_text()
    assert '| tuned lape - tuned |' in text and '| 2 |' in text
