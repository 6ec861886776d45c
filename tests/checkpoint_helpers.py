"""Checkpoint files in the layouts that are read, and what loads them exactly."""

import contextlib
import functools
import http.server
import math
import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import torch
from mmengine.runner.checkpoint import CheckpointLoader, load_from_local

from mmlape.checkpoint import closed_world
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.checkpoint.metadata import KEY, metadata_of, read_metadata
from mmlape.checkpoint.opening import open_file
from mmlape.registry import MODELS


def save(path, tensors, wrapper='model', **extra):
    torch.save({wrapper: tensors, **extra} if wrapper else tensors, path)
    return str(path)


def assert_same(model, source, except_=()):
    expected = source.state_dict()
    for name, value in model.state_dict().items():
        if name in expected and name not in except_:
            assert torch.equal(value, expected[name]), name


class Payload:
    """An object whose unpickling makes the folder ``path``."""

    def __init__(self, path='canary'):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


SPY = "open('canary', 'w').close()\n"


def enter(folder, monkeypatch):
    """Go to a folder with a module that tells when it is imported; MMEngine's loader is its own there."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(closed_world, '_temporary', lambda: str(folder / 'temporary'))
    monkeypatch.setattr(CheckpointLoader, '_schemes', CheckpointLoader._schemes.copy())
    CheckpointLoader.register_scheme('', load_from_local, force=True)
    Path('spy.py').write_text(SPY)


def fired(*modules):
    """Return whether something was written or made here since the last time, and forget what was imported."""
    for name in ('spy', *modules):
        sys.modules.pop(name, None)
    found = list(Path().glob('canary*'))
    for path in found:
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    return bool(found)


def to_flax(source):
    """The inverse of what is tested: DeiT names and shapes to Flax's, as AugReg writes them."""
    out, side, heads = {}, source.patch_size, source.arch['num_heads']
    width, table = source.embed_dims // heads, 'Transformer/posembed_input/' if source.pe_prefix else ''
    for name, value in source.state_dict().items():
        value = value.numpy()
        if name == 'cls_token':
            out['cls'] = value
        elif name == 'pos_embed':
            out[f'{table}pos_embedding'] = value
        elif name == 'patch_embed.proj.weight':
            out['embedding/kernel'] = value.transpose(2, 3, 1, 0)
        elif name == 'patch_embed.proj.bias':
            out['embedding/bias'] = value
        elif name.startswith('patch_embed.norm'):
            leaf = {'weight': 'scale', 'bias': 'bias'}[name.split('.')[-1]]
            if 'norm0' in name:
                value = value.reshape(3, side, side).transpose(1, 2, 0).reshape(-1)
            out[f'embedding/ln{name.split(".")[1][-1]}/{leaf}'] = value
        elif name.startswith('norm.'):
            out[f'Transformer/encoder_norm/{"scale" if name.endswith("weight") else "bias"}'] = value
        else:
            _, layer, *rest = name.split('.')
            prefix = f'Transformer/encoderblock_{layer}'
            module, leaf = '.'.join(rest[:-1]), rest[-1]
            if module == 'attn.qkv':
                for part, piece in zip(('query', 'key', 'value'), np.split(value, 3)):
                    piece = piece.T.reshape(-1, heads, width) if leaf == 'weight' else piece.reshape(heads, width)
                    kernel = 'kernel' if leaf == 'weight' else 'bias'
                    out[f'{prefix}/MultiHeadDotProductAttention_1/{part}/{kernel}'] = piece
            elif module == 'attn.proj':
                kernel, piece = ('kernel', value.T.reshape(heads, width, -1)) if leaf == 'weight' else ('bias', value)
                out[f'{prefix}/MultiHeadDotProductAttention_1/out/{kernel}'] = piece
            elif module.startswith('mlp.fc'):
                kernel, piece = ('kernel', value.T) if leaf == 'weight' else ('bias', value)
                out[f'{prefix}/MlpBlock_3/Dense_{int(module[-1]) - 1}/{kernel}'] = piece
            else:
                number = {'norm1': 0, 'norm2': 2}[module]
                out[f'{prefix}/LayerNorm_{number}/{"scale" if leaf == "weight" else "bias"}'] = value
    return out


def is_square(rows):
    return math.isqrt(rows) ** 2 == rows


