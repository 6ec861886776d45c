"""A trained model: opened, tested, and run on images."""
