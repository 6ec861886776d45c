"""Encodings inside attention beside the ViT without them or Swin's bias, tables that training reads in parts beside
whole ones, and iRPE beside the public one, at 224."""

import torch
from torch import nn

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import vit

SIZES = (224,)
KINDS = {
    'iRPE k': dict(type='irpe'),
    'iRPE qkv': dict(type='irpe', on='qkv'),
    'iRPE bias': dict(type='irpe', mode='bias'),
    'rotary': 'rope',
}
LARGER = {
    'table in parts': dict(type='learnable', rescale=2.0),
    'window of a table': dict(type='learnable', table_scale=2.0),
}
BIASES = {'FIRE': 'fire', 'LookHere': 'lookhere'}


def with_encoding(settings: Settings, size: int, *kinds: str | dict) -> nn.Module:
    """Build the ViT with a learnable PE and kinds inside attention, whose tables get random values."""
    model = vit(settings, size, pe_type=['learnable', *kinds], out_type='cls_token')
    tables = [parameter for name, parameter in model.named_parameters() if '.rpe_' in name]
    with torch.no_grad():
        for table in tables:
            table.normal_(std=0.02)
    return model


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per kind, dtype and work, and those with the public code."""
    found = []
    for name, kind in KINDS.items():
        sides = {
            'without': lambda size: with_encoding(settings, size),
            name: lambda size, kind=kind: with_encoding(settings, size, kind),
        }
        models = Models(f'{settings.arch}: {name} against without', sides, memory=True)
        found += models.comparisons('position', settings, SIZES)
    for name, kind in LARGER.items():
        sides = {
            'LaPE': lambda size: vit(settings, size, pe_joining='lape'),
            name: lambda size, kind=kind: vit(settings, size, pe_joining='lape', pe_type=kind),
        }
        models = Models(f'{settings.arch}: LaPE, {name} against the whole table', sides, memory=True)
        found += models.comparisons('position', settings, SIZES)
    for name, kind in BIASES.items():
        sides = {
            'relative bias': lambda size: with_encoding(settings, size, 'rpe'),
            name: lambda size, kind=kind: with_encoding(settings, size, kind),
        }
        models = Models(f'{settings.arch}: {name} against the relative bias', sides, memory=True)
        found += models.comparisons('position', settings, SIZES)
    for on in ('k', 'v', 'qkv') if 'irpe' in settings.checkouts else ():
        found += _against_public(settings, on).comparisons('position', settings, SIZES)
    return found


def _against_public(settings: Settings, on: str) -> Models:
    from benchmarks.public import public_irpe

    def ours(size: int) -> nn.Module:
        return with_encoding(settings, size, dict(type='irpe', on=on))

    def theirs(size: int) -> nn.Module:
        return public_irpe(settings, size, on, ours(size).state_dict())

    case = f'{settings.arch}, iRPE on {on}: mmlape against the public code'
    return Models(case, {'public code': theirs, 'mmlape': ours}, equal=True, memory=True)
