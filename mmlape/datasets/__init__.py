"""Mini data, checks of data before training, and loading transforms that name a broken file."""
