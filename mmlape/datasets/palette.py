"""Colours of classes, distinct to the eye and the same on every machine."""

import colorsys

GOLDEN_RATIO = 0.618034  # of the hue circle, between one class and the next


def class_palette(count: int) -> list[list[int]]:
    """Return RGB colours of ``count`` classes: hues a golden angle apart, in three brightnesses."""
    colours = []
    for index in range(count):
        value = (1.0, 0.75, 0.55)[index % 3]
        red, green, blue = colorsys.hsv_to_rgb(index * GOLDEN_RATIO % 1, 0.85, value)
        colours.append([round(255 * channel) for channel in (red, green, blue)])
    return colours
