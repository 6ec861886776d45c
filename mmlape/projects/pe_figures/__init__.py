"""Figures of position encodings of live models (LaPE, Figures 1, 3, 4; iRPE, Figure 5; MPVG, Figure 4), and a hook."""

REGISTERED = {'PEBalanceHook': 'balance_hook'}
COMMANDS = {'visualize-pe': 'draw the position embedding of each layer, its correlation, and the patch embedding'}
