"""Study files: grids of ablations in YAML, whose arms are configs with overrides."""
