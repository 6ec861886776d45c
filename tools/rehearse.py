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
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = 4
PRETRAINING = 'configs/deit/deit-mini-lape_1xb32-5e_mini-digits.py'
MASK_RCNN = 'configs/mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py'
SEGMENTER = 'configs/segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py'
UPERNET = 'configs/upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py'
DATA = {MASK_RCNN: 'coco', SEGMENTER: 'ade', UPERNET: 'ade'}
BATCH = {PRETRAINING: 8, MASK_RCNN: 1, SEGMENTER: 4, UPERNET: 1}
"""Images of each process, so that four have the total batch of the recipe."""
KILLED = UPERNET


class Rehearsal:
    """The steps, each a command that is printed before it runs; their output goes to a log."""

    def __init__(self, folder: Path, iterations: int):
        self.folder, self.iterations = folder, iterations
        self.started = time.time()
        self.log = folder / 'rehearsal.log'

    def start(self, *command) -> subprocess.Popen:
        """Start a command in a process group of its own."""
        words = [str(word) for word in command]
        print(f'{time.time() - self.started:4.0f} s  {" ".join(words)}', flush=True)
        with open(self.log, 'ab') as log:
            return subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, *command) -> None:
        """Run a command to its end."""
        if status := self.start(*command).wait():
            sys.exit(f'exit status {status}; the end of {self.log} says why')

    def work_dir(self, config: str) -> Path:
        return self.folder / Path(config).stem

    def train_command(self, config: str) -> list[str]:
        options = [f'train_dataloader.batch_size={BATCH[config]}', f'data_root={self.folder}/data/{DATA[config]}/']
        options += [f'train_cfg.max_iters={self.iterations}', f'train_cfg.val_interval={self.iterations}']
        options += ['param_scheduler.0.end=1', 'param_scheduler.1.begin=1']  # a warm-up that fits
        options += [f'default_hooks.checkpoint.interval={self.iterations // 2}']
        options += [f'model.backbone.init_cfg.checkpoint={self.work_dir(PRETRAINING)}/epoch_1.pth']
        work_dir = ['--work-dir', str(self.work_dir(config))]
        return ['tools/dist_train.sh', config, str(PROCESSES), *work_dir, '--cfg-options', *options]

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
        options = [f'train_dataloader.batch_size={BATCH[PRETRAINING]}', f'data_root={self.folder}/data/digits/']
        options += ['train_cfg.max_epochs=1', 'train_cfg.val_interval=1', 'param_scheduler.0.end=1']
        self.run(
            'tools/dist_train.sh',
            PRETRAINING,
            PROCESSES,
            '--work-dir',
            self.work_dir(PRETRAINING),
            '--cfg-options',
            *options,
        )

    def kill_and_resume(self, config: str) -> None:
        """Kill every process of a run after its first checkpoint, and continue it."""
        command = self.train_command(config)
        process, checkpoint = self.start(*command), self.work_dir(config) / 'last_checkpoint'
        while process.poll() is None and not checkpoint.is_file():
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print('       killed by SIGKILL, and resumed:', flush=True)
        self.run(*command[:3], '--resume', *command[3:])

    def test(self, config: str) -> None:
        """Evaluate the last checkpoint by four processes."""
        checkpoint = self.work_dir(config) / f'iter_{self.iterations}.pth'
        options = ['--cfg-options', f'data_root={self.folder}/data/{DATA[config]}/']
        self.run('tools/dist_test.sh', config, checkpoint, PROCESSES, *options)

    def average(self, config: str) -> None:
        """Train three seeds of four processes each, and print mean, deviation and interval."""
        options = self.train_command(config)[6:]
        self.run(
            sys.executable, '-m', 'mmlape', 'multi-seed', config, '--seeds', 1, 2, 3, '--processes', PROCESSES,
            '--work-dir', self.folder / 'seeds', '--cfg-options', *options,
        )  # fmt: skip
        self.run(sys.executable, '-m', 'mmlape', 'report', self.folder / 'seeds')


def main() -> None:
    """Run all steps in a new folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/rehearsal'), help='default: %(default)s')
    parser.add_argument('--iterations', type=int, default=12, help='of each run; default: %(default)s')
    args = parser.parse_args()
    shutil.rmtree(args.work_dir, ignore_errors=True)
    args.work_dir.mkdir(parents=True)
    rehearsal = Rehearsal(args.work_dir.resolve(), args.iterations)
    rehearsal.prepare()
    rehearsal.pretrain()
    for config in DATA:
        if config == KILLED:
            rehearsal.kill_and_resume(config)
        else:
            rehearsal.run(*rehearsal.train_command(config))
        rehearsal.test(config)
    rehearsal.average(SEGMENTER)
    print(f'{time.time() - rehearsal.started:4.0f} s  everything ran; the log is {rehearsal.log}')


if __name__ == '__main__':
    main()
