"""Trained models at several sizes of the test images."""

COMMANDS = {'size-sweep': 'evaluate trained models at several test sizes, as a table and a figure'}
