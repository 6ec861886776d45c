"""GPUs are handed out once, whoever asks; and plans are carried out by several schedulers without a run done twice."""

import json
import os
import signal
import subprocess

import pytest
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmlape.errors import ConfigError, TrainingError
from mmlape.lab.experiments.launchers import Device, DevicePool, LocalLauncher, visible_devices
from mmlape.lab.runs.record import lock_holder
from mmlape.lab.runs.run import start_lock

# A stand-in for a training: it fails where its GPU or its run is used twice at a time, and takes its time.
TRAINING = """
import json, os, sys, time
folder, used = sys.argv[1], sys.argv[2]
marks = [f'{used}/{name}' for name in os.environ['CUDA_VISIBLE_DEVICES'].split(',')]
for mark in marks:
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
os.mkdir(folder)
time.sleep(0.3)
record = dict(seed=int(folder.rpartition('_')[2]), state='finished', gpus=marks)
open(f'{folder}/run.json', 'w').write(json.dumps(record))
for mark in marks:
    os.unlink(mark)
"""

SCHEDULER = """
import sys
from pathlib import Path
from mmlape.lab.experiments.launchers import Device, LocalLauncher
from mmlape.lab.runs.run import Run
from mmlape.lab.experiments.scheduler import Scheduler
from mmlape.lab.experiments.planning import Arm, PlannedRun

root, training = Path(sys.argv[1]), sys.argv[2]
class Launcher(LocalLauncher):
    def command(self, planned):
        return [sys.executable, '-c', training, str(planned.folder), str(root / 'used')]
arm = Arm('arm', 'config.py')
runs = [Run(root / 'arm' / f'seed_{seed}', seed, 'missing') for seed in range(9)]
devices = [Device(str(index), f'GPU-{index}') for index in range(3)]
launcher = Launcher(1, devices=devices)
launcher.pool.folder = root / 'locks'
print('ready', flush=True)
sys.stdin.readline()
done = Scheduler([PlannedRun(arm, (), run, 'start') for run in runs], launcher, poll_interval=0.05).run()
sys.exit(not all(run.finished for run in done))
"""


def _side_by_side(script, *arguments, count):
    """Runs a script in several processes, which all begin when all are ready."""
    variables = tiny.environment()
    command = [variables['PYTHON'], '-c', script, *map(str, arguments)]
    children = [
        subprocess.Popen(
            command, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for _ in range(count)
    ]  # fmt: skip
    for child in children:
        assert child.stdout.readline() == 'ready\n', child.communicate()[0]
    for child in children:
        child.stdin.write('\n')
        child.stdin.flush()
    said = [child.communicate(timeout=tiny.GUARD)[0] for child in children]
    assert [child.returncode for child in children] == [0] * count, said
    return said


def test_two_schedulers_with_three_gpus_do_each_run_once(tmp_path):
    (tmp_path / 'used').mkdir()
    said = _side_by_side(SCHEDULER, tmp_path, TRAINING, count=2)
    assert sum(text.count('finished after') for text in said) == 9, said
    assert not any('FAILED' in text for text in said), said
    logs = sorted((tmp_path / 'arm' / 'logs').glob('*.log'))
    assert len(logs) == 9 and all(log.read_text().count('$ ') == 1 for log in logs)
    used = [json.loads(path.read_text())['gpus'] for path in (tmp_path / 'arm').glob('seed_*/run.json')]
    assert len({tuple(gpus) for gpus in used}) == 3


def test_a_gpu_is_taken_under_every_name(tmp_path):
    """Two processes that see one GPU, by CUDA_VISIBLE_DEVICES, under different numbers."""
    first, second = (DevicePool([Device(name, 'GPU-a')], tmp_path) for name in ('0', '3'))
    slot = first.acquire(1)
    assert second.acquire(1) is None and second.free() == []
    slot.release()
    slot = second.acquire(1)
    assert slot.visible == '3'
    slot.release()


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_runs_share_a_gpu_up_to_a_number_or_have_it_alone(tmp_path, data):
    """Calls with other numbers of shares come and go in any order; a model of them says what each must get."""
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    gpus = [Device(str(index), f'GPU-{index}') for index in range(2)]
    pools = {shares: DevicePool(gpus, folder, shares) for shares in (1, 2, 4)}
    held = []  # (shares, slot)
    for _ in range(12):
        if held and data.draw(st.booleans()):
            held.pop(data.draw(st.integers(0, len(held) - 1)))[1].release()
            continue
        shares = data.draw(st.sampled_from((1, 2, 4)))
        on = {gpu: [one for one, slot in held if slot.devices == (gpu,)] for gpu in gpus}
        room = [gpu for gpu in gpus if 1 not in on[gpu] and len(on[gpu]) < shares]
        slot = pools[shares].acquire(1)
        assert (slot is not None) == bool(room)
        if slot is not None:
            assert slot.devices[0] in room and len(on[slot.devices[0]]) == min(len(on[gpu]) for gpu in room)
            held.append((shares, slot))
    for _, slot in held:
        slot.release()


STARTER = """
import os, sys, time
from pathlib import Path
from mmlape.lab.experiments.launchers import Device, LocalLauncher
from mmlape.lab.experiments.planning import Arm, PlannedRun
from mmlape.lab.runs.record import take_lock
from mmlape.lab.runs.run import Run, start_lock

root = Path(sys.argv[1])
class Launcher(LocalLauncher):
    def command(self, planned):
        return ['sleep', '1800']
devices = [Device(str(index), f'GPU-{index}') for index in range(2)]
launcher = Launcher(2, devices=devices)
launcher.pool.folder = root / 'locks'
planned = PlannedRun(Arm('arm', 'config.py'), (), Run(root / 'arm' / 'seed_1', 1, 'missing'), 'start')
planned.log.parent.mkdir(parents=True)
job = launcher.start(planned, take_lock(start_lock(planned.folder)), launcher.reserve(0))
print(os.getpid(), job.process.pid, flush=True)
time.sleep(1800)
"""


def test_a_started_run_keeps_its_gpus_and_its_lock_when_its_starter_is_killed(tmp_path):
    variables = tiny.environment()
    command = [variables['PYTHON'], '-c', STARTER, str(tmp_path)]
    parent = subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE)
    starter, child = map(int, parent.stdout.readline().split())
    pool = DevicePool([Device(str(index), f'GPU-{index}') for index in range(2)], tmp_path / 'locks')
    lock = start_lock(tmp_path / 'arm' / 'seed_1')
    os.kill(starter, signal.SIGKILL)  # a fork, which outlives its stand-in a little
    parent.wait()
    tiny.until(lambda: not os.path.exists(f'/proc/{starter}'))
    try:
        assert pool.free() == [] and pool.acquire(1) is None and lock_holder(lock)
    finally:
        os.kill(child, signal.SIGKILL)
    tiny.until(lambda: len(pool.free()) == 2 and lock_holder(lock) is None)


