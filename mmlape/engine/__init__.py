"""Training and testing as library functions: configurations, processes, the runner, hooks, the optimiser."""
