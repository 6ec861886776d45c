"""A position encoding of a user's own file beside ours, by the protocol of a study."""

COMMANDS = {'pe-bench': 'compare a position encoding of your own with ours: an hour of two cores, a card'}
