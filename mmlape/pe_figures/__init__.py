"""Figures of position encodings, and a hook that configs name, which is imported on first use."""

from mmlape.lazy import attributes

__all__ = ['PEBalanceHook']
__getattr__, __dir__ = attributes(__name__, {'PEBalanceHook': 'balance_hook'})