def vit_config(path, num_heads, **changes):
    """A ViT for a file of square images and any layout, after the names of its tensors in ours."""
    kind, weights = recognise_backbone(open_file(path))
    state = weights.tensors
    layers = {name.split('.')[1] for name in state if name.startswith('blocks.')}
    hidden = len(state['blocks.0.mlp.fc1.bias'])
    dims, _, _, patch_size = state['patch_embed.proj.weight'].shape
    tokens = [name for name in ('cls_token', 'dist_token', 'reg_token') if name in state]
    stem = [f'patch_embed.norm{number}.weight' in state for number in (0, 1)] + ['norm_pre.weight' in state]
    norms = {
        (True, True, False): 'dual',
        (False, True, False): 'post',
        (False, False, True): 'post-posemb',
        (True, False, True): 'pre-post-posemb',
    }
    return (
        dict(
            type=f'mmlape.{kind.__name__}',
            arch=dict(embed_dims=dims, num_layers=len(layers), num_heads=num_heads, feedforward_channels=hidden),
            patch_size=patch_size,
            with_cls_token='cls_token' in state,
            out_type='cls_token' if 'cls_token' in state else 'featmap',
            num_registers=state['reg_token'].shape[1] if 'reg_token' in state else 0,
            with_prefix_pe=not tokens or 'pos_embed' not in state or not is_square(state['pos_embed'].shape[-2]),
            pe_type='learnable' if 'pos_embed' in state else 'sincos2d-moco',
            patch_norm=norms.get(tuple(stem), 'none'),
            norm_placement='sub-ln' if 'blocks.0.attn.norm.weight' in state else 'pre',
            qkv_bias='blocks.0.attn.qkv.bias' in state,
            layer_scale_init_value=1e-5 if 'blocks.0.gamma1' in state else 0.0,
            norm_cfg=weights.arguments.get('norm_cfg', dict(type='LN', eps=1e-6)),
            final_norm='norm.weight' in state,
            init_cfg=dict(type='Pretrained', checkpoint=str(path)),
        )
        | changes
    )


def built_of(found):
    """Build what ``inspect`` prints, with the file that it names."""
    model = MODELS.build(eval(found['to load it'].removeprefix('backbone='), {'__builtins__': {'dict': dict}}))
    model.init_weights()
    return model


def record_in(path):
    return read_metadata(open_file(path))


def run_file(path, model, **extra):
    """A checkpoint as a training run writes it."""
    return save(path, model.state_dict(), 'state_dict', meta={'iter': 3, KEY: metadata_of(model).plain()}, **extra)


def renamed(tensors, *names):
    """Rename tensors by pairs of a pattern and what it becomes, one after the other."""
    out = {}
    for name, value in tensors.items():
        for pattern, new in names:
            name = re.sub(pattern, new, name)
        out[name] = value
    return out


def dinov2_of_authors(tensors):
    """The names of DINOv2: the class token has a row of the PE apart, and there is a mask token."""
    out = {key: value for key, value in tensors.items() if key not in ('cls_token', 'reg_token')}
    row = torch.randn(1, 1, 48)
    out['cls_token'], out['register_tokens'] = tensors['cls_token'] - row, tensors['reg_token']
    return dict(out, pos_embed=torch.cat((row, tensors['pos_embed']), 1), mask_token=torch.zeros(1, 48))


def dinov3_of_authors(tensors):
    """The same of DINOv3: the biases of queries, keys and values are one, of which a mask leaves the keys out."""
    out = {}
    for key, value in tensors.items():
        key = key.replace('gamma_', 'ls').replace('reg_token', 'storage_tokens')
        key = f'{key}.gamma' if key.endswith(('ls1', 'ls2')) else key
        if key.endswith('q_bias'):
            other = tensors[key.replace('q_bias', 'v_bias')]
            out[key.replace('q_bias', 'qkv.bias')] = torch.cat((value, torch.full_like(value, 3.0), other))
            out[key.replace('q_bias', 'qkv.bias_mask')] = torch.ones(3 * len(value))
        elif not key.endswith('v_bias'):
            out[key] = value
    return dict(out, mask_token=torch.zeros(1, 48), **{'rope_embed.periods': torch.ones(3)})


@contextlib.contextmanager
def served(folder):
    """Serve a folder on this machine; yield the address, and the paths that are asked for."""
    requests = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            requests.append(self.path)

    handler = functools.partial(Handler, directory=folder)
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as running:
        threading.Thread(target=running.serve_forever, args=[0.01], daemon=True).start()
        try:
            yield f'http://127.0.0.1:{running.server_port}', requests
        finally:
            running.shutdown()
