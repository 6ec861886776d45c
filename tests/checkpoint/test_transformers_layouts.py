"""Files of transformers' vision models: golden names, shapes and tokens of its own models, in both spellings."""

import json
import re
from functools import cache

import numpy as np
import pytest
import torch
from each import each
from golden.recording import uniform
from golden_models import FOLDER

import mmlape
from mmlape import models
from mmlape.checkpoint import read_checkpoint
from mmlape.checkpoint.converting import convert, inspect
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.errors import CheckpointError


@cache
def golden() -> tuple[dict, dict]:
    with np.load(FOLDER / 'layouts' / 'transformers.npz') as data:
        return json.loads(str(data['index'])), {name: torch.from_numpy(data[name]) for name in data.files[:-1]}


def tensors(shapes: dict) -> dict:
    return {name: uniform(name, shape).float() for name, shape in shapes.items()}


def ours(case: dict):
    kwargs = {key: tuple(value) if isinstance(value, list) else value for key, value in case['kwargs'].items()}
    return getattr(models, case['cls'])(**kwargs)


def outputs(model, side: int = 32):
    image = uniform('image', (1, 3, side, side))
    with torch.no_grad():
        out = model.double().eval()(image)
    return [part for one in out for part in (one if isinstance(one, tuple) else (one,))]


def assert_outputs(model, name: str, form: str):
    case, expected = golden()[0][name], golden()[1]
    # what the public code computes in float32, of frequencies or a resized table, it rounds
    for i, out in enumerate(outputs(model)):
        torch.testing.assert_close(out, expected[f'{name}/{form}/{i}'], rtol=0, atol=max(case['tolerance'], 1e-10))


PREFIXES = ('model.backbone.', 'model.vision_tower.')


def test_the_models_are_those_that_the_page_names():
    assert len(golden()[0]) == 29
    layouts = {case['layout'] for case in golden()[0].values()}
    targets = {case['target'] for case in golden()[0].values()} - {''}
    named = [models.VisionTransformer, models.SwinTransformer]
    written = {
        name for kind in named for name in kind.checkpoint_adapter.targets() if name.startswith('transformers-')
    }
    known = {layout.name for kind in named for layout in kind.checkpoint_adapter.layouts(kind) if not layout.refused}
    assert targets == written and layouts == {name for name in known if name.startswith('transformers-')}


def test_every_file_has_its_models_tokens(tmp_path):
    for name, form in each([(name, form) for name in golden()[0] for form in ('file', 'state')]):
        case, path = golden()[0][name], tmp_path / f'{form}.pth'
        stored = tensors(case[form])
        torch.save(stored, path)
        model = ours(case)
        report = mmlape.load_weights(model, path)
        assert report.layout == case['layout'] and len(report.loaded) == report.total
        assert not report.resized and all('(zeros)' in key for key in report.new)
        assert_outputs(model, name, form)


def test_a_vision_model_is_found_wherever_it_stands(tmp_path):
    for name, prefix in each([(name, prefix) for name in golden()[0] for prefix in PREFIXES]):
        case, path = golden()[0][name], tmp_path / 'a.pth'
        stored = {prefix + key: value for key, value in tensors(case['file']).items()}
        text = {'model.text_model.encoder.layers.0.self_attn.q_proj.weight': torch.ones(2, 2)}
        torch.save({'state_dict': stored | text}, path)
        model = ours(case)
        mmlape.load_weights(model, path)
        assert_outputs(model, name, 'file')


def test_what_is_written_is_the_file(tmp_path):
    for name in each([name for name, case in golden()[0].items() if case['target']]):
        case = golden()[0][name]
        model, stored = ours(case), tensors(case['file'])
        torch.save(stored, tmp_path / 'theirs.pth')
        mmlape.load_weights(model, tmp_path / 'theirs.pth')
        torch.save(dict(state_dict=model.state_dict(), meta={KEY: metadata_of(model).plain()}), tmp_path / 'ours.pth')
        convert(tmp_path / 'ours.pth', tmp_path / 'back.safetensors', case['target'], overwrite=True)
        back = read_checkpoint(tmp_path / 'back.safetensors')
        back.pop('meta', None)
        tower = next(key for key in stored if 'embeddings.patch_embedding' in key).partition('embeddings.')[0]
        of_back = next(key for key in back if 'embeddings.patch_embedding' in key).partition('embeddings.')[0]
        found = {key.removeprefix(of_back): value for key, value in back.items()}
        wanted = {
            key.removeprefix(tower): value
            for key, value in stored.items()
            if key.startswith(tower) and not re.search(OTHER_PARTS, key.removeprefix(tower))
        }
        assert {key for key in found if not re.search(OTHER_PARTS, key)} == set(wanted)
        for key, value in wanted.items():
            assert torch.equal(found[key], value), key


