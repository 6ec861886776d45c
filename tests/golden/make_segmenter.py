"""Golden data of Segmenter's public mask decoder (rstrudel/segmenter at 20d1bfa), for the recipes' head."""

from recording import Case, Weights, call, checkout, fill, image, write
from torch import Tensor

checkout()
from segm.model.decoder import MaskTransformer  # noqa: E402

CLASSES, ENCODER, DIMS, LAYERS = 5, 6, 8, 2
INPUTS = dict(square=image(0, 2, ENCODER, 3, 3), wide=image(1, 1, ENCODER, 2, 5))
NAMES = {  # the public part of a layer: ours
    'norm1': 'ln1',
    'norm2': 'ln2',
    'attn.qkv.': 'attn.attn.in_proj_',
    'attn.proj': 'attn.attn.out_proj',
    'mlp.fc1': 'ffn.layers.0.0',
    'mlp.fc2': 'ffn.layers.1',
}
MATRICES = {'proj_patch': 'patch_proj.weight', 'proj_classes': 'classes_proj.weight'}  # stored transposed


def our_name(name: str) -> str:
    """Return the name that a public parameter has in mmsegmentation's model."""
    if name in MATRICES:
        return f'decode_head.{MATRICES[name]}'
    name = name.replace('proj_dec', 'dec_proj').replace('blocks.', 'layers.')
    if name.startswith('layers.'):
        for public, ours in NAMES.items():
            name = name.replace(public, ours)
    return f'decode_head.{name}'


def decoder_case() -> Case:
    """Return the case of the decoder with the recipes' depth."""
    model = MaskTransformer(
        n_cls=CLASSES,
        patch_size=16,
        d_encoder=ENCODER,
        n_layers=LAYERS,
        n_heads=2,
        d_model=DIMS,
        d_ff=4 * DIMS,
        drop_path_rate=0.0,
        dropout=0.1,
    ).eval()
    base = model.state_dict()
    names = {name: our_name(name) for name in base}

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        public = {name: weights[ours].t() if name in MATRICES else weights[ours] for name, ours in names.items()}
        size = tuple(16 * side for side in x.shape[2:])
        return [call(model, public, x.flatten(2).transpose(1, 2), im_size=size)]

    kwargs = dict(in_channels=ENCODER, channels=DIMS, embed_dims=DIMS, num_heads=2, num_classes=CLASSES)
    weights = fill({names[name]: value for name, value in base.items()})
    return Case('mask-transformer', 'segmenter', kwargs, weights, run)


if __name__ == '__main__':
    write('segmenter', INPUTS, [decoder_case()])
