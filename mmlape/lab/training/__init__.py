"""Training and testing as library functions.

Configurations, processes, the runner, hooks, the optimiser.
"""
