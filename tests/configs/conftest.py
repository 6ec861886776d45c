"""Shared by the tests of configs, which build hundreds of optimisers and train with none of them."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _unchecked_groups(monkeypatch):
    """Groups of parameters are added as they are: torch compares each with all before it, which takes longest here."""

    def add(optimizer, group):
        optimizer.param_groups.append({**optimizer.defaults, **group, 'params': list(group['params'])})

    monkeypatch.setattr(torch.optim.Optimizer, 'add_param_group', add)
