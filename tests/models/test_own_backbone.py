"""A user's backbone makes two calls, and its base does what follows; an adapter of its own reads its files."""

import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from mmengine.config import Config
from model_helpers import randomise

from mmlape.checkpoint import load_backbone
from mmlape.checkpoint.converting import inspect
from mmlape.checkpoint.key_maps import Layout, rename_keys
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.errors import ConfigError
from mmlape.kinds import BACKBONES
from mmlape.models import VisionTransformer
from mmlape.models.base.backbone import BaseBackbone, own_parameters
from mmlape.models.base.checkpoint import CheckpointAdapter, recorded_config, signature
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.layers.transformer_layer import TransformerEncoderLayer
from mmlape.models.position import AttentionSlot, resolve_position
from mmlape.models.vit.checkpoint import ViTCheckpointAdapter
from mmlape.registry import MODELS

ARCH = dict(embed_dims=32, num_layers=4, num_heads=2, feedforward_channels=64)


NEEDED = {
    'TimmViT': dict(model_name='test_vit', pe_joining='lape'),
    'TimmViTAdapter': dict(vit=dict(model_name='test_vit'), mode='read-only', layers=[0, 1, 2, 3], conv_inplane=8),
}
BACKBONES.import_from_location()


class Own(BaseBackbone):
    """A user's backbone, as short as one can be."""

    def __init__(self, pe_type, pe_joining='default', inside=True, pe_norms=True, frozen_stages=-1, init_cfg=None):
        super().__init__(init_cfg)
        self.register_arguments(locals())
        self.embed_dims, self.patch_size, self.frozen_stages = 16, 8, frozen_stages
        self.grid = self.grid_of(32)
        self.position = resolve_position(pe_type, pe_joining, 'layernorm')
        self.patch_embed = torch.nn.Conv2d(3, 16, 8, 8)
        attn = dict(embed_dims=16, num_heads=2)
        self.blocks = torch.nn.ModuleList(
            TransformerEncoderLayer(
                embed_dims=16,
                attn=MultiheadAttention(
                    **attn,
                    encodings=self.position.build_inside() if inside else (),
                    slot=AttentionSlot(number, self.grid, normed=self.position.normed),
                ),
                joining=self.position.joining,
                feedforward_channels=32,
                pe_norm=self.position.pe_norm if pe_norms else None,
            )
            for number in range(2)
        )
        self.complete()

    def forward(self, x):
        maps = self.patch_embed(x)
        grid, pe = maps.shape[-2:], self.position_stream(maps.shape[-2:], 0)
        tokens = self.position.joining.enter(maps.flatten(2).transpose(1, 2), pe)
        for layer in self.blocks:
            tokens, pe = layer(tokens, pe, grid)
        return (tokens,)


class Signed(Own):
    """One whose files are recognised."""

    checkpoint_adapter = CheckpointAdapter(signs=(r'blocks\.0\.attn\.qkv\.', r'patch_embed\.weight'))


def test_a_model_is_imported_without_what_knows_files():
    """That is imported by the first question about files, such as a state dict."""
    code = """if True:
        import sys
        from mmlape.models.vit.model import VisionTransformer
        loaded = [name for name in sys.modules if name.startswith('mmlape.')]
        assert not [name for name in loaded if name.startswith('mmlape.checkpoint')], loaded
        VisionTransformer('deit-tiny').state_dict()
        assert 'mmlape.checkpoint.loading' in sys.modules"""
    subprocess.run([sys.executable, '-c', code], check=True)


def test_complete_adds_position_encodings_and_freezes():
    torch.manual_seed(0)
    model = Own(['learnable', 'cpe', 'rpe'], frozen_stages=1)
    names = set(model.state_dict())
    assert {'pos_embed', 'blocks.0.cpe.weight', 'blocks.1.attn.relative_position_bias_table'} <= names
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters() if not name.startswith('blocks.1.')}
    image = torch.randn(1, 3, 32, 32)
    plain = Own('learnable')
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if name in plain.state_dict()})
    assert not torch.allclose(model(image)[0], plain(image)[0]), 'the convolution between layers acts'
    record = model.checkpoint_adapter.record(model)
    assert record['pe_type'] == ['learnable', 'cpe', 'rpe'] and record['grid'] == [4, 4]


