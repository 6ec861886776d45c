"""What this package's papers answer the laboratory; imported without torch and without models."""

from mmlape.lab.extension import Extension


class Papers(Extension):
    """Position encodings, backbones and projects."""

    counted = (
        'mmlape.checkpoint',
        'mmlape.models',
        'mmlape.pe_figures.balance_hook',
        'mmlape.projects',
        'mmlape.weights',
    )


EXTENSION = Papers()
