"""Data augmentation as big_vision has it, for the recipes of Dual PatchNorm."""

REGISTERED = {'BigVisionContrast': 'transforms'}
