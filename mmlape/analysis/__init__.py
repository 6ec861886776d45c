"""Looks inside models: position correlation by layer, the stem in pixel space, gradient norms by depth."""
