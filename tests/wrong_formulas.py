"""Wrong formulas that a test must notice, put into the package one at a time.

    python tests/wrong_formulas.py [NAME_PART]

Each formula replaces text of one file in a copy of the package, on which the tests of ``TESTS``, or the file's own in
``OWN_TESTS``, then run until the first failure. Status 0 means that a test failed for every formula, 1 that some
survived. Those outside the models are in `wrong_figures`.
"""

import sys
import tempfile
import time
from typing import NamedTuple

import wrong_figures
from forked_pytest import ROOT, copy_package, import_libraries, start, wait

TESTS = (
    'tests/models/test_golden.py',
    'tests/models/test_model_behaviour.py',
    'tests/models/test_position.py',
    'tests/models/test_deform_attn.py',
    'tests/models/test_irpe.py',
    'tests/models/test_detr.py',
    'tests/models/test_rotary.py',
    'tests/models/test_conditional.py',
    'tests/models/test_earlier.py',
    'tests/models/test_timm_adapter.py',
    'tests/models/test_swin.py',
    'tests/models/test_vit_adapter.py',
    'tests/models/test_t2t_ceit.py',
    'tests/models/test_compact.py',
    'tests/models/test_dpn_models.py',
    'tests/models/test_norm_placement.py',
    'tests/checkpoint/test_dpn_checkpoints.py',
    'tests/configs/test_dpn_recipes.py::test_the_pe_is_zoomed_as_big_visions',
    'tests/engine/test_position_decay.py',
    'tests/models/test_fake_cuda.py',
)
OF_DPN = (
    'tests/evaluation/test_few_shot.py',
    'tests/configs/test_dpn_recipes.py',
    '-k',
    'numpys or big_vision or seeds or initial or kernels',
)
OF_FILES = (
    'tests/checkpoint/test_checkpoint.py',
    'tests/checkpoint/test_convert.py',
    'tests/checkpoint/test_t2t_ceit_checkpoints.py',
    '-k',
    'row or token or table or timm or sinusoids or own_files',
)
OF_LAYOUTS = (
    'tests/checkpoint/test_dpn_checkpoints.py',
    *OF_FILES[:-1],
    f'{OF_FILES[-1]} or vit_pytorchs or open_clip',
)
OF_TARGETS = ('tests/checkpoint/test_convert.py', '-k', 'reasons or contract or heads or switch or compact')
OF_NAMES = ('tests/models/test_names.py',)
OF_TIMM_FILES = ('tests/checkpoint/test_timm_weights.py',)
OF_DESCRIPTIONS = (
    'tests/checkpoint/test_t2t_ceit_checkpoints.py',
    'tests/checkpoint/test_checkpoint_tools.py',
    'tests/checkpoint/test_swin_checkpoints.py',
    'tests/models/test_irpe.py',
    'tests/models/test_swin.py',
    '-k',
    'prints or sinusoids or windows_of_each or number_of_stages or same_tables or own_files or ratio or says_what',
)
OWN_TESTS = {
    'mmlape/models/base/tables.py': OF_FILES,
    'mmlape/models/vit/layouts.py': OF_LAYOUTS,
    'mmlape/models/vit/targets.py': OF_TARGETS,
    'mmlape/checkpoint/targets.py': OF_TARGETS,
    'mmlape/models/classifiers/mixup.py': OF_DPN,
    'mmlape/models/names.py': OF_NAMES,
    'mmlape/models/base/archs.py': OF_NAMES,
    'configs/_base_/models/vit_big_vision.py': OF_DPN,
    'configs/_base_/schedules/big_vision_93k.py': OF_DPN,
    'mmlape/models/timm/checkpoint.py': OF_TIMM_FILES,
    'mmlape/models/base/tensor_names.py': OF_DESCRIPTIONS,
    'mmlape/models/base/named_arch.py': OF_DESCRIPTIONS,
    'mmlape/models/vit/checkpoint.py': OF_DESCRIPTIONS,
    'mmlape/models/swin/checkpoint.py': OF_DESCRIPTIONS,
    'mmlape/models/swin/layouts.py': OF_DESCRIPTIONS,
    'mmlape/datasets/big_vision.py': OF_DPN,
    'mmlape/models/initial.py': (
        'tests/configs/test_dpn_recipes.py',
        'tests/models/test_detr.py',
        '-k',
        'initial or torchs_values',
    ),
    'mmlape/engine/warmup_cosine.py': ('tests/configs/test_recipes.py', '-k', 'rates_are_timms'),
}
OWN_TESTS = wrong_figures.OWN_TESTS | OWN_TESTS
"""The tests of files that the tests above do not reach, or of all files below a folder."""
AT_ONCE = 2

