"""The adapter's pyramid in other libraries.

A module for each, which needs that library and nothing of OpenMMLab.
"""
