"""Files of weights: fetched, read without running code of them, and admitted."""
