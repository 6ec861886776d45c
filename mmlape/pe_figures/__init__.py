"""Figures of position encodings, and a hook that configs name, which is imported on first use."""

__all__ = ['PEBalanceHook']


def __getattr__(name: str):
    if name != 'PEBalanceHook':
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from mmlape.pe_figures.balance_hook import PEBalanceHook

    return PEBalanceHook