# file: (name, text, wrong text, further pairs of texts)
BY_FILE = {
    'mmlape/models/adapter/deform_attn.py': [
        ('device: centres of cells on the CPU', 'rows - 0.5, rows, device=device)', 'rows - 0.5, rows)'),
        ('autocast: deformops gets weights in float32', 'locations, weights.to(dtype))', 'locations, weights)'),
        ('deform: no reference points', 'query_cells.centres[:, None, None, None] + offsets', 'offsets'),
        ('deform: softmax per level', '(heads, levels * points)).softmax(-1)',
         '(heads, levels, points)).softmax(-1).flatten(-2)'),
        ('deform: align_corners', 'at = position * size - 0.5', 'at = position * (size - 1)'),
        ('deform: border instead of zeros', '(weight * ((index >= 0) & (index <= last)), ', '(weight, '),
        ('deform: offsets by (rows, columns)', 'feat_cells.scale[:, None]', 'feat_cells.scale.flip(-1)[:, None]'),
        ('deform: centres (y, x)', 'torch.cartesian_prod(y, x).flip(-1)', 'torch.cartesian_prod(y, x)'),
        ('deform: centres at corners', 'torch.linspace(0.5, rows - 0.5,', 'torch.linspace(0.0, rows - 1.0,'),
        ('initial rays: one length', 'torch.arange(1, points + 1)', 'torch.ones(points)'),
        ('initial rays: (y, x)', '(angle.cos(), angle.sin())', '(angle.sin(), angle.cos())'),
    ],
    'mmlape/models/adapter/layers.py': [
        ('injector and extractor: norms of queries and features exchanged',
         'self.query_norm(query), query_cells, self.feat_norm(feat)',
         'self.feat_norm(query), query_cells, self.query_norm(feat)'),
        ('extractor: norms of queries and features exchanged', 'self.read(c, c_cells, x, x_cells)',
         'self.attn(self.feat_norm(c), c_cells, self.query_norm(x), x_cells)'),
        ('features not normed', 'self.feat_norm(feat), feat_cells', 'feat, feat_cells'),
        ('extractor: FFN before attention', '        c = c + self.read(c, c_cells, x, x_cells)\n', '',
         '        return c\n\n\n', '        return c + self.read(c, c_cells, x, x_cells)\n\n\n'),
        ('extractor: FFN input not normed', 'self.ffn(self.ffn_norm(c)', 'self.ffn(c + 0 * self.ffn_norm(c)'),
        ('extractor: drop path of the attention too', 'self.read(c, c_cells, x, x_cells)',
         "getattr(self, 'drop_path', nn.Identity())(self.read(c, c_cells, x, x_cells))"),
        ('injector: no gamma', 'c, c_cells), self.gamma)', 'c, c_cells), 1 + 0 * self.gamma)'),
        ('ConvFFN: tanh GELU', 'nn.GELU()', "nn.GELU(approximate='tanh')"),
        ('ConvFFN: one width', 'int(embed_dims * cffn_ratio)', 'int(embed_dims * 0.25)'),
        ('interaction: activations kept', 'if self.with_cp and torch.is_grad_enabled()', 'if False'),
        ('ConvFFN: convolution after the GELU', 'self.act(self.dwconv(self.fc1(x), shapes))',
         'self.dwconv(self.act(self.fc1(x)), shapes)'),
    ],
    'mmlape/models/adapter/spatial_prior.py': [
        ('stem: fc3 and fc4 exchanged', '(self.fc1, self.fc2, self.fc3, self.fc4)',
         '(self.fc1, self.fc2, self.fc4, self.fc3)'),
        ('stem: average for max pooling', 'nn.MaxPool2d(3, 2, 1)', 'nn.AvgPool2d(3, 2, 1)'),
        ('stem: no ReLU', 'nn.ReLU(inplace=True)', 'nn.Identity()'),
        ('stem: leaky ReLU', 'nn.ReLU(inplace=True)', 'nn.LeakyReLU(0.01, inplace=True)'),
    ],
    'mmlape/models/adapter/model.py': [
        ('level_embed left out', '.transpose(1, 2) + embed', '.transpose(1, 2) + 0 * embed'),
        ('level_embed reversed', 'zip(levels, self.level_embed)', 'zip(levels, self.level_embed.flip(0))'),
        ('adapter: eps 1e-5 of the norms', "dict(type='LN', eps=1e-6)", "dict(type='LN', eps=1e-5)"),
        ('adapter: c1 without c2', 'c1 + self.up(', 'c1 + 0 * self.up('),
        ('extractor: no drop path', 'drop_path=drop_path_rate', 'drop_path=0.0'),
        ('extractor: drop path below the maximum', 'drop_path=drop_path_rate', 'drop_path=0.9 * drop_path_rate'),
        ('injector after the layers',
         'patches = interaction.inject(patches, x_cells, c, c_cells)\n                ', '',
         'patches = self.read_patches(x)\n',
         'x = patches = interaction.inject(vit.split_prefix(x)[1], x_cells, c, c_cells)\n'),
        ('extractor reads the tokens before the layers',
         'patches = self.read_patches(x)\n            c = interaction.extract(c, c_cells, patches, x_cells)\n',
         'c = interaction.extract(c, c_cells, patches, x_cells)\n            patches = self.read_patches(x)\n'),
        ("features: 'last' for 'interaction'",
         "features if self.vit_feature_source == 'interaction' else [features[-1]] * 4", '[features[-1]] * 4'),
        ("features: 'interaction' for 'last'", "self.vit_feature_source == 'interaction'", 'len(features) == 4'),
        ('features: nearest', "mode='bilinear', align_corners=False", "mode='nearest'"),
        ('features: align_corners', 'align_corners=False', 'align_corners=True'),
        ('features: antialiased', 'align_corners=False', 'align_corners=False, antialias=True'),
        ('batch norms: eps 1e-3', 'nn.SyncBatchNorm(dims)', 'nn.SyncBatchNorm(dims, eps=1e-3)'),
        ('batch norms: momentum 0.01', 'nn.SyncBatchNorm(dims)', 'nn.SyncBatchNorm(dims, momentum=0.01)'),
        ('batch norms: reversed', '(self.norm1, self.norm2, self.norm3, self.norm4)',
         '(self.norm4, self.norm3, self.norm2, self.norm1)'),
        ('adapter: maps cropped at the left and the top',
         '[..., : shape[0], : shape[1]]', '[..., -shape[0] :, -shape[1] :]'),
        ('initial level_embed: zero', 'torch.randn(3, dims)', 'torch.zeros(3, dims)'),
        ('initial rays: overwritten by those of linear maps', 'module.reset_parameters()', 'pass'),
        ('initial convolutions: by fan in', 'module.out_channels //', 'module.in_channels //'),
        ('initial injector gamma: one', 'init_values=init_values,\n            interaction',
         'init_values=init_values or 1.0,\n            interaction'),
        ('initial LayerScale of the adapter: 1e-5', 'layer_scale_init_value: float = 1.0',
         'layer_scale_init_value: float = 1e-5'),
    ],
    'mmlape/models/base/backbone.py': [
        ('initial linear maps: std 0.01', '(module.weight, std=0.02)', '(module.weight, std=0.01)'),
        ('PE: last row dropped for the class row', 'table[:, prefix:]', 'table[:, :-prefix]'),
        ('PE: rows of zeros after those of the patches', '(0, 0, num_prefix - prefix, 0)',
         '(0, 0, 0, num_prefix - prefix)'),
    ],
    'mmlape/models/vit/model.py': [
        ('dropout of embeddings missing', 'return self.pos_drop(x)', 'return x + 0 * self.pos_drop(x)'),
        ('post-posemb: norm before the PE', 'x, pe = self.add_position(x, hw)  # (B, P + N, D)\n        ', '',
         'x = self.norm_pre(x)\n', 'x = self.norm_pre(x)\n        x, pe = self.add_position(x, hw)\n'),
        ('patch norms: eps always 1e-5', "norm_cfg.get('eps', 1e-5)", '1e-5'),
        ('Sub-LN: the initial weights of the recipe', 'weight.copy_(value)', 'pass'),
        ('distilled: tokens exchanged', "('cls_token', 'dist_token')", "('dist_token', 'cls_token')"),
        ('attention dropout: the other rate', 'attn_drop_rate=attn_drop_rate,\n            proj_drop_rate=drop_rate',
         'attn_drop_rate=drop_rate,\n            proj_drop_rate=attn_drop_rate'),
        ('drop path: none', 'growing_rates(drop_path_rate, depth)', 'growing_rates(0.0, depth)'),
    ],
    'mmlape/models/names.py': [
        ('model names: a subclass has those of its base', "vars(kind).get('model_names')",
         "getattr(kind, 'model_names', None)"),
        ('model names: the checkpoint is not loaded', 'model.init_weights()', 'pass'),
        ('model names: the arguments of the name win', '{**options, **overrides}', '{**overrides, **options}'),
    ],
    'mmlape/models/base/archs.py': [
        ('model names: variants of the first arch alone', 'for name, own in named.items()',
         'for name, own in list(named.items())[:1]'),
    ],
    'mmlape/models/t2t/layers.py': [
        ('T2T: logits scaled by the width of the queries', ', scale=self.qkv.in_features**-0.5', ''),
        ('T2T: transformer without the values in the stream', 'return (v + self.proj(out))', 'return self.proj(out)'),
        ('T2T: performer without the values in the stream', 'x = v + self.drop(', 'x = self.drop('),
        ('T2T: transformer: FFN input not normed',
         'x = self.attn(self.norm1(x))\n        return x + self.mlp(self.norm2(x))',
         'x = self.attn(self.norm1(x))\n        return x + self.mlp(x + 0 * self.norm2(x))'),
        ('T2T: performer: MLP input not normed', 'y.to(v.dtype)))\n        return x + self.mlp(self.norm2(x))',
         'y.to(v.dtype)))\n        return x + self.mlp(x + 0 * self.norm2(x))'),
        ('T2T: performer: order q, k, v', 'k, q, v = self.kqv(', 'q, k, v = self.kqv('),
        ('T2T: performer: |x|^2 not halved', 'keepdim=True) / 2)', 'keepdim=True))'),
        ('T2T: performer: no 1 / sqrt(m)', ' * len(self.w) ** -0.5', ''),
        ('T2T: performer: nothing added to the sum', '(1e8 * total + 1)', '(1e8 * total)'),
        ('T2T: performer: keys averaged', 'k.sum(dim=1, keepdim=True)', 'k.mean(dim=1, keepdim=True)'),
        ('T2T: performer: exponentials in autocast', 'with _without_autocast(v.device.type):',
         'with contextlib.nullcontext():', 'y = self._attend(k.to(wide), q.to(wide), v.to(wide))',
         'y = self._attend(k, q, v)'),
        ('T2T: performer: no dropout', 'drop_rate: float = 0.1', 'drop_rate: float = 0.0'),
        ('T2T: initial random features of length 1', ' * features**0.5', ''),
        ('T2T: linear map before the last split normed twice', 'self.project(x if self.norm0 is None else',
         'self.project(F.layer_norm(x, x.shape[-1:]) if self.norm0 is None else'),
    ],
    'mmlape/models/ceit/layers.py': [
        ('CeiT: stem with ReLU', 'self.bn(self.conv(channels_last(x)))',
         'self.bn(self.conv(channels_last(x))).relu()'),
        ('CeiT: stem with average pooling', 'nn.MaxPool2d(3, 2, 1)', 'nn.AvgPool2d(3, 2, 1)'),
        ('LeFF: no GELU after the first convolution', 'self.act(self.bn1(self.conv1(maps)))',
         'self.bn1(self.conv1(maps))'),
        ('LeFF: no GELU after the depthwise convolution', 'self.act(self.bn2(self.conv2(maps)))',
         'self.bn2(self.conv2(maps))'),
        ('LeFF: a GELU at the end', 'maps = self.bn3(self.conv3(maps))',
         'maps = self.act(self.bn3(self.conv3(maps)))'),
        ('LeFF: class token ends as z', 'torch.cat((prefix, ', 'torch.cat((0 * prefix, '),
        ('LeFF: input not normed', 'self.leff(self.norm2(x), hw)', 'self.leff(x + 0 * self.norm2(x), hw)'),
        ('LeFF: drop path of the attention missing', 'self.drop_path(self.attn(attn_input, hw))',
         'self.attn(attn_input, hw)'),
        ('LeFF: drop path missing', 'self.drop_path(self.leff(self.norm2(x), hw))', 'self.leff(self.norm2(x), hw)'),
        ('LeFF: statistics moved twice', 'norm.momentum = 0.0', 'pass'),
        ('LeFF: batches counted twice', 'norm.num_batches_tracked.copy_(count)', 'pass'),
        ('LCA: the first token queries', 'q[:, :, -1:]', 'q[:, :, :1]'),
        ('LCA: the first token in the stream', 'x[:, -1:] + self.attn', 'x[:, :1] + self.attn'),
        ('LCA: attention input not normed', 'self.attn(self.norm1(x))', 'self.attn(x + 0 * self.norm1(x))'),
        ('LCA: FFN input not normed', 'self.feedforward(self.norm2(x))', 'self.feedforward(x + 0 * self.norm2(x))'),
        ('LCA: no dropout of attention', 'proj_drop_rate=drop_rate', 'proj_drop_rate=0.0'),
        ('LCA: dropout of attention weights', 'proj_drop_rate=drop_rate',
         'proj_drop_rate=drop_rate, attn_drop_rate=drop_rate'),
        ('LCA: no dropout of the FFN', 'feedforward_channels, drop_rate)', 'feedforward_channels)'),
    ],
    'mmlape/models/t2t/model.py': [
        ('T2T-ViT: eps 1e-6', 'eps=1e-5', 'eps=1e-6'),
        ('T2T-ViT: dropout of attention weights', 'proj_drop_rate=drop_rate',
         'proj_drop_rate=drop_rate, attn_drop_rate=drop_rate'),
        ('T2T-ViT: qkv with bias', 'qkv_bias=False', 'qkv_bias=True'),
        ('T2T-ViT: no drop path', 'growing_rates(drop_path_rate, depth)', 'growing_rates(0.0, depth)'),
    ],
    'mmlape/models/ceit/model.py': [
        ('CeiT: eps 1e-5', 'eps=1e-6', 'eps=1e-5'),
        ('CeiT: no drop path', 'growing_rates(drop_path_rate, depth)', 'growing_rates(0.0, depth)'),
        ('CeiT: no PE over layers', ' + self.pos_layer_embed)', ' + 0 * self.pos_layer_embed)'),
        ('CeiT: class token instead of LCA', 'last = self.norm(self.lca(', 'last = self.norm(x[:, 0] + 0 * self.lca('),
        ('CeiT: class tokens before the layers', 'x, pe = layer(x, pe, hw)\n            tokens.append(x[:, 0])',
         'tokens.append(x[:, 0])\n            x, pe = layer(x, pe, hw)'),
        ('CeiT: initial PE over layers random', 'torch.zeros(1, depth, dims)', 'torch.randn(1, depth, dims)'),
        ('CeiT: dropout of attention weights', 'proj_drop_rate=drop_rate',
         'proj_drop_rate=drop_rate, attn_drop_rate=drop_rate'),
        ('CeiT: no dropout of attention', 'proj_drop_rate=drop_rate', 'proj_drop_rate=0.0'),
    ],
    'mmlape/models/ceit/checkpoint.py': [
        ('CeiT: heads of S', "'small': _arch(6)", "'small': dict(_arch(6), num_heads=12)"),
    ],
    'mmlape/models/compact/layers.py': [
        ('compact: residual stream not normed', 'x = self.norm1(x + self.drop_path(self.self_attn(attn_input, hw)))\n'
         '        return x + self.drop_path(self.linear2(F.gelu(self.linear1(x)))), pe',
         'x = x + self.drop_path(self.self_attn(attn_input, hw))\n'
         '        return x + self.drop_path(self.linear2(F.gelu(self.linear1(self.norm1(x))))), pe'),
        ('compact: attention added after the norm', 'self.norm1(x + self.drop_path(self.self_attn(attn_input, hw)))',
         'self.norm1(x) + self.drop_path(self.self_attn(attn_input, hw))'),
        ('compact: tanh GELU', 'F.gelu(self.linear1(x))', "F.gelu(self.linear1(x), approximate='tanh')"),
        ('compact: drop path of the attention missing', 'self.drop_path(self.self_attn(attn_input, hw))',
         'self.self_attn(attn_input, hw)'),
        ('compact: drop path of the MLP missing', 'self.drop_path(self.linear2(F.gelu(self.linear1(x))))',
         'self.linear2(F.gelu(self.linear1(x)))'),
        ('compact: no ReLU', 'nn.ReLU(inplace=True)', 'nn.Identity()'),
        ('compact: average pooling', 'nn.MaxPool2d(3, 2, 1)', 'nn.AvgPool2d(3, 2, 1)'),
        ('compact: stride of the kernel', 'max(1, kernel_size // 2 - 1)', 'max(1, kernel_size // 2)'),
        ('compact: hidden channels', 'hidden_channels = 64', 'hidden_channels = 32'),
        ('compact: convolutions with bias', ', bias=False)', ')'),
        ('compact: eps 1e-6 of patch norms', 'eps: float = 1e-5', 'eps: float = 1e-6'),
    ],
    'mmlape/models/compact/model.py': [
        ('compact: eps 1e-6', 'eps=1e-5', 'eps=1e-6'),
        ('compact: PE resized bicubically', "interpolate_mode: str = 'bilinear'", "interpolate_mode: str = 'bicubic'"),
        ('compact: qkv with bias', 'qkv_bias=False', 'qkv_bias=True'),
        ('compact: pooling by the mean', 'self.attention_pool(x).softmax(dim=1)',
         '(0 * self.attention_pool(x)).softmax(dim=1)'),
        ('compact: pooling by softmax over channels', 'return (weights.mT @ x).squeeze(1)',
         'return (weights * x.softmax(dim=-1)).sum(1)'),
        ('compact: no drop path', 'growing_rates(drop_path_rate, depth)', 'growing_rates(0.0, depth)'),
        ('compact: initial PE std 0.02', 'absolute.std = 0.2', 'absolute.std = 0.02'),
        ('compact: initial class token random', 'nn.init.zeros_(self.class_emb)', 'pass'),
        ('compact: initial linear maps of PyTorch', 'self.init_linear(module)', 'pass'),
        ('compact: initial convolutions of PyTorch', 'nn.init.kaiming_normal_(module.weight)', 'pass'),
        ('compact: no attention dropout by default', 'attn_drop_rate: float = 0.1', 'attn_drop_rate: float = 0.0'),
    ],
    'mmlape/models/timm/model.py': [
        ('timm: the last layer alone is normed', 'x = self.final_norm(x)\n',
         'x = self.final_norm(x) if last else x\n'),
        ('timm: prefix tokens of the PE are patches', "self.num_prefix: int = self.vit.num_prefix_tokens",
         'self.num_prefix: int = min(1, self.vit.num_prefix_tokens)'),
        ('timm: rotary angles left out', 'options = {} if pe is None', 'options = {} if True'),
        ('timm: one rotary table for all layers', 'pe[number] if per_layer', 'pe[0] if per_layer'),
        ('timm: norm of the first input missing', 'return self.vit.norm_pre(tokens), rope, hw',
         'return tokens, rope, hw'),
        ('timm: a frozen ViT keeps activations', 'stack.enter_context(torch.no_grad())', 'pass'),
        ('timm: the final norm is behind the layers', 'self.num_layers if param_name', 'depths - 1 if param_name'),
    ],
    'mmlape/models/timm/adapter.py': [
        ('timm adapter: the pyramid reads tokens that are not normed',
         'return self.normed(self.split_prefix(x)[1], last=False)', 'return self.split_prefix(x)[1]'),
        ('timm adapter: patch 14 without resizing', 'if self.resizes_image:', 'if False:'),
        ('timm adapter: the image is resized by the nearest', "mode='bilinear', align_corners=False",
         "mode='nearest'"),
        ('timm adapter: a resampled stem resizes the PE', 'PATCH * cells for', '14 * cells for'),
        ('timm adapter: each interaction reads one layer more', '*(layer + 1 for layer in last)',
         '*(layer for layer in last)'),
        ('timm adapter: values as wide as tokens', 'deform_ratio=0.5, vit', 'deform_ratio=1.0, vit'),
        ('timm adapter: no drop path in DINOv3', 'drop_path_rate=0.3)', 'drop_path_rate=0.0)'),
        ('timm adapter: a drop path of 0 is none', 'if drop_path_rate is not None:', 'if drop_path_rate:'),
        ("timm adapter: without the ViT's drop path", "drop_path_rate=vit.get('drop_path_rate', 0.0)",
         'drop_path_rate=0.0'),
    ],
    'mmlape/models/base/isotropic.py': [
        ('autocast: tokens half without a PE', 'full_precision(self.position.joining.enter(x, pe))',
         'self.position.joining.enter(x, pe)'),
        ('final norm missing', 'self.final_norm(x) if last', 'x + 0 * self.final_norm(x) if last'),
        ('initial class token: zero', 'trunc_normal_(torch.zeros(1, count, self.embed_dims), std=0.02)',
         'torch.zeros(1, count, self.embed_dims)'),
    ],
    'mmlape/models/layers/transformer_layer.py': [
        ('drop path: rates i / layers', 'i / max(1, num_layers - 1)', 'i / num_layers'),
        ('drop path: one rate', 'drop_path_rate * i / max(1, num_layers - 1)', 'drop_path_rate'),
        ('drop path of the FFN missing', 'self.drop_path(out), self.gamma2', 'out, self.gamma2'),
        ('drop path of the attention missing', 'self.drop_path(out), self.gamma1', 'out, self.gamma1'),
        ('LaPE: PE seen by the FFN', 'pe = self.join(x, pe)\n        out =', 'pe = self.join(x, pe)\n'
         '        seen = attn_input - self.norm1(x)\n        out =', 'self.mlp(self.norm2(x))',
         'self.mlp(self.norm2(x) + seen)'),
        ('LayerScale: gammas exchanged', '(x, self.drop_path(out), self.gamma1)',
         '(x, self.drop_path(out), self.gamma2)', '(x), self.drop_path(out), self.gamma2)',
         '(x), self.drop_path(out), self.gamma1)'),
        ('placement: drop path before the norm of the branch', 'self.branch_norm1(self.attn(attn_input, hw))',
         'self.branch_norm1(self.drop_path(self.attn(attn_input, hw)))', 'self.drop_path(out), self.gamma1',
         'out, self.gamma1'),
        ('placement: norms of the branches exchanged', 'branch_norm1(self.attn', 'branch_norm2(self.attn',
         'branch_norm2(self.mlp', 'branch_norm1(self.mlp'),
        ('placement: norm of the first sum on the tokens', 'self.sum_norm1(add_branch(x,',
         '(add_branch(self.sum_norm1(x),'),
        ('placement: norm of the second sum on the tokens', 'self.sum_norm2(add_branch(self.residual_scale(x),',
         '(add_branch(self.sum_norm2(x),'),
        ('NormFormer: residual scale of attention too', 'self.sum_norm1(add_branch(x,',
         'self.sum_norm1(add_branch(self.residual_scale(x),'),
        ('NormFormer: residual scale of the sum',
         'add_branch(self.residual_scale(x), self.drop_path(out), self.gamma2)',
         'self.residual_scale(add_branch(x, self.drop_path(out), self.gamma2))'),
        ('placement: norm of the hidden units before the activation', 'self.norm(self.drop(self.act(self.fc1(x))))',
         'self.drop(self.act(self.norm(self.fc1(x))))'),
        ('placement: norm of the hidden units missing', 'self.norm(self.drop(self.act(self.fc1(x))))',
         'self.drop(self.act(self.fc1(x)))'),
        ('LayerScale: of the stream', 'torch.addcmul(x, gamma, out)', 'torch.addcmul(out, gamma, x)'),
        ('residual stream in half precision', 'return x.float() if', 'return x if'),
        ('FFN: tanh GELU', "act_cfg or dict(type='GELU')", "act_cfg or dict(type='GELU', approximate='tanh')"),
        ('FFN: input not normed', 'self.mlp(self.norm2(x))', 'self.mlp(x + 0 * self.norm2(x))'),
        ('FFN: dropout of hidden units missing', 'self.drop(self.act(self.fc1(x)))', 'self.act(self.fc1(x))'),
        ('FFN: dropout of the output missing', 'self.drop(self.fc2(', '(self.fc2('),
    ],
    'mmlape/models/vit/big_vision.py': [
        ('big_vision: LN0 in the order of its file',
         "stem_order(value) if module.endswith('ln0') else value", 'value'),
        ('big_vision: heads of the output after their channels', 'value.flatten(0, 1).t()',
         'value.transpose(0, 1).flatten(0, 1).t()'),
        ('big_vision: patches of (channel, row, column)', 'kernel.unflatten(0, (side, side, 3))\n',
         'kernel.unflatten(0, (3, side, side)).movedim(0, 2)\n'),
        ('big_vision: norms of a layer exchanged', '{1 if module.endswith("_0") else 2}',
         '{2 if module.endswith("_0") else 1}'),
        ('big_vision: moments of the optimiser read', 'if only_params and name == key:', 'if False:'),
        ('big_vision: written heads of 32', 'HEAD_DIMS = 64', 'HEAD_DIMS = 32'),
    ],
    'mmlape/models/layers/norm_placement.py': [
        ('placement: post is before as well', "BranchNorms(place != 'post',", 'BranchNorms(True,'),
        ('placement: no norm after pre and post', "{on: place != 'pre'}", "{on: place == 'both'}"),
        ('placement: branch for sum', '_branch(place: str, on: str) -> BranchNorms:\n',
         "_branch(place: str, on: str) -> BranchNorms:\n    on = {'sum': 'branch', 'branch': 'sum'}.get(on)\n"),
        ('placement: of the other branch', 'NormPlacement(_branch(attn, on), _branch(ffn, on))',
         'NormPlacement(_branch(ffn, on), _branch(attn, on))'),
        ('NormFormer: norm of attention on the sum', 'BranchNorms(branch=True)', 'BranchNorms(sum=True)'),
        ('NormFormer: norm of the FFN on the branch',
         'NormPlacement(BranchNorms(branch=True), BranchNorms(inside=True)',
         'NormPlacement(BranchNorms(branch=True), BranchNorms(branch=True)'),
        ('Sub-LN: initial weights not scaled', 'scaled_init=True', 'scaled_init=False'),
        ('Sub-LN: initial weights of a decoder', 'math.log(2 * len(layers))', 'math.log(3 * len(layers))'),
        ('Sub-LN: initial queries are scaled', 'chunk(3)[2]', 'chunk(3)[0]'),
        ('Sub-LN: the output projection is not scaled', '[values, layer.attn.proj.weight.data, ', '[values, '),
        ('NormFormer: scales of every third channel', 'unflatten(-1, (len(self.weight), -1))',
         'unflatten(-1, (-1, len(self.weight))).mT', '.flatten(-2)', '.mT.flatten(-2)'),
    ],
    'mmlape/models/layers/attention.py': [
        ('attention dropout: in evaluation', 'self.attn_drop_rate if self.training else 0.0', 'self.attn_drop_rate'),
        ('attention dropout: never', 'self.attn_drop_rate if self.training else 0.0', '0.0'),
        ('attention: dropout of the output missing', 'self.proj_drop(self.proj(', '(self.proj('),
        ('Sub-LN: norm after the output projection', 'self.proj(self.norm(self.head_scale(out)))',
         'self.norm(self.proj(self.head_scale(out)))'),
        ('NormFormer: head scale after the output projection', 'self.proj(self.norm(self.head_scale(out)))',
         'self.head_scale(self.proj(self.norm(out)))'),
        ('attention: heads before q, k, v', 'unflatten(-1, (3, self.num_heads, -1))',
         'unflatten(-1, (self.num_heads, 3, -1)).transpose(2, 3)'),
        ('attention: scale of the width', 'dropout_p=dropout)',
         'dropout_p=dropout, scale=self.qkv.in_features**-0.5)'),
        ('windows: padding before qkv', 'F.pad(qkv, ', 'self.qkv.bias + F.pad(qkv - self.qkv.bias, '),
        ('windows: padding at the left and the top', '(0, 0, 0, columns * s - width, 0, rows * s - height)',
         '(0, 0, columns * s - width, 0, rows * s - height, 0)', 'out[:, :height, :width]',
         'out[:, -height:, -width:]'),
        ('windows: padding masked', 'self._attend(q, k, v, (s, s))',
         'F.scaled_dot_product_attention(q, k, v, torch.where((k == 0).all(-1), -1e4, 0.0)[:, :, None].to(q))'),
        ('windows: global attention instead',
         'self._global(qkv, hw) if self.window_size is None else self._windowed(qkv, hw)', 'self._global(qkv, hw)'),
        ('windows: masks of another window at batch 2', 'apart.repeat(images, 1, 1, 1), -torch.inf)',
         'apart.repeat_interleave(images, dim=0), -torch.inf)'),
        ('windows: biases of another window at batch 2', '-torch.inf).repeat(images, 1, 1, 1)',
         '-torch.inf).repeat_interleave(images, dim=0)'),
        ('attention dropout: values of iRPE by complete weights', 'encoding.values(self, weights, hw)',
         'encoding.values(self, (logits if bias is None else logits + bias).softmax(-1), hw)'),
        ('attention dropout: explicit logits',
         'F.dropout((logits if bias is None else logits + bias).softmax(-1), dropout)',
         'F.dropout(logits if bias is None else logits + bias, dropout).softmax(-1)'),
        ('attention dropout: explicit weights complete', '.softmax(-1), dropout)', '.softmax(-1), 0.0)'),
        ('attention dropout: explicit weights at half the rate', '.softmax(-1), dropout)',
         '.softmax(-1), dropout / 2)'),
        ('attention: the first of several terms', 'sum(terms[1:], terms[0]) if terms', 'terms[0] if terms'),
        ('attention: the first of several turns', 'for encoding in self.encodings:\n            q, k =',
         'for encoding in self.encodings[:2]:\n            q, k ='),
        ('attention: inputs of keys and values exchanged', 'for i, part in enumerate(x)]',
         'for i, part in enumerate((x[0], x[2], x[1]))]'),
    ],
    'mmlape/models/layers/patch_embed.py': [
        ('DPN: no norm after', 'else norm(x))', 'else x + 0 * norm(x))'),
        ('DPN: no shift', 'x * self.weight + self.bias', 'x * self.weight + 0 * self.bias'),
        ('DPN: norm per channel of a patch', 'self.norm0(x.reshape', 'self.norm0(F.layer_norm(x, (p, p)).reshape'),
        ('DPN: patches (row, column, channel)', 'permute(0, 2, 4, 1, 3, 5)', 'permute(0, 2, 4, 3, 5, 1)'),
        ('DPN: RMS without eps', 'keepdim=True) + self.eps)', 'keepdim=True))'),
    ],
    'mmlape/models/grid.py': [
        ('resize: bilinear', 'mode=mode,', "mode='bilinear',"),
        ('resize: antialiased', 'align_corners=corners)', 'align_corners=corners, antialias=True)'),
        ('resize: align_corners', "mode.endswith('-corners')", 'True'),
        ('resize: corners are not aligned', "mode.endswith('-corners')", 'False'),
        ('resize: rows and columns exchanged', 'reshape(1, -1, *src)', 'reshape(1, -1, *src).mT'),
    ],
    'mmlape/models/position/base.py': [
        ('decay: the last of two encodings alone has parameters',
         "(*getattr(module, 'pe_names', ()), *(key", '(*(), *(key'),
        ('decay: parameters of modules that an encoding registers are left out', 'if key not in before))',
         "if key not in before and '.' not in key))"),
        ('resize: prefix rows zero', '(table[:, :num_prefix],', '(0 * table[:, :num_prefix],'),
    ],
    'mmlape/models/position/absolute.py': [
        ('sine: columns first', '(by_row, by_column)', '(by_column, by_row)'),
        ('sine: from 0', 'torch.arange(1, side + 1,', 'torch.arange(0, side,'),
        ('sincos1d: sine and cosine exchanged', 'channel % 2 == 0', 'channel % 2 == 1'),
        ('sincos2d: rows first', '(by_column, by_row)', '(by_row, by_column)'),
        ('sincos2d: class token not zero', 'table.new_zeros(num_prefix, embed_dims), table))\n',
         'table[:1].expand(num_prefix, -1), table))\n'),
        ('initial PE: std 0.2', 'std=self.std', 'std=10 * self.std'),
        ('sincos2d-moco: exponents of MoCo v3', '/ (quarter - 1))', '/ quarter)'),
        ('sincos2d-moco: rows first', '(x.sin(), x.cos(), y.sin(), y.cos())', '(y.sin(), y.cos(), x.sin(), x.cos())'),
        ('sincos2d-moco: cosines last', '(x.sin(), x.cos(), y.sin(), y.cos())',
         '(x.sin(), y.sin(), x.cos(), y.cos())'),
    ],
    'mmlape/models/position/relative_bias.py': [
        ('RPE: key minus query', 'cells[:, None] - cells[None]', 'cells[None] - cells[:, None]'),
        ('RPE: bias scaled', '[None].to(q.dtype)', '[None].to(q.dtype) * attn.head_dims**-0.5'),
        ('RPE: bias normed over the queries', 'attn.pe_norm(bias)', 'attn.pe_norm(bias.mT).mT'),
        ('RPE: eps 1e-6 of the norm', 'nn.LayerNorm(grid[0] * grid[1])', 'nn.LayerNorm(grid[0] * grid[1], eps=1e-6)'),
        ('RPE: bias of another grid normed over the queries',
         'F.layer_norm(bias, weight.shape, weight, shift, attn.pe_norm.eps)',
         'F.layer_norm(bias.mT, weight.shape, weight, shift, attn.pe_norm.eps).mT'),
        ('RPE: eps 1e-6 of the norm on another grid', 'weight, shift, attn.pe_norm.eps', 'weight, shift, 1e-6'),
        ('initial RPE: random', 'torch.zeros(entries, attn.num_heads)', 'torch.randn(entries, attn.num_heads)'),
        ('RPE: another grid by columns', '[(2 * rows - 1, 2 * columns - 1) for',
         '[(2 * columns - 1, 2 * rows - 1) for'),
        ('RPE: norm of another grid by columns', 'bias), dim=1), src, dst, mode',
         'bias), dim=1), src[::-1], dst[::-1], mode'),
        ('RPE: stored norm as it is', 'if all(name in stored for name in names):', 'if False:'),
        ('RPE: prefix behind the patches', '(prefix, 0, prefix, 0)', '(0, prefix, 0, prefix)'),
        ('RPE: drawn of one head', 'self.bias(attn, grid).mean(0)', 'self.bias(attn, grid)[0]'),
    ],
    'mmlape/models/base/tensor_names.py': [
        ('a file: the PE resized twice', '{} if rows == columns == default else', '{} if rows == columns else'),
        ('a file: grid transposed', 'rows, columns = (side * patch_size', 'columns, rows = (side * patch_size'),
        ('a file: heads of the record unused', "if 'num_heads' in weights.recorded:", 'if False:'),
        ('a file: readings left out', "open_ |= {'pe_type': position.ambiguous} if position.ambiguous else {}",
         'pass'),
        ('a file: readings beside a record', "() if 'pe_type' in weights.recorded else inside", 'inside'),
        ('a file: heads that do not divide', 'if dims % heads == 0)', 'if dims % heads >= 0)'),
    ],
    'mmlape/models/base/named_arch.py': [
        ('a file: stem of other pixels', 'position.img_size(self.patch_size)', 'position.img_size(8)'),
    ],
    'mmlape/models/vit/checkpoint.py': [
        ('a file: an arch of other heads', 'heads = NAMES.infer_heads(weights) or dims // 64', 'heads = dims // 64'),
    ],
    'mmlape/models/swin/checkpoint.py': [
        ('a file: Swin windows of the first stage', 'sides[0] if len(set(sides)) == 1 else tuple(sides)', 'sides[0]'),
        ('a file: Swin grid of a window', 'position if NAMES.tables(weights) else', 'position if True else'),
    ],
    'mmlape/models/swin/layouts.py': [
        ("a file: Swin merging of timm's by the fourth stage", r'[1-9]\d*\.downsample', r'3\.downsample'),
        ('a file: Swin merging of others taken for timm', r"absent=r'layers\.0\.downsample\.'", 'absent=None'),
    ],
    'mmlape/checkpoint/records.py': [
        ('a file: readings not told at a load', 'any(name != own.get(key) for name in names)', 'len(names) > 9'),
    ],
    'mmlape/checkpoint/loading.py': [
        ('a file: dropped and new', 'if name in report.dropped and not', 'if False and not'),
    ],
    'mmlape/models/timm/checkpoint.py': [
        ("a file: DINOv3's adapter left out", 'beside=True,\n)\nDINOV3_PARTS', 'beside=False,\n)\nDINOV3_PARTS'),
        ("a file: DINOv3's ViT without its adapter", "name.startswith('spm.')", "name.startswith('x.')"),
        ('a file: patch size left out', "config['patch_size'] = stem", "patch_size = stem"),
    ],
    'mmlape/models/position/irpe.py': [
        ('iRPE file: bucket of prefix tokens counted', '- bool(num_prefix)\n        told', '\n        told'),
        ('iRPE file: ratios up to twice', 'ratio < {(beta + 1) / 2:g}', 'ratio < {beta + 1:g}'),
        ('iRPE file: distances left out', 'product | dict.fromkeys(distances, count // 2)',
         'product or dict.fromkeys(distances, count // 2)'),
        ('iRPE file: Shaw on any side', 'if told == clipped and', 'if told and'),
        ('iRPE: query table at the other offset', "term.mT if side == 'q' else term)", 'term)'),
        ('iRPE: tables of queries and keys exchanged', "(('k', q), ('q', k))", "(('q', q), ('k', k))"),
        ('iRPE: contextual term not scaled', '(x * scale) @ table', 'x @ table'),
        ('iRPE: bias scaled', "term * scale if self.buckets.reading == 'paper' else term", 'term * scale'),
        ('iRPE: values of the key bucket', 'ids.expand_as(weights), weights)', 'ids.mT.expand_as(weights), weights)'),
        ('iRPE: paper reads queries as the code', 'places.mT if as_equation', 'places if as_equation'),
        ('initial iRPE: random', 'torch.zeros(shape)', 'torch.randn(shape)'),
        ('iRPE: biases of queries drawn as of keys', "term.mT if side == 'q' and self.buckets.reading == 'code' else",
         'term if True else'),
    ],
    'mmlape/models/position/buckets.py': [
        ('device: buckets on the CPU', 'torch.arange(side, device=device) for side in grid))  # (N, 2)',
         'torch.arange(side) for side in grid))'),
        ('buckets: offset of key from query', 'cells[:, None] - cells[None]', 'cells[None] - cells[:, None]'),
        ('buckets: columns first', '((index(rows) + middle) * self.side + index(columns) + middle,)',
         '((index(columns) + middle) * self.side + index(rows) + middle,)'),
        ('buckets: cross exchanged', 'return index(rows) + middle, index(columns) + middle',
         'return index(columns) + middle, index(rows) + middle'),
        ('buckets: beta rounded', 'return 2 * int(self.beta) + 1', 'return 2 * round(self.beta) + 1'),
        ('buckets: linear beyond alpha', '/ self.alpha).log() /', '/ self.alpha - 1) /'),
        ('buckets: base of the logarithm', 'math.log(self.gamma / self.alpha)', 'math.log(self.beta / self.alpha)'),
        ('buckets: prefix tokens in the first', 'value=buckets.count', 'value=0'),
        ('buckets: distance not squared', 'rows.square() + columns.square()', 'rows.abs() + columns.abs()'),
        ('buckets: code ranks squares', "squared if self.reading == 'code' else _rank(squared)", '_rank(squared)'),
        ('buckets: h without its bound', '.clamp(-int(self.beta), int(self.beta)).long()', '.long()'),
    ],
    'mmlape/models/detr/layers.py': [
        ('autocast: DETR, tokens half', 'x = full_precision(x)', 'x = x + 0'),
        ('DETR: PE in the values, too', 'F.linear(x, weight[dims:]', 'F.linear(seen, weight[dims:]'),
        ('DETR: no PE in queries and keys', 'F.linear(seen, weight[:dims]', 'F.linear(x, weight[:dims]'),
        ('DETR: PE left out', 'seen = x + pe', 'seen = x'),
        ('DETR: PE not chained', 'self.norms[1](self.ffn(x)), following', 'self.norms[1](self.ffn(x)), pe'),
        ('DETR: padded keys are seen', 'None if padding is None else padding[:, None]', 'None'),
        ('DETR: grid transposed', 'self._attend(q, k, v, hw,', 'self._attend(q, k, v, hw[::-1],'),
        ('DETR: tokens not added', 'return x + self.dropout_layer', 'return self.dropout_layer'),
        ('DETR: norms exchanged', 'self.norms[1](self.ffn(x))', 'self.norms[0](self.ffn(x))'),
        ('DETR: eps 1e-6 of the norm of the PE', "'eps': 1e-5", "'eps': 1e-6"),
        ('DETR: no dropout of attention weights', 'embed_dims // num_heads, self.attn.dropout',
         'embed_dims // num_heads, 0.0'),
        ('DETR: no dropout of the output', 'self.dropout_layer(self.proj_drop(out))', 'self.proj_drop(out)'),
    ],
    'mmlape/models/detr/model.py': [
        ('DETR: sine without sine in the encoder', 'None if without else pe', 'pe'),
        ('DETR: sine without sine in the decoder', 'torch.zeros_like(pe) if without else pe', 'pe'),
        ('DETR: positions of the queries for the keys', 'torch.zeros_like(pe)', 'None'),
        ('DETR: sine always in float32', '.to(self.query_embedding.weight.dtype)', ''),
        ('initial DETR: other values for all tables', 'table.copy_(value)', 'pass'),
        ("DETR file: the constructor's tables", 'if not load_pretrained(self):',
         'load_pretrained(self)\n        if True:'),
        ('DETR: default grid transposed', '(25, 42)', '(42, 25)'),
    ],
    'mmlape/models/detr/checkpoint.py': [
        ('DETR file: another id without a class', '(0, 12, 26,', '(0, 13, 26,'),
        ('DETR file: no object first', 'UNUSED_IDS = (0,', 'UNUSED_IDS = (91,'),
    ],
    'mmlape/models/base/tables.py': [
        ('a file: any table taken for sinusoids', 'if not recorded and not', 'if False and not'),
        ('a file: recorded sinusoids refused', 'if not recorded and not', 'if not'),
        ('PE file: another row for one that it lacks', 'resized.new_zeros(', 'resized.new_ones('),
        ('PE file: tokens in the order of the file', 'for token, count in tokens.items():',
         'for token, count in reversed(tokens.items()):'),
        ('PE file: first patches for prefix rows', 'resized[:, :num_prefix].split', 'resized[:, -num_prefix:].split'),
        ('PE file: a row of no token is new', 'if token not in rows and model.num_prefix:', 'if token not in rows:'),
    ],
    'mmlape/models/vit/layouts.py': [
        ("timm's file: LayerScales exchanged", "(r'\\.ls([12])\\.gamma$', r'.gamma\\1')",
         "(r'\\.ls1\\.gamma$', r'.gamma2'), (r'\\.ls2\\.gamma$', r'.gamma1')"),
        ("timm's file: LayerScales written exchanged", "(r'\\.gamma([12])$', r'.ls\\1.gamma')",
         "(r'\\.gamma1$', r'.ls2.gamma'), (r'\\.gamma2$', r'.ls1.gamma')"),
        ("timm's file: a bias of the stem before its norm", "k != 'patch_embed.proj.bias' or", 'True or'),
        ('vit-pytorch: LN0 in the order of its file', "stem_order(out[f'patch_embed.norm0.{leaf}'])",
         "out[f'patch_embed.norm0.{leaf}']"),
        ('vit-pytorch: kernel in the order of its file', "stem_order(out['patch_embed.proj.weight'].t()).t()",
         "out['patch_embed.proj.weight']"),
        ("open_clip: attention's LayerScale for the FFN's", "ls_1.gamma': 'blocks.#.gamma1'",
         "ls_1.gamma': 'blocks.#.gamma2'", "ls_2.gamma': 'blocks.#.gamma2'", "ls_2.gamma': 'blocks.#.gamma1'"),
        ('open_clip: last norm before the layers', "'ln_pre.': 'norm_pre.',", "'ln_post.': 'norm_pre.',",
         "'ln_post.': 'norm.',", "'ln_pre.': 'norm.',"),
    ],
    'mmlape/models/vit/targets.py': [
        ('convert: any stem bias lost', 'tensors[\'patch_embed.proj.bias\'].any()', 'False'),
        ('convert: heads of the mean', "weights.recorded.get('out_type') == 'avg_featmap'", 'False'),
        ('convert: exact GELU for big_vision', "'act_cfg': [TANH_GELU],", "'act_cfg': None,"),
        ('convert: LaPE shared in its file', "'unshared', 'lape']", "'unshared', 'lape', 'lape-shared']"),
    ],
    'mmlape/checkpoint/targets.py': [
        ('convert: encodings not asked for', 'found = self._encodings_missing(', 'found = [] and ('),
        ('convert: kinds beside the only one', 'len(choice) == len(names) and', ''),
        ('convert: other tensors dropped', 'return found or list(', 'return found or [] and list('),
        ('convert: the default for any value', '[defaults[key]] if key in defaults else ()', 'None'),
        ('convert: heads always', 'return self.names is None or all(', 'return True or all('),
        ('convert: clashes not asked for', 'if self.clashes else []', 'if False else []'),
    ],
    'mmlape/models/position/earlier.py': [
        ('device: SASA, cells on the CPU', 'torch.arange(side, device=q.device) for side in grid)).mT',
         'torch.arange(side) for side in grid)).mT'),
        ('Huang: one side', '_gathered(q * scale, attn.rpe_table, ids) + of_keys', 'of_keys'),
        ('Huang: mirrored', 'attn.rpe_table, ids.mT).mT', 'attn.rpe_table, ids).mT'),
        ('Transformer-XL: no bias of offsets', '(q + attn.rpe_offset_bias)', 'q'),
        ('Transformer-XL: no bias of keys', 'of_keys + of_offsets', 'of_offsets'),
        ('SASA: rows for columns', ".chunk(2, dim=-1)\n        cells", ".chunk(2, dim=-1)[::-1]\n        cells"),
        ('SASA: mirrored', 'cell[:, None] - cell + side', 'cell - cell[:, None] + side'),
        ('Shaw: on keys only', "sides = 'kv'", "sides = 'k'"),
        ('Huang file: ratio of all buckets', 'dict(ratio=largest / 2)', 'dict(ratio=largest)'),
        ('Transformer-XL: prefix tokens at the first offset', 'waves.new_zeros(1, len(weight))', 'waves[:1]'),
        ('early terms: no bucket of prefix tokens', 'grid, self.slot.num_prefix, device)[0]', 'grid, 0, device)[0]'),
        ('SASA: prefix behind the patches', '(prefix, 0, prefix, 0)', '(0, prefix, 0, prefix)'),
        ('SASA: queries of the first tokens', 'q[:, :, prefix:] *', 'q[:, :, : q.shape[2] - prefix] *'),
    ],
    'mmlape/models/position/rotary.py': [
        ('device: rotary angles on the CPU', 'torch.arange(side, dtype=torch.float64, device=device)',
         'torch.arange(side, dtype=torch.float64)'),
        ('rotary: columns first', 'torch.cat(cells, dim=-1)', 'torch.cat(cells[::-1], dim=-1)'),
        ('rotary: frequencies of the head', '/ quarter)', '/ head_dims)'),
        ('rotary: corners for centres', '(2 * index + 1) / side - 1', '2 * index / side - 1'),
        ('rotary: no 2 pi', '- 1) * 2 * math.pi', '- 1)'),
        ('rotary: prefix turned', '(0, 0, num_prefix, 0)', '(0, 0, 0, num_prefix)'),
        ('mixed rotary: prefix turned', '(0, 0, self.slot.num_prefix, 0)', '(0, 0, 0, self.slot.num_prefix)'),
        ('mixed rotary: x and y exchanged', 'y, x = torch', 'x, y = torch'),
        ('mixed rotary: one direction', '(angle + math.pi / 2)', '(angle + 0)'),
        ('rotary: sides of the reference exchanged', 'self.reference[axis] /', 'self.reference[1 - axis] /'),
        ('rotary: products in half precision', 'torch.promote_types(q.dtype, torch.float32)', 'q.dtype'),
        ('mixed rotary: angles in half precision',
         'attn.freqs if attn.freqs.dtype.itemsize > 2 else attn.freqs.float()', 'attn.freqs'),
        ('rotary: scaled coordinates in windows', "coordinates == 'index' and reference is None",
         "coordinates == 'index'"),
    ],
    'mmlape/models/position/rotation.py': [
        ('rotation: backwards', 'torch.complex(cos, sin)', 'torch.complex(cos, -sin)'),
        ('rotation: halves backwards', 'torch.cat((-sin, sin)', 'torch.cat((sin, -sin)'),
        ('rotation: recorded backwards', 'torch.stack((-sin, sin), dim', 'torch.stack((sin, -sin), dim'),
    ],
    'mmlape/models/cached_tensors.py': [
        ('kept while recording', 'return build(*args)\n            return', 'return keep(*args)\n            return'),
    ],
    'mmlape/models/position/conditional.py': [
        ('CPE: no skip', 'patches + term', 'term'),
        ('CPE: prefix lost', 'x[:, :prefix], patches', 'x[:, :prefix] * 0, patches'),
        ('CPE: columns for rows', 'to_maps(patches, grid)', 'to_maps(patches, grid[::-1])'),
        ('CPE: no padding with zeros', 'padding=side // 2,', "padding=side // 2, padding_mode='replicate',"),
        ('CPE: not depthwise', ', groups=embed_dims', ''),
    ],
    'mmlape/models/position/alibi.py': [
        ('ALiBi: farther is nearer', 'return -slopes', 'return slopes'),
        ('device: slopes of ALiBi on the CPU', 'num_heads + 1, dtype=torch.float32, device=device)',
         'num_heads + 1, dtype=torch.float32)'),
        ('ALiBi: slopes from 1', '-8 * head / attn.num_heads', '-8 * (head - 1) / attn.num_heads'),
        ('ALiBi: no factor of the slopes', 'self.slope * 2 **', '2 **'),
        ('ALiBi: city blocks', '.norm(dim=-1)', '.abs().sum(-1)'),
    ],
    'mmlape/models/position/chain.py': [
        ('chain of norms: backward from its start', 'pe = _received(ctx).detach()', 'pe = gradient.detach()'),
        ('chain of norms: a link left out', 'for after in reversed(links):', 'for after in reversed(links[:1]):'),
    ],
    'mmlape/models/adapter/row_sums.py': [
        ('row sums: gradient of rows without weights', 'weights.reshape(-1).index_select(0, pair)',
         'torch.ones_like(weights).reshape(-1)'),
        ('row sums: rows of other queries', 'pair // index.shape[1]', 'pair % len(gradient)'),
        ('row sums: weights without a second derivative', '(rows[index] * gradient[:, None]).sum',
         '(rows[index] * gradient[:, None]).detach().sum'),
        ('row sums: weights by the mean where a graph is made', '(rows[index] * gradient[:, None]).sum',
         '(rows[index] * gradient[:, None]).mean'),
    ],
    'mmlape/models/position/joining.py': [
        ('LaPE: PE added at the input too', 'shares_norm = False\n\n    def enter',
         'shares_norm = False\n\n    def leave'),
        ('LaPE: no chain', 'pe = chained_norm(pe_norm, pe)\n        return x, norm(x) + pe,',
         'return x, norm(x) + pe_norm(pe),'),
        ('LaPE: PE inside the norm', 'norm(x) + pe, pe', 'norm(x + pe), pe'),
        ('lape-shared: a chain', 'norm(x) + pe_norm(pe), pe', 'norm(x) + pe_norm(pe), pe_norm(pe)'),
        ('shared: PE not kept in the residual stream', 'x = x + pe\n        return x, norm(x), pe',
         'return x, norm(x + pe), pe'),
        ('shared: PE added at the input too', 'at_input = False\n\n    def enter',
         'at_input = False\n\n    def enter(self, x, pe):\n'
         '        return x if isinstance(pe, tuple) else x + pe\n\n    def leave'),
        ('unshared: the first table in every layer', 'norm(x), pe[1:]', 'norm(x), pe'),
    ],
    'mmlape/models/position/pe_norm.py': [
        ('PE norm: eps 1e-5', '(norm_cfg, dims)', '(dict(norm_cfg, eps=1e-5), dims)'),
        ("PE norm: eps 1e-5 of 'norm'", 'eps=self.eps)', 'eps=1e-5)'),
        ('PE norm: scaled before it is standardised', 'pe = F.layer_norm(pe, (self.dims,), eps=self.eps)\n',
         'weight = 1 if self.weight is None else self.weight\n'
         '            pe = F.layer_norm(pe * weight, (self.dims,), eps=self.eps)\n', 'if self.weight is not None:',
         'elif self.weight is not None:'),
    ],
    'mmlape/models/swin/layers.py': [
        ('device: Swin, the mask on the CPU', 'torch.arange(side, device=device) >=', 'torch.arange(side) >='),
        ('Swin: no mask', 'if shift else None\n        out = self', 'if False else None\n        out = self'),
        ('Swin: rows apart only', '2 * rows[:, None] + columns', '2 * rows[:, None] + 0 * columns'),
        ('Swin: border one token too early', '>= side - shift', '>= side - shift - 1'),
        ('Swin: shifted to the right', 'x.roll((-shift, -shift)', 'x.roll((shift, shift)'),
        ('Swin: not rolled back', 'out.roll((shift, shift), (1, 2)) if shift else out', 'out'),
        ('Swin: maps of one window shifted', 'min(hw) > self.window_size', 'min(hw) >= self.window_size'),
        ('Swin: small maps padded where windows shrink', 'return min(hw), 0', 'return self.window_size, 0'),
        ('Swin: small maps padded and not shifted', 'return self.window_size, self.shift',
         'return self.window_size, self.shift * (min(hw) > self.window_size)'),
        ('Swin: windows shrink to the long side', 'return min(hw), 0', 'return max(hw), 0'),
        ('Swin: padding at the left and the top', '(0, 0, 0, grid[1] - hw[1], 0, grid[0] - hw[0])',
         '(0, 0, grid[1] - hw[1], 0, grid[0] - hw[0], 0)', 'out[:, :height, :width]', 'out[:, -height:, -width:]'),
        ('Swin: padding is no zeros', 'grid[0] - hw[0]))', 'grid[0] - hw[0]), value=1.0)'),
        ('Swin: windows by column', 'x.transpose(2, 3).reshape(-1, window * window, channels)',
         'x.permute(0, 1, 3, 4, 2, 5).reshape(-1, window * window, channels)'),
        ('autocast: Swin, tokens half after a merge', 'full_precision(self.reduction(self.norm(',
         '(self.reduction(self.norm('),
        ('Swin: cells of a merge by row', 'permute(0, 1, 3, 4, 2, 5)', 'permute(0, 1, 3, 2, 4, 5)'),
        ('Swin: cells of a merge not normed', 'self.reduction(self.norm(merge_cells(x, grid)))',
         'self.reduction(merge_cells(x, grid))'),
        ('Swin: odd maps padded at the left and the top', '(0, 0, 0, 2 * columns - width, 0, 2 * rows - height)',
         '(0, 0, 2 * columns - width, 0, 2 * rows - height, 0)'),
        ('Swin: the PE is merged by the norm of the tokens',
         'self.norm if self.pe_norm is None else self.pe_norm', 'self.norm'),
        ('Swin: the PE is merged without a norm', 'self.reduction(norm(merge_cells(pe, grid)))',
         'self.reduction(merge_cells(pe, grid))'),
    ],
    'mmlape/models/swin/options.py': [
        ('Swin: tables for windows that are not shrunk', 'window if pad_small_map else min(window, *grid)', 'window'),
        ('Swin: tables for the first grid', 'grid = merged_grid(grid)', 'pass'),
        ('Swin: heads of T', '_arch(96, 6, 3)', '_arch(96, 6, 6)'),
    ],
    'mmlape/models/swin/model.py': [
        ('Swin: the PE is merged as it was before the layers', 'self.position.joining.change_grid(pe, lambda',
         'self.position.joining.change_grid(self._table(0, grid) if stage == 1 else pe, lambda'),
        ('Swin: windows of the first stage in all', 'self.window_sizes[stage]', 'self.window_sizes[0]'),
        ('Swin: windows shifted in even layers', 'if i % 2 else 0', 'if i % 2 == 0 else 0'),
        ('Swin: drop path: each stage begins at 0', 'rates[first : first + depth]', 'rates[:depth]'),
        ('Swin: FFN twice as wide', 'feedforward_channels=4 * dims', 'feedforward_channels=2 * dims'),
        ('Swin: eps 1e-6', "norm_cfg or dict(type='LN')", "norm_cfg or dict(type='LN', eps=1e-6)"),
        ('Swin: a table of a stage is not joined', 'return self.position.joining.enter(x, pe), pe', 'return x, pe'),
        ('Swin: figures of tokens that are not normed', 'yield seen[0]\n            if stage.downsample is not None:\n'
         '                x, pe = self.next_position(number + 1, stage.downsample(x, grid)',
         'yield seen[0]\n            if stage.downsample is not None:\n'
         '                x, pe = self.next_position(number + 1, stage.downsample(0 * x, grid)'),
        ('Swin: dropouts exchanged', 'attn_drop_rate=attn_drop_rate, proj_drop_rate=drop_rate',
         'attn_drop_rate=drop_rate, proj_drop_rate=attn_drop_rate'),
        ('Swin: no dropout of embeddings', 'nn.Dropout(drop_rate)', 'nn.Dropout(0.0)'),
        ('Swin: no dropout of the FFN', 'dict(drop_rate=drop_rate', 'dict(drop_rate=0.0'),
    ],
    'mmlape/models/vit/options.py': [
        ('DeiT: heads of S', '_arch(384, 6)', '_arch(384, 12)'),
    ],
    'mmlape/models/compact/options.py': [
        ('compact: heads of 7 layers', '7: (256, 4, 512)', '7: (256, 8, 512)'),
    ],
    'mmlape/analysis/cost.py': [
        ('cost: as many keys as queries', 'queries * key[2]', 'queries * queries'),
        ('cost: values as wide as keys', '(dims + value[3])', '(2 * dims)'),
        ('cost: attention not counted', '{cpu_attention: _attention_flops}', '{}'),
    ],
    'mmlape/engine/paramwise.py': [
        ('decay: group norms are none', 'nn.GroupNorm, nn.LayerNorm)', 'nn.LayerNorm)'),
        ('decay: instance norms are none', '_InstanceNorm, nn.GroupNorm', 'nn.GroupNorm'),
        ('decay: position encodings decay', "'position_decay_mult', 0.0)", "'position_decay_mult', 1.0)"),
        ('decay: what position encodings are is ignored', 'position=is_position, norm', 'position=False, norm'),
        ('rate: that of position encodings is ignored', 'position=is_position, bias', 'position=False, bias'),
        ('decay: everything is a position encoding', 'name in positions, depth_of)', 'True, depth_of)'),
    ],
    'mmlape/evaluation/few_shot.py': [
        ('few-shot: classes of equal weight', '2 * sums - x.sum(dim=0)', 'sums / sums[:, -1:]'),
        ('few-shot: sample standard deviation', 'correction=0', 'correction=1'),
        ('few-shot: bias 1', 'BIAS = 100.0', 'BIAS = 1.0'),
        ('few-shot: queries standardised by themselves', 'design(part) @', 'design((part - part.mean(dim=0)) /'
         ' part.std(dim=0) * std + mean) @'),
        ('few-shot: l2 of the mean', 'l2 * torch.eye', 'l2 * len(x) * torch.eye'),
        ('few-shot: no l2', 'l2 * torch.eye', '1e-9 * torch.eye'),
        ('few-shot: one shot more', 'ranks[:, seed] < shots', 'ranks[:, seed] <= shots'),
        ('few-shot: the first seed only', 'ranks[:, seed] < shots', 'ranks[:, 0] < shots'),
    ],
    'mmlape/datasets/few_shot.py': [
        ('few-shot: a generator for each class', 'random.permutation(images)',
         'np.random.default_rng(seed).permutation(images)'),
        ('few-shot: the first images', 'random.permutation(images)', 'images'),
    ],
    'mmlape/models/classifiers/mixup.py': [
        ('mixup: factor below 1/2', 'max(factor, 1 - factor)', 'factor'),
        ('mixup: rolled backwards', 'each.roll(1, dims=0)', 'each.roll(-1, dims=0)'),
        ('mixup: images only', 'factor * each + (1 - factor) * each.roll(1, dims=0) for each in',
         'factor * each + (1 - factor) * each.roll(1 if each.ndim > 2 else 0, dims=0) for each in'),
    ],
    'configs/_base_/models/vit_big_vision.py': [
        ('big_vision: softmax loss', 'use_sigmoid=True', 'use_soft=True'),
        ('big_vision: mean over the classes', "type='CrossEntropyLoss', use_sigmoid=True",
         "type='CrossEntropyLoss', use_sigmoid=True, loss_weight=1e-3"),
        ('big_vision: no bias of the head', 'val=0.0, bias=-6.9', 'val=0.0'),
        ('big_vision: PE std 0.02', 'std=width**-0.5', 'std=0.02'),
        ('RandAugment: contrast with the mean of the image', 'mmlape.BigVisionContrast', 'Contrast'),
        ('RandAugment: skipped half of the time', 'prob=1.0', 'prob=0.5'),
        ('RandAugment: Posterize by the other end', "'Posterize', magnitude_range=(0, 4)",
         "'Posterize', magnitude_range=(4, 0)"),
        ('RandAugment: identity at 0', '(-0.9, 0.9)', '(0, 0.9)'),
        ('RandAugment: moved by a share of another size', '100 / 224', '100 / 256'),
        ('RandAugment: half the hole', 'magnitude_range=(0, 80)', 'magnitude_range=(0, 40)'),
    ],
    'mmlape/datasets/big_vision.py': [
        ('contrast: the mean of the image', 'image.shape[0] * image.shape[1] // 256', 'int(image.mean())'),
        ('contrast: rounded', '.astype(image.dtype)', '.round().astype(image.dtype)'),
        ('contrast: the grey is not cut', 'min(image.shape[0] * image.shape[1] // 256, 255)',
         '(image.shape[0] * image.shape[1] // 256)'),
    ],
    'mmlape/models/initial.py': [
        ('initial: q, k and v are one map', "3 if name.endswith('qkv') else 1", '1'),
        ('initial: class token is drawn', 'nn.init.zeros_(module.cls_token)', 'pass'),
        ('initial: stem by its outputs', 'part.weight[0].numel()', 'part.weight[:, 0].numel()'),
        ('initial: stem narrower by what is cut off', ' / CUT_AT_TWO', ''),
        ("initial: Xavier's for torch's", 'part.reset_parameters()', 'nn.init.xavier_uniform_(part.weight)'),
    ],
    'mmlape/engine/warmup_cosine.py': [
        ('timm: the cosine begins after the warm-up', 'warmup if warmup_prefix else 0', 'warmup'),
        ('timm: the cosine begins with the warm-up', 'warmup if warmup_prefix else 0', '0'),
        ('timm: the warm-up ends a step early', 'self.last_step / self.warmup', 'self.last_step / (self.warmup - 1)'),
        ('timm: the warm-up begins at 0', 'self.warmup_start + share * (base - self.warmup_start)', 'share * base'),
        ('timm: the cosine ends at 0', 'self.eta_min + share * (base - self.eta_min)', 'share * base'),
        ('timm: the cosine ends a step early', '(T_max or end - begin) - self.skipped',
         '(T_max or end - begin) - self.skipped - 1'),
        ('timm: the cosine rises again', 'min((self.last_step - self.skipped) / self.length, 1.0)',
         '(self.last_step - self.skipped) / self.length'),
    ],
    'configs/_base_/schedules/big_vision_93k.py': [
        ('big_vision: weight decay of the schedule', 'weight_decay=0.1', 'weight_decay=1e-4'),
        ('big_vision: class token decays', 'cls_token=dict(decay_mult=0.0)', ''),
        ('big_vision: cosine from the start', 'by_epoch=False, begin=warmup_iters)', 'by_epoch=False, begin=0)'),
    ],
    'mmlape/models/timm/pretrained.py': [
        ("decay: timm's frequencies decay", "('pos_embed', 'rope.')", "('pos_embed',)"),
    ],
    'mmlape/experiments/report/tables.py': [
        ('seeds: the unpaired test on pairs', 'paired=paired)', 'paired=False)'),
        ("seeds: the arms' spread for that of the pairs", 'compared.paired, of_differences(*arms)',
         'compared.paired, pooled([list(values.values()) for values in arms])'),
    ],
    'configs/_base_/default_runtime.py': [
        ('decay: level_embed decays', 'level_embed=no_decay, ', ''),
        ('decay: batch norms decay', 'norm_decay_mult=0.0,', ''),
        ('decay: biases decay', ', bias=no_decay', ''),
        ('decay: gammas do not decay', 'bias=no_decay)', 'bias=no_decay, gamma=no_decay)'),
    ],
    'configs/_base_/schedules/deit_300e.py': [
        ('decay: class token decays', 'cls_token=dict(decay_mult=0.0), ', ''),
        ('decay: distillation token decays', ', dist_token=dict(decay_mult=0.0)', ''),
    ],
    'configs/_base_/schedules/sgd_160k.py': [
        ('decay: Segmenter decays', 'weight_decay=0.0', 'weight_decay=0.05'),
    ],
    'configs/_base_/models/segmenter.py': [
        ('Segmenter: one layer in the mask transformer', 'num_layers=2', 'num_layers=1'),
    ],
}  # fmt: skip


