"""Several real processes: they compute what one does, they stop together, and the launch scripts start them."""

import itertools
import json
import os
import re
import socket
import subprocess
import sys

import forking_python
import pytest
import tiny
import torch
import trouble
from each import each
from mmengine.config import Config

from mmlape.checkpoint import read_checkpoint
from mmlape.lab import distributed
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference.evaluator import test as evaluate
from mmlape.lab.runs.record import running_in

OPTIONS = ('train_cfg.max_iters=6', 'train_cfg.val_interval=3', 'default_hooks.checkpoint.interval=3')
OPTIONS += ('auto_scale_lr.base_batch_size=4',)
# random numbers for a part of a batch differ from those for the complete batch
OPTIONS += ('model.backbone.drop_path_rate=0.0', 'model.decode_head.dropout_ratio=0.0')
TOOLS = tiny.ROOT / 'tools'


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tiny')
    # statistics of a batch, which a process on the CPU takes of its own images, would tell one process from two
    norm = "model['decode_head']['norm_cfg'] = dict(type='GN', num_groups=4)\n"
    # no number of images is a multiple of the processes or of the batch
    return tiny.write_config(folder, tiny.write_data(folder / 'data', train=7, val=5), trouble.CONFIG + norm)


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope='module')
def alone(config):
    """One process with four images a step."""
    work_dir = config.parent / 'alone'
    tiny.train(config, work_dir, '--seed', 5, '--cfg-options', *OPTIONS, 'train_dataloader.batch_size=4')
    return work_dir


