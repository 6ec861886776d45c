"""Training: the plan of a run, what it builds, its loop and its hooks."""
