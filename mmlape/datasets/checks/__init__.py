"""Checks of a config's data: `quick` before a run, `full` on demand; a module for each dataset format."""
