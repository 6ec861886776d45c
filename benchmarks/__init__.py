"""Speed and memory of mmlape, measured side by side with its peers: `python -m benchmarks SUITE... [options]`.

Nothing here passes or fails: every figure comes with its spread, its machine and the command that gave it.
"""
