#!/usr/bin/env python
"""Rehearse on CPU processes what a machine with four GPUs will do: `make rehearse`, in ten minutes on two cores.

A DeiT with LaPE is pretrained on the mini data; Mask R-CNN, Segmenter and UperNet are fine-tuned from it by
`tools/dist_train.sh CONFIG 4`, one of them is killed and resumed; each is tested by `tools/dist_test.sh`; Segmenter is
averaged over three seeds. The validation set has a short last batch, and no labels on the images of the last process.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from mmlape.lab.evaluation.metric_names import TASK_METRICS, label, show
from mmlape.lab.experiments.averages import interval, mean_std_n, summarise
from mmlape.lab.experiments.statistics import INTERVAL
from mmlape.lab.runs.run import read_arms

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = 4
PRETRAINING = 'configs/deit/deit-mini-lape_1xb32-5e_mini-digits.py'
MASK_RCNN = 'configs/mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py'
SEGMENTER = 'configs/segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py'
UPERNET = 'configs/upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py'
DATA = {MASK_RCNN: 'coco', SEGMENTER: 'ade', UPERNET: 'ade'}
BATCH = {PRETRAINING: 8, MASK_RCNN: 1, SEGMENTER: 4, UPERNET: 2}
"""Images of each process. UperNet's batch norms need two on the CPU, which is twice the recipe's total batch."""
KILLED = UPERNET
METRICS = [name for names in TASK_METRICS.values() for name in names]


class Rehearsal:
    """The steps, each a command that is printed before it runs; their output goes to a log."""

    def __init__(self, folder: Path, iterations: int):
        self.folder, self.iterations = folder, iterations
        self.started = time.time()
        self.log = folder / 'rehearsal.log'

    def print(self, text: str) -> None:
        """Print a text behind the seconds that have passed, in lines that fit."""
        begin = f'{time.time() - self.started:4.0f} s  '
        options = dict(break_long_words=False, break_on_hyphens=False, subsequent_indent=' ' * 8)
        print(textwrap.fill(text, 119, initial_indent=begin, **options), flush=True)

    def start(self, *command) -> subprocess.Popen:
        """Start a command in a process group of its own."""
        words = [str(word) for word in command]
        self.print(' '.join(words).replace(f'{sys.executable} -m mmlape', 'mmlape'))
        with open(self.log, 'ab') as log:
            return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, *command) -> None:
        """Run a command to its end."""
        if status := self.start(*command).wait():
            sys.exit(f'exit status {status}; the end of {self.log} says why')

    def work_dir(self, config: str) -> Path:
        return self.folder / Path(config).parent.name

    def options(self, config: str) -> list[str]:
        """Return the changes of a config: data, weights, a short schedule with a warm-up that fits."""
        return [
            '--cfg-options',
            f'train_dataloader.batch_size={BATCH[config]}',
            f'data_root={self.folder}/data/{DATA[config]}/',
            f'train_cfg.max_iters={self.iterations}',
            f'train_cfg.val_interval={self.iterations}',
            'param_scheduler.0.end=1',
            'param_scheduler.1.begin=1',
            f'default_hooks.checkpoint.interval={self.iterations // 2}',
            f'model.backbone.init_cfg.checkpoint={self.work_dir(PRETRAINING)}/epoch_1.pth',
        ]

    def train_command(self, config: str, *flags: str) -> list:
        scale = ['--auto-scale-lr'] if config == UPERNET else []
        work_dir = self.work_dir(config)
        return [
            'tools/dist_train.sh',
            config,
            PROCESSES,
            '--work-dir',
            work_dir,
            *scale,
            *flags,
            *self.options(config),
        ]

    def prepare(self) -> None:
        """Write the mini data, with 18 scenes for validation, of which the last process gets none with labels."""
        data = self.folder / 'data'
        self.run(sys.executable, '-m', 'mmlape', 'make-mini-data', data, '--train', 48, '--val', 18, '--digits', 640)
        file = data / 'coco/annotations/instances_val2017.json'
        content = json.loads(file.read_text())
        of_last = {image['id'] for image in content['images'][PROCESSES - 1 :: PROCESSES]}
        content['annotations'] = [label for label in content['annotations'] if label['image_id'] not in of_last]
        file.write_text(json.dumps(content))

    def pretrain(self) -> None:
        """Pretrain for one epoch."""
        options = [f'train_dataloader.batch_size={BATCH[PRETRAINING]}', f'data_root={self.folder}/data/digits/']
        options += ['train_cfg.max_epochs=1', 'train_cfg.val_interval=1', 'param_scheduler.0.end=1']
        work_dir = ['--work-dir', self.work_dir(PRETRAINING)]
        self.run('tools/dist_train.sh', PRETRAINING, PROCESSES, *work_dir, '--cfg-options', *options)

    def kill_and_resume(self, config: str) -> None:
        """Kill every process of a run after its first checkpoint, and continue it."""
        process, checkpoint = self.start(*self.train_command(config)), self.work_dir(config) / 'last_checkpoint'
        while process.poll() is None and not checkpoint.is_file():
            time.sleep(0.2)
        if process.poll() is not None:
            sys.exit(f'the run ended before it was killed; the end of {self.log} says why')
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.print('killed by SIGKILL, and resumed:')
        self.run(*self.train_command(config, '--resume'))

    def test(self, config: str) -> None:
        """Evaluate the last checkpoint by four processes, and print its AP or mIoU."""
        checkpoint = self.work_dir(config) / f'iter_{self.iterations}.pth'
        options = ['--cfg-options', f'data_root={self.folder}/data/{DATA[config]}/']
        self.run('tools/dist_test.sh', config, checkpoint, PROCESSES, *options)
        found = json.loads((self.work_dir(config) / 'metrics.json').read_text())['metrics']
        self.print(', '.join(f'{label(name)} {show(name, found[name])}' for name in METRICS if name in found))

    def average(self, config: str) -> None:
        """Train three seeds of four processes each, and print mean, deviation and interval."""
        mmlape, folder = (sys.executable, '-m', 'mmlape'), self.folder / 'seeds'
        seeds = ['--seeds', 1, 2, 3, '--processes', PROCESSES, '--work-dir', folder]
        self.run(*mmlape, 'multi-seed', config, *seeds, *self.options(config))
        self.run(*mmlape, 'report', folder)
        (runs,) = read_arms(folder).values()
        found = summarise(runs, in_points=True).last.metrics['mIoU']
        self.print(
            f'mIoU over the seeds: {mean_std_n(found)}, {INTERVAL} {interval(found)}; {folder}/report/index.html'
        )


def main() -> None:
    """Run all steps in a new folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/rehearsal'), help='default: %(default)s')
    parser.add_argument('--iterations', type=int, default=12, help='of each run; default: %(default)s')
    args = parser.parse_args()
    folder = args.work_dir.resolve()
    os.chdir(ROOT)
    folder = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rehearsal = Rehearsal(folder, args.iterations)
    rehearsal.prepare()
    rehearsal.pretrain()
    for config in DATA:
        if config == KILLED:
            rehearsal.kill_and_resume(config)
        else:
            rehearsal.run(*rehearsal.train_command(config))
        rehearsal.test(config)
    rehearsal.average(SEGMENTER)
    rehearsal.print(f'everything ran; the log is {rehearsal.log}')


if __name__ == '__main__':
    main()