REFUSED = {
    'transformers-vit': (
        dict(with_cls_token=False, out_type='raw'), dict(layer_scale_init_value=0.1), dict(num_registers=2),
        dict(pe_joining='lape'), dict(patch_norm='dual'), dict(with_prefix_pe=False), dict(pe_type='none'),
        dict(ffn_type='swiglu'), dict(qkv_bias='qv'), dict(norm_placement='post'), dict(final_norm=False),
    ),
    'transformers-dinov2': (dict(), dict(layer_scale_init_value=0.1, with_cls_token=False, out_type='raw')),
    'transformers-dinov3': (
        dict(), dict(pe_type='rope', layer_scale_init_value=0.1),
        dict(pe_type=['learnable', 'rope'], layer_scale_init_value=0.1),
    ),
    'transformers-clip': (dict(), dict(patch_norm='post-posemb', qkv_bias=False)),
    'transformers-siglip': (dict(), dict(patch_norm='post-posemb', with_cls_token=False, out_type='raw')),
    'transformers-beit': (dict(), dict(qkv_bias='qv', pe_type='rpe')),
    'transformers-deit': (dict(),),
}  # fmt: skip


def test_what_a_class_has_no_place_for_is_named(tmp_path):
    for target, every in REFUSED.items():
        for options in each(every):
            model = models.VisionTransformer(golden()[0]['vit']['kwargs']['arch'], 32, 8, **options)
            state = dict(state_dict=model.state_dict(), meta={KEY: metadata_of(model).plain()})
            torch.save(state, tmp_path / 'a.pth')
            with pytest.raises(CheckpointError, match=rf'the {target} layout has no place for .*; use --to mmlape'):
                convert(tmp_path / 'a.pth', tmp_path / 'b.pth', target, overwrite=True)
        assert target in models.VisionTransformer.checkpoint_adapter.targets()


OTHER_PARTS = r'(^|\.)(pooler|head|decoder|classifier|swin\.layernorm)\.|mask_token|visual_projection'


def test_classifiers_go_along_where_they_read_one_token_or_the_mean(tmp_path):
    for name, heads in (
        ('vit classifier', {'classifier.weight': 'head.weight', 'classifier.bias': 'head.bias'}),
        (
            'deit with teacher',
            {'cls_classifier.weight': 'head.weight', 'distillation_classifier.weight': 'head_dist.weight'},
        ),
        ('dinov2 classifier', {}),  # of two tokens
        ('swin classifier', {'classifier.weight': 'head.weight'}),
    ):  # fmt: skip
        stored = tensors(golden()[0][name]['file'])
        torch.save(stored, tmp_path / 'a.pth')
        left_out = convert(tmp_path / 'a.pth', tmp_path / 'b.pth', 'mmlape', overwrite=True)
        written = read_checkpoint(tmp_path / 'b.pth')['state_dict']
        for theirs, ours_ in heads.items():
            assert torch.equal(written[ours_], stored[theirs])
        assert heads or 'classifier.weight' in left_out
        target = golden()[0][name]['target']
        convert(tmp_path / 'b.pth', tmp_path / 'c.pth', target, overwrite=True)
        back = read_checkpoint(tmp_path / 'c.pth')
        assert all(torch.equal(back[theirs], stored[theirs]) for theirs in heads)


def test_tables_are_resized_under_their_own_names():
    for name, case in golden()[0].items():
        for form in ('file', 'state'):
            stored = tensors(case[form])
            if not case['table']:
                with pytest.raises(CheckpointError, match='has no table|inside attention'):
                    mmlape.resize_pos_embed(stored, (5, 7))
                continue
            out = mmlape.resize_pos_embed(stored, (5, 7))
            (own,) = (key for key in stored if out[key] is not stored[key])
            assert list(out) == list(stored) and out[own].shape[-2] - stored[own].shape[-2] == 35 - 16, name
            assert torch.equal(mmlape.resize_pos_embed(stored, 4)[own], stored[own])