@pytest.fixture(scope='module')
def together(config):
    """Two machines of one process and two images each; both are this one, and neither comes when the other does."""
    work_dir = config.parent / 'together'
    port = free_port()
    words = [TOOLS / 'dist_train.sh', config, '1', '--work-dir', work_dir, '--seed', '5', '--cfg-options', *OPTIONS]
    nodes = [
        subprocess.Popen(
            [str(word) for word in words],
            cwd=config.parent,
            env=tiny.environment(
                NNODES='2', NODE_RANK=str(rank), MASTER_ADDR='127.0.0.1', PORT=port, TROUBLE='late:1'
            ),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]
    printed = ''.join(node.communicate(timeout=tiny.GUARD)[0] for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0], printed[-6000:]
    return work_dir, printed  # torchrun may give either node the process 0, which speaks for all


DIFFERENT = {
    'updated', 'started', 'finished', 'pid', 'host', 'parts', 'peak_memory_mib', 'seconds_per_iter', 'train_seconds',
    'time', 'data_time', 'eta', 'world_size', 'images_per_process', 'batch_size', 'distributed', 'launcher',
    'model_wrapper_cfg', 'experiment_name',
}  # fmt: skip
"""Keys that may differ: times, the machine, and how a batch is divided."""
OF_PROCESS_0 = {'loss', 'decode.loss_ce', 'decode.acc_seg'}
"""MMEngine logs those of process 0."""


def content_of(path, folder):
    """Return what a file of a folder says, without what may differ."""
    if path.suffix == '.pth':
        content = read_checkpoint(path)
        return {key: content[key] for key in ('state_dict', 'optimizer', 'param_schedulers') if key in content}
    if path.suffix == '.png' and path.parent.name == 'predictions':
        return path.read_bytes()
    if path.suffix not in ('.json', '.jsonl', '.py'):  # logs, figures of the loss, the lock
        return None
    text = path.read_text(encoding='utf-8').replace(str(folder), 'FOLDER')
    if path.suffix == '.py':
        return _without(Config.fromstring(text, '.py').to_dict(), DIFFERENT)
    lines = text.splitlines() if re.match('{.*}\n', text) else [text]
    return [_without(json.loads(line), DIFFERENT | OF_PROCESS_0) for line in lines]


def _without(content, keys):
    if isinstance(content, dict):
        return {key: _without(value, keys) for key, value in content.items() if key not in keys}
    if isinstance(content, list):
        return [_without(value, keys) for value in content]
    return content


def tree_of(folder):
    """Return the files of a folder by name, which may have the time of the start."""
    files = [path for path in sorted(folder.rglob('*')) if path.is_file()]
    named = {re.sub(r'\d{8}_\d{6}', 'TIME', path.relative_to(folder).as_posix()): path for path in files}
    assert len(named) == len(files)
    return named


def assert_same_trees(one, two):
    first, second = tree_of(one), tree_of(two)
    assert first and list(first) == list(second)
    found = [
        line
        for name in first
        for line in tiny.differences(content_of(first[name], one), content_of(second[name], two), name, 1e-5)
    ]
    assert not found, '\n'.join(found)


def test_two_processes_write_what_one_does_with_the_same_batch(config, alone, together, tmp_path):
    """Every file of a run, whichever process is late; and the evaluations are those of the weights."""
    work_dir, printed = together
    run, single = tiny.record(work_dir), tiny.record(alone)
    assert (run['world_size'], run['total_batch'], single['total_batch']) == (2, 4, 4)
    processes = 'GPUs' if torch.cuda.is_available() else 'CPU processes'
    assert f'2 {processes} x 2 images x 1 accumulated = 4 images a step' in printed
    assert_same_trees(alone, work_dir)
    last = tiny.evaluations(work_dir)[-1]
    found = evaluate(load_config(config), work_dir / 'iter_6.pth', tmp_path)
    assert last['step'] == 6 and last['metrics'] == pytest.approx(found['metrics'], rel=1e-6)


@tiny.in_a_fork
def test_two_processes_test_as_one(config, alone, python):
    checkpoint, one, two = alone / 'iter_6.pth', config.parent / 'one', config.parent / 'two'
    evaluate(load_config(config), checkpoint, one, save_pred=True)
    words = ('2', '--work-dir', two, '--save-pred')
    more = dict(
        python, PYTHON_EXEC=forking_python.executable(), TROUBLE='late:2'
    )  # the shell's and the launcher's, the workers'
    printed = tiny.run(TOOLS / 'dist_test.sh', config, checkpoint, *words, cwd=config.parent, **more)
    assert printed.count('metrics are in') == 1
    assert json.loads((two / 'metrics.json').read_text())['world_size'] == 2
    assert len(list((two / 'predictions').iterdir())) == 5
    assert_same_trees(one, two)
    assert not (config.parent / '.dist_test').exists(), 'results are gathered in the work dir'


def test_a_nan_in_one_process_stops_both(config):
    work_dir = config.parent / 'nan'
    words = (config, '2', '--work-dir', work_dir, '--cfg-options', *OPTIONS)
    printed = tiny.run(TOOLS / 'dist_train.sh', *words, cwd=config.parent, status=1, TROUBLE='nan:5:1')
    messages = re.findall(r'mmlape: error: .*iteration 5: .*\(process 1\)', printed)
    assert messages and '(process 0)' not in messages[0]
    run = tiny.record(work_dir)
    assert run['state'] == 'failed' and 'process 1' in run['reason']
    assert [path.name for path in work_dir.glob('iter_*')] == ['iter_3.pth']


@pytest.mark.release
def test_a_training_ends_with_the_launcher_that_is_killed(config, tmp_path):
    """Its GPUs' locks end with it, so they must be free."""
    words = (TOOLS / 'dist_train.sh', config, '1', '--work-dir', tmp_path / 'run', '--cfg-options', *OPTIONS)
    words += ('train_dataloader.batch_size=4',)
    running = subprocess.Popen(
        [str(word) for word in words],
        cwd=config.parent,
        env=tiny.environment(TROUBLE='wait:3', **tiny.REAL),  # which know their parent
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    for line in running.stdout:
        if line.startswith('waiting'):
            break
    trainer = running_in(tmp_path / 'run')['pid']
    assert trainer != running.pid
    running.kill()
    running.communicate()
    tiny.until(lambda: not running_in(tmp_path / 'run'))


def test_the_reason_that_ends_several_processes_is_printed(tmp_path):
    """As one line of the process that knows it, though torchrun ends both as soon as one has failed."""
    script = tiny.ROOT / 'tests' / 'failing_process.py'
    launch = (sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', '2', script)
    environment = tiny.environment(LATE='0.5', CUDA_VISIBLE_DEVICES='')
    environment['PYTHON_EXEC'] = environment['PYTHON']  # the processes'
    for kind in each(('before', 'main', 'late', 'bug')):
        words = tiny.command_of([*launch, kind], environment['PYTHON'])
        done = subprocess.run(words, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=tiny.GUARD)
        reason = 'LookupError: REASON' if kind == 'bug' else 'mmlape: error: REASON'
        assert done.returncode == 1 and done.stderr.count(reason) == 1, (kind, done.stderr)


@pytest.mark.parametrize(
    ('count', 'per_task', 'local_rank'), [(4, None, '3'), (1, None, '3'), (1, '1', '0'), (4, '1', '3')]
)
def test_a_slurm_task_that_sees_one_gpu_of_its_own_takes_it(monkeypatch, count, per_task, local_rank):
    task = dict(SLURM_PROCID='7', SLURM_LOCALID='3', SLURM_NTASKS='8', SLURM_NODELIST='host', SLURM_JOB_ID='12')
    monkeypatch.setattr(os, 'environ', task | (dict(SLURM_GPUS_PER_TASK=per_task) if per_task else {}))
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: count)
    distributed._adopt_slurm_variables()
    assert (os.environ['RANK'], os.environ['LOCAL_RANK'], os.environ['WORLD_SIZE']) == ('7', local_rank, '8')
    assert (os.environ['MASTER_ADDR'], os.environ['MASTER_PORT']) == ('host', '20012')


def test_predictions_are_gathered_and_errors_raised_once(tmp_path):
    script = tiny.ROOT / 'tests' / 'gathering_processes.py'
    launch = (sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', 2, script)
    more = dict(CUDA_VISIBLE_DEVICES='', PYTHON_EXEC=forking_python.executable())
    printed = tiny.run(*launch, tmp_path / 'predictions', cwd=tmp_path, **more)
    assert printed.count('all gathered') == 2


# launch scripts


def script(folder, name, text):
    path = folder / name
    path.write_text(f'#!/usr/bin/env bash\n{text}')
    path.chmod(0o755)
    return path


# as srun does it, without its queue: the tasks of one job on this machine, with the variables that it sets
SRUN = """
echo "srun $*" > "$(dirname "$0")/called"
while [[ $1 == --* ]]; do
    case $1 in
    --ntasks) tasks=$2 && shift 2 ;;
    --*=*) shift ;;
    *) shift 2 ;;
    esac
done
for ((rank = 0; rank < tasks; rank++)); do
    SLURM_JOB_ID=$$ SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NTASKS=$tasks SLURM_NODELIST=127.0.0.1 "$@" &
done
wait
"""


def test_slurm_scripts_start_one_task_a_process(config, tmp_path, monkeypatch):
    script(tmp_path, 'srun', SRUN)
    path = f'{tmp_path}:{tiny.environment()["PATH"]}'
    options = ('--cfg-options', *OPTIONS, 'train_cfg.max_iters=2')
    words = ('part', 'job', config, '2', '--work-dir', tmp_path / 'run', *options)
    more = dict(PATH=path, GPUS_PER_NODE='0', CPUS_PER_TASK='1', SRUN_ARGS='--time=5 --quiet=1')
    tiny.run(TOOLS / 'slurm_train.sh', *words, cwd=tmp_path, **more)
    called = (tmp_path / 'called').read_text()
    request = '--partition part --job-name job --ntasks 2 --ntasks-per-node 2 --cpus-per-task 1 --kill-on-bad-exit=1'
    assert request in called and '--signal TERM@120 --time=5 --quiet=1' in called and '--gres' not in called
    run = tiny.record(tmp_path / 'run')
    assert (run['state'], run['world_size'], run['iter']) == ('finished', 2, 2)
    python = script(tmp_path, 'python', ':')
    more = dict(PATH=path, GPUS='8', PYTHON=str(python))
    tiny.run(TOOLS / 'slurm_test.sh', 'part', 'job', 'c.py', 'w.pth', '--out', 'm', cwd=tmp_path, **more)
    called = (tmp_path / 'called').read_text()
    assert '--ntasks 8 --ntasks-per-node 4 --cpus-per-task 5 --kill-on-bad-exit=1 --gres gpu:4' in called
    assert '--signal' not in called
    assert called.strip().endswith('test.py c.py w.pth --out m --launcher slurm')


def test_steps_of_a_slurm_job_have_ports_of_their_own(monkeypatch):
    ports = set()
    for job, step in itertools.product(range(1234, 1244), range(10)):
        task = dict(SLURM_PROCID='0', SLURM_NTASKS='1', SLURM_NODELIST='host')
        monkeypatch.setattr(os, 'environ', task | dict(SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step)))
        distributed._adopt_slurm_variables()
        ports.add(int(os.environ['MASTER_PORT']))
    assert len(ports) == 100 and min(ports) >= 20000 and max(ports) < 32768


def test_the_time_out_reaches_the_process_group(monkeypatch):
    """Long enough for an evaluation by default, and the configuration's where it says one; on GPUs and without."""
    given = {}
    variables = dict(RANK='0', WORLD_SIZE='1', LOCAL_RANK='0', MASTER_ADDR='127.0.0.1', MASTER_PORT='1')
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, 'init_process_group', lambda *args, **kwargs: given.update(kwargs))
    for gpu in (False, True):
        monkeypatch.setattr(torch.cuda, 'is_available', lambda gpu=gpu: gpu)
        monkeypatch.setattr(torch.cuda, 'device_count', lambda: 1)
        monkeypatch.setattr(torch.cuda, 'set_device', lambda _: None)
        distributed.init_processes('pytorch', dict(env_cfg=dict(dist_cfg=dict(backend='nccl'))))
        assert given.pop('timeout').total_seconds() == 3600
        distributed.init_processes('pytorch', dict(env_cfg=dict(dist_cfg=dict(timeout=77))))
        assert given.pop('timeout').total_seconds() == 77
