"""Several runs: studies of arms and seeds, their schedule and launchers, averages, statistics, reports, a demo."""
