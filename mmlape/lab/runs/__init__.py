"""What a run is and was, on disk."""
