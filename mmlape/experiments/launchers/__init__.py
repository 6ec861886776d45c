"""How runs are started: as processes on this machine, or as Slurm jobs."""
