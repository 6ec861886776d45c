"""Looks inside models and runs: position correlation by layer, the stem in pixel space, gradient norms, curves."""
