"""Where the folder of an arm keeps what belongs to a run but is not written by its training.

<arm>/
    seed_121/              the run itself
    logs/seed_121.log      its output
    logs/.seed_121.lock    held from before its process starts until that ends
    slurm/seed_121.sh      its job script
    slurm/seed_121.json    the last known state of its job
"""

from pathlib import Path


def log_file(run: Path) -> Path:
    """Return the file that receives the output of a run."""
    return run.parent / 'logs' / f'{run.name}.log'


def start_lock(run: Path) -> Path:
    """Return the lock of the process that starts a run; training itself locks the run's folder later."""
    return run.parent / 'logs' / f'.{run.name}.lock'


def job_script(run: Path) -> Path:
    """Return the sbatch script of a run."""
    return run.parent / 'slurm' / f'{run.name}.sh'


def job_file(run: Path) -> Path:
    """Return the file that records the Slurm job of a run."""
    return run.parent / 'slurm' / f'{run.name}.json'