def test_a_constructor_that_forgets_a_call_is_told_so(tmp_path):
    """Before the first step: MMEngine initialises the weights then, and without it a forward runs."""

    class Unfinished(Own):
        def complete(self):
            """Do nothing, as if the constructor had not called it."""

    class Unregistered(VisionTransformer):
        def __init__(self, scale=1.0, **kwargs):
            super().__init__(**kwargs)
            self.scale = scale

    class Registered(Unregistered):
        def __init__(self, scale=2.0, **kwargs):
            super().__init__(scale, **kwargs)
            self.register_arguments(locals(), **kwargs)

    image = torch.zeros(1, 3, 32, 32)
    for use in (lambda model: model(image), lambda model: model.init_weights()):
        with pytest.raises(ConfigError, match=r'Unfinished: its constructor must end with self\.complete\(\)'):
            use(Unfinished('none'))
    model = Unregistered(scale=3.0, arch=ARCH, img_size=32)
    for use in (lambda: model.init_weights(), lambda: metadata_of(model)):
        with pytest.raises(ConfigError, match=r'Unregistered: files cannot record scale: .*register_arguments'):
            use()
    model = Registered(scale=3.0, arch=ARCH, img_size=32)
    config = model.checkpoint_adapter.record(model)['config']
    assert config == dict(type='mmlape.Registered', scale=3.0, arch=ARCH, img_size=32)


@pytest.mark.parametrize('kind', [kind for kind in BACKBONES.module_dict.values() if issubclass(kind, BaseBackbone)])
def test_each_backbone_makes_both_calls(kind):
    """What files record of one builds it again: each argument of its constructor is registered, and it is complete."""
    names = kind.model_names
    options = next(iter(names.values())) if isinstance(names, dict) and names else {}
    with torch.device('meta'):
        model = kind(**{**options, **NEEDED.get(kind.__name__, {})})
    assert model._unfinished is None and set(own_parameters(kind)) <= set(model.arguments)
    config = recorded_config(model)
    assert config.pop('type') == f'mmlape.{kind.__name__}'
    with torch.device('meta'):
        again = kind(**config)
    assert recorded_config(again) == {'type': f'mmlape.{kind.__name__}', **config}
    assert signature(again.state_dict()) == signature(model.state_dict())


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(pe_type='rpe', inside=False), r"Own: pe_type says \['rpe'\] inside attention, but layer 0 has nothi"),
        (
            dict(pe_type='learnable', pe_joining='lape', pe_norms=False),
            r"pe_joining='lape' norms the PE .* no pe_norm",
        ),
        (dict(pe_type=dict(type='cpe', after=(3,))), r'after=3 is no layer'),
        (dict(pe_type='none', frozen_stages=3), r'frozen_stages=3'),
    ],
)
def test_what_position_declares_and_the_layers_lack_is_an_error(options, message):
    with pytest.raises(ConfigError, match=message):
        Own(**options)


def test_a_user_replaces_the_adapter(tmp_path):
    """Of files with other names: a subclass of one class and a method, no change in the package."""

    class OwnFiles(ViTCheckpointAdapter):
        def layouts(self, kind):
            other = Layout('own', (r'body\.0\.',), lambda tensors: rename_keys(tensors, [(r'^body\.', 'blocks.')]))
            return (other, *super().layouts(kind))

    class OwnViT(VisionTransformer):
        checkpoint_adapter = OwnFiles()

    model, source = OwnViT(ARCH, 32, 8), OwnViT(ARCH, 32, 8)
    file = tmp_path / 'own.pth'
    torch.save({name.replace('blocks.', 'body.'): value for name, value in source.state_dict().items()}, file)
    report = load_backbone(model, str(file))
    assert report.layout == 'own' and len(report.loaded) == report.total
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), source.state_dict().values()))


def test_inspect_prints_what_loads_a_users_backbone(tmp_path, monkeypatch):
    """The arguments are those of its record; of an older file those of the run's config, which is parsed, not run."""
    monkeypatch.setitem(MODELS._module_dict, 'Signed', Signed)
    own = dict(pe_type=['learnable', dict(type='cpe', after=(0,))], pe_joining='lape', init_cfg=dict(type='Xavier'))
    model = randomise(Signed(**{key: value for key, value in own.items() if key != 'init_cfg'}))
    weights = {f'backbone.{name}': value for name, value in model.state_dict().items()}
    config = Config(dict(model=dict(type='A', backbone=dict(type='mmlape.Signed', **own)), data=dict(backbone=dict())))
    record = metadata_of(torch.nn.ModuleDict({'backbone': model})).plain()
    older = deepcopy(record)
    del older['backbones']['backbone']['config']
    for known, stored, told in (
        (record, '', True),
        (older, config.pretty_text, True),
        (older, 'model = dict(backbone=exit())', False),
    ):
        torch.save({'state_dict': weights, 'meta': {KEY: known, 'cfg': stored}}, tmp_path / 'own.pth')
        found = inspect(tmp_path / 'own.pth')
        if not told:
            assert 'no model of mmlape.Signed that has a name' in found['to load it']
            continue
        printed = eval(found['to load it'].removeprefix('backbone='))
        if known is older:
            assert printed == dict(type='mmlape.Signed', **own | {'init_cfg': printed['init_cfg']})
        loaded = MODELS.build(printed)
        loaded.init_weights()
        assert all(torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), model.state_dict().values()))
