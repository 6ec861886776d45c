"""A position encoding of a user's own file beside ours, by the protocol of a study."""
