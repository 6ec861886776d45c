"""A trained model: opened, tested, and run on images."""

TASKS = {'mmdet': 'detection', 'mmseg': 'segmentation', 'mmpretrain': 'classification'}
"""Of the models of a package, by the scope of its config."""