def test_the_gpus_are_those_that_cuda_shows_under_their_names_there(tmp_path, monkeypatch):
    """A torch of our own stands for a machine with GPUs: this one has none."""
    (tmp_path / 'torch').mkdir()
    (tmp_path / 'torch' / '__init__.py').write_text(
        'import os\n'
        'from types import SimpleNamespace as Space\n'
        'shown = os.environ.get("CUDA_VISIBLE_DEVICES")\n'
        'shown = [0, 1, 2] if shown is None else [int(name) for name in shown.split(",") if name]\n'
        'found = lambda index: Space(uuid=f"uuid-{shown[index]}")\n'
        'cuda = Space(device_count=lambda: len(shown), get_device_properties=found)\n'
    )
    monkeypatch.setenv('PYTHONPATH', str(tmp_path))
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    assert visible_devices() == [Device(str(index), f'uuid-{index}') for index in range(3)]
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '2, 0')
    assert visible_devices() == [Device('2', 'uuid-2'), Device('0', 'uuid-0')]
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
    assert visible_devices() == []
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES')
    (tmp_path / 'torch' / '__init__.py').write_text('raise OSError("no such driver")')
    with pytest.raises(TrainingError, match='no such driver'):
        visible_devices()


def test_cores_and_gpus_decide_how_many_runs_fit(monkeypatch):
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: set(range(8)))
    gpus = [Device(str(index), f'GPU-{index}') for index in range(4)]
    for processes, parallel, devices, max_parallel, threads in (
        (1, None, [], 8, 1), (2, None, [], 4, 1), (16, None, [], 1, 1), (1, 2, [], 2, 4), (2, 1, [], 1, 4),
        (2, None, gpus, 2, 2), (1, None, gpus, 4, 2), (4, None, gpus, 1, 2), (2, 1, gpus, 1, 4),
    ):  # fmt: skip
        launcher = LocalLauncher(processes, parallel, devices)
        assert (launcher.max_parallel, launcher.threads) == (max_parallel, threads)
    with pytest.raises(ConfigError, match=r'--processes 5: 4 GPUs are visible here'):
        LocalLauncher(5, devices=gpus)
    for per_gpu, parallel, devices, max_parallel, threads in (
        (4, None, [], 4, 2), (2, None, gpus, 8, 1), (2, 3, gpus, 3, 2), (1, None, gpus, 4, 2), (16, None, [], 16, 1),
    ):  # fmt: skip
        launcher = LocalLauncher(1, parallel, devices, per_gpu=per_gpu)
        assert (launcher.max_parallel, launcher.threads) == (max_parallel, threads)
    with pytest.raises(ConfigError, match='--per-gpu 2: runs of --processes 2 have their GPUs alone'):
        LocalLauncher(2, devices=gpus, per_gpu=2)