def test_an_unknown_tensor_in_a_layer_is_an_error(tmp_path):
    for case in golden()[0].values():
        stored = tensors(case['file'])
        layer = next(key for key in stored if re.match(r'(?!decoder).*layers?\.0\.', key))
        stored[re.sub(r'(layers?\.0\.).*', r'\1extra.weight', layer)] = torch.zeros(3)
        torch.save(stored, tmp_path / 'a.pth')
        with pytest.raises(CheckpointError, match=r'unexpected: .*extra\.weight'):
            mmlape.load_weights(ours(case), tmp_path / 'a.pth')


def test_another_pe_than_dinov3s_is_refused(tmp_path):
    case = golden()[0]['dinov3']
    torch.save(tensors(case['file']), tmp_path / 'a.pth')
    for pe_type in ('none', 'rope', dict(case['kwargs']['pe_type'], pairs='interleaved')):
        other = dict(case, kwargs=dict(case['kwargs'], pe_type=pe_type))
        with pytest.raises(CheckpointError, match=r"of DINOv3, which has pe_type=\{'type': 'rope'"):
            mmlape.load_weights(ours(other), tmp_path / 'a.pth')


TINY = {'VisionTransformer': lambda: ours(golden()[0]['vit']), 'SwinTransformer': lambda: ours(golden()[0]['swin'])}


def test_what_no_model_here_computes_is_one_line(tmp_path):
    stem = {'embeddings.patch_embeddings.projection.weight': torch.ones(8, 3, 4, 4)}
    layer = 'encoder.layer.0.attention.attention.query.weight'
    vit = {**stem, layer: torch.ones(8, 8)}
    block = 'encoder.layers.0.blocks.0.attention.self'
    for stored, model, message in (
        ({'embeddings.patch_embeddings.backbone.x': torch.ones(2), layer: torch.ones(2)}, 'VisionTransformer',
         'a convolutional network stands before its layers'),
        ({**vit, 'embeddings.detection_tokens': torch.ones(1, 3, 8)}, 'VisionTransformer', 'YOLOS, which cannot be'),
        ({**stem, f'{block}.logit_scale': torch.ones(2), f'{block}.query.weight': torch.ones(2, 2)},
         'SwinTransformer', 'Swin V2, which cannot be loaded'),
        ({f'{a}.{key}': value for key, value in vit.items() for a in ('left', 'right')}, 'VisionTransformer',
         r"2 vision models \('left\.', 'right\.'\): give mmlape.load_weights a dict"),
    ):  # fmt: skip
        torch.save(stored, tmp_path / 'a.pth')
        for call in (lambda name=model: mmlape.load_weights(TINY[name](), tmp_path / 'a.pth'),
                     lambda: inspect(tmp_path / 'a.pth')):  # fmt: skip
            with pytest.raises(CheckpointError, match=message) as error:
                call()
            assert len(str(error.value).splitlines()) == 1 and 'a.pth' in str(error.value)


@pytest.mark.parametrize('suffix', ['.safetensors', '.bin'])
def test_parts_that_a_list_names_are_one_file(tmp_path, suffix):
    from safetensors.torch import save_file

    case = golden()[0]['vit']
    stored = list(tensors(case['file']).items())
    names = [f'model-0000{number}-of-00003{suffix}' for number in (1, 2, 3)]
    for number, name in enumerate(names):
        part = dict(stored[number::3])
        (save_file if suffix == '.safetensors' else torch.save)(part, tmp_path / name)
    index = {'metadata': {}, 'weight_map': {key: names[i % 3] for i, (key, _) in enumerate(stored)}}
    listed = tmp_path / f'{"model" if suffix == ".safetensors" else "pytorch_model"}{suffix}.index.json'
    listed.write_text(json.dumps(index))
    model = ours(case)
    mmlape.load_weights(model, listed)
    assert_outputs(model, 'vit', 'file')
    (tmp_path / names[1]).unlink()
    with pytest.raises(CheckpointError, match=rf'{names[1]}: there is no such file'):
        mmlape.load_weights(ours(case), listed)
    with pytest.raises(CheckpointError, match='a folder; name the file of weights in it'):
        mmlape.load_weights(ours(case), tmp_path)
    for text in (
        '{}',
        '{"weight_map": 3}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": "model.bin.index.json"}}',
    ):
        listed.write_text(text)
        with pytest.raises(CheckpointError, match='no list of the parts|is a list itself|no tensors in it'):
            mmlape.load_weights(ours(case), listed)
