"""One module per sub-command, with ``add_arguments(parser)`` and ``run(args)``; heavy imports are inside ``run``."""
