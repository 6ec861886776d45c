"""The adapter's pyramid in other libraries: a module for each, which needs that library and nothing of OpenMMLab."""