class WrongFormula(NamedTuple):
    """A formula's name, its file, and pairs of the text there and what replaces it."""

    name: str
    file: str
    texts: tuple[str, ...]

    def put_into(self, text: str) -> str:
        """Return the file's text with the wrong formula; raises ValueError unless each text is there exactly once."""
        for old, new in zip(self.texts[::2], self.texts[1::2], strict=True):
            if text.count(old) != 1:
                raise ValueError(f'{self.name}: {text.count(old)} times in {self.file} instead of once: {old!r}')
            text = text.replace(old, new)
        return text


ENTRIES = [entry for by_file in (BY_FILE, wrong_figures.BY_FILE) for entry in by_file.items()]
FORMULAS = [WrongFormula(name, file, tuple(texts)) for file, found in ENTRIES for name, *texts in found]


def tests_of(file: str) -> tuple[str, ...]:
    """Return the tests of a file: its own, else those of the innermost folder that has some, else ``TESTS``."""
    fitting = [place for place in OWN_TESTS if file == place or (place.endswith('/') and file.startswith(place))]
    return OWN_TESTS[max(fitting, key=len)] if fitting else TESTS


def run_all(chosen: list[WrongFormula], temp: str) -> list[str]:
    """Run the tests for each formula and print what comes of it; return the names of those that are not killed."""
    begin, waiting, started, folders, left = time.monotonic(), list(chosen), {}, {}, []
    for done in range(1, len(chosen) + 1):
        while waiting and len(folders) < AT_ONCE:
            formula, folder = waiting.pop(0), copy_package(temp)
            path = folder / formula.file
            path.write_text(formula.put_into(path.read_text()))
            child = start(folder, *tests_of(formula.file))
            started[child], folders[child] = formula, folder
        child, status, text = wait(folders)
        name = started.pop(child).name
        if status != 1:
            left.append(name)
        result = {0: 'SURVIVED', 1: 'killed'}.get(status, f'NO RESULT (status {status})')
        minutes = (time.monotonic() - begin) / done * (len(chosen) - done) / 60
        print(f'[{done}/{len(chosen)}, {minutes:.1f} min left] {result}: {name} | {text}', flush=True)
    return left


def main(name_part: str = '') -> int:
    chosen = [formula for formula in FORMULAS if name_part in formula.name]
    for formula in chosen:
        formula.put_into((ROOT / formula.file).read_text())
    import_libraries()
    with tempfile.TemporaryDirectory(prefix='wrong-formulas-') as temp:
        for tests in {tests_of(formula.file) for formula in chosen}:
            folder = copy_package(temp)
            _, status, text = wait({start(folder, *tests): folder})
            if status:
                sys.exit(f'the tests fail without a wrong formula (status {status}): {text}')
        left = run_all(chosen, temp)
    print(f'{len(chosen) - len(left)} of {len(chosen)} killed', *left, sep='\n  ')
    return int(bool(left) or not chosen)


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
