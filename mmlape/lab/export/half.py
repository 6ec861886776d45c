"""A graph of float32 in half precision, with casts where float16 is too small or too coarse.

In float16 are matrix products and convolutions, and what moves or adds their results. In float32
stay attention scores with their softmax, norms, sums, the last layer before an output or before
coordinates, and all that follows it: logits, boxes, places where features are sampled, and the
suppression of boxes. So no value depends on what a runtime does with a type that it may change.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

LARGEST = 65504.0
"""The largest number of float16."""
PRODUCTS = ('Conv', 'ConvTranspose', 'MatMul', 'Gemm', 'Einsum')
MOVES = (
    'Add', 'Sub', 'Mul', 'Div', 'Neg', 'Relu', 'Gelu', 'Erf', 'Sigmoid', 'Tanh', 'HardSwish', 'LeakyRelu',
    'Transpose', 'Reshape', 'Flatten', 'Squeeze', 'Unsqueeze', 'Concat', 'Slice', 'Split', 'Gather', 'Pad',
    'Expand', 'Tile', 'Identity', 'Where', 'MaxPool', 'AveragePool', 'Resize', 'DepthToSpace', 'SpaceToDepth',
)  # fmt: skip
"""In float16 if all that they read is; every other operator is in float32."""
EXACT = {
    'Softmax': (0,), 'Exp': (0,), 'TopK': (0,), 'ArgMax': (0,), 'NonMaxSuppression': (0, 1), 'RoiAlign': (1,),
    'Floor': (0,), 'Greater': (0, 1), 'Less': (0, 1), 'GreaterOrEqual': (0, 1), 'LessOrEqual': (0, 1),
}  # fmt: skip
"""Operators, and which of their inputs are computed in float32 from the last product on."""
FIRST_ONLY = ('Resize',)
"""Operators of whose inputs only the first has their precision."""


def halve(model: 'onnx.ModelProto', final: bool = True) -> None:
    """Convert a graph, in place; its inputs and outputs stay as they are.

    Args:
        model: Of float32, with the type of each value, and without functions or inner graphs.
        final: Whether its outputs are those of a complete model, whose last layer stays in float32.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    constants = constants_of(graph)
    floats = _floats(graph, constants)
    exact = exact_places(graph, final)
    halved: set[str] = set()  # values in float16
    nodes, casts = [], {}

    def converted(name: str, half: bool) -> str:
        """Return the name of a value in a precision, behind a cast if need be."""
        if name not in floats or (name in halved) == half:
            return name
        made = f'{name}::{"half" if half else "single"}'
        if made in casts:
            return made
        casts[made] = True
        if half and name in constants:
            value = constants[name].astype(np.float16)
            graph.initializer.append(numpy_helper.from_array(value, made))
        else:
            kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
            nodes.append(_node('Cast', [name], [made], to=kind))
        return made

    for place, node in enumerate(list(graph.node)):
        half = place not in exact and _may_be_half(node, floats, constants, halved)
        inputs = list(node.input)
        count = 1 if node.op_type in FIRST_ONLY else len(inputs)
        node.input[:] = [*(converted(name, half) for name in inputs[:count]), *inputs[count:]]
        nodes.append(node)
        if half:
            halved.update(name for name in node.output if name in floats)
    for output in graph.output:
        if output.name in halved:
            inner = f'{output.name}::half'
            _rename(nodes, output.name, inner)
            nodes.append(_node('Cast', [inner], [output.name], to=TensorProto.FLOAT))
            graph.value_info.append(helper.make_tensor_value_info(inner, TensorProto.FLOAT16, None))
    for value in graph.value_info:
        if value.name in halved:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input} | {one.name for one in graph.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def rounded(model: 'onnx.ModelProto') -> tuple['onnx.ModelProto', list[str]]:
    """Return a graph of float32 that rounds each value which another one has in float16.

    onnxruntime computes float16 on CPUs in float32, and leaves out roundings between; a GPU does
    not. The graph has one more output, ``magnitudes``, the largest absolute value of each before it
    is rounded.

    Args:
        model: Of `halve`.

    Returns:
        The graph, and the names of the values whose magnitudes it has.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            value = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    halves = {value.name for value in graph.value_info if value.type.tensor_type.elem_type == TensorProto.FLOAT16}
    nodes, names = [], []
    for node in list(graph.node):
        to_half = node.op_type == 'Cast' and node.attribute[0].i == TensorProto.FLOAT16
        outputs = [name for name in node.output if name in halves or to_half]
        nodes.append(node)
        for name in outputs:
            exact = f'{name}::exact'
            if to_half:
                node.attribute[0].i = TensorProto.FLOAT
            node.output[list(node.output).index(name)] = exact
            nodes.append(_node('Cast', [exact], [f'{name}::rounded'], to=TensorProto.FLOAT16))
            nodes.append(_node('Cast', [f'{name}::rounded'], [name], to=TensorProto.FLOAT))
            nodes.append(_node('Abs', [exact], [f'{name}::abs']))
            nodes.append(_node('ReduceMax', [f'{name}::abs'], [f'{name}::max'], keepdims=0))
            nodes.append(_node('Reshape', [f'{name}::max', '::one'], [f'{name}::row']))
            names.append(name)
    graph.initializer.append(numpy_helper.from_array(np.array([1]), '::one'))
    nodes.append(_node('Concat', [f'{name}::row' for name in names], ['magnitudes'], axis=0))
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    graph.output.append(helper.make_tensor_value_info('magnitudes', TensorProto.FLOAT, [len(names)]))
    return made, names


def _node(kind: str, inputs: list[str], outputs: list[str], **attributes) -> 'onnx.NodeProto':
    from onnx import helper

    return helper.make_node(kind, inputs, outputs, name=f'{kind} of {inputs[0]} to {outputs[0]}', **attributes)


def _rename(nodes: list['onnx.NodeProto'], old: str, new: str) -> None:
    for node in nodes:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]


def constants_of(graph: 'onnx.GraphProto') -> dict[str, np.ndarray]:
    """Return what is float32 and constant."""
    from onnx import TensorProto, numpy_helper

    found = {one.name: numpy_helper.to_array(one) for one in graph.initializer if one.data_type == TensorProto.FLOAT}
    for node in graph.node:
        if node.op_type == 'Constant':
            (given,) = node.attribute
            if given.name == 'value' and given.t.data_type == TensorProto.FLOAT:
                found[node.output[0]] = numpy_helper.to_array(given.t)
            elif given.name in ('value_float', 'value_floats'):
                value = given.f if given.name == 'value_float' else list(given.floats)
                found[node.output[0]] = np.asarray(value, np.float32)
    return found


def _floats(graph: 'onnx.GraphProto', constants: dict[str, np.ndarray]) -> set[str]:
    """Return the names of all values of float32."""
    from onnx import TensorProto

    values = (*graph.input, *graph.output, *graph.value_info)
    kind = {value.name: value.type.tensor_type.elem_type for value in values}
    return {name for name, one in kind.items() if one == TensorProto.FLOAT} | set(constants)


def exact_places(graph: 'onnx.GraphProto', final: bool) -> set[int]:
    """Return the places of the nodes that stay in float32: up to the last product before what is exact."""
    exact = [output.name for output in graph.output] if final else []
    exact += [name for node in graph.node for name in _read_exactly(node)]
    return places_before(graph, exact)


def places_before(graph: 'onnx.GraphProto', values: Iterable[str]) -> set[int]:
    """Return the places of the nodes that compute values, back to the last product before each."""
    made_by = {name: place for place, node in enumerate(graph.node) for name in node.output}
    pending = list(values)
    found: set[int] = set()
    while pending:
        place = made_by.get(pending.pop())
        if place is None or place in found:
            continue
        found.add(place)
        if graph.node[place].op_type not in PRODUCTS:
            pending += graph.node[place].input
    return found


def _read_exactly(node: 'onnx.NodeProto') -> Iterator[str]:
    from onnx import TensorProto

    places = EXACT.get(node.op_type, ())
    if node.op_type == 'Cast' and node.attribute[0].i in (TensorProto.INT64, TensorProto.INT32):
        places = (0,)
    yield from (node.input[place] for place in places if place < len(node.input))


def _may_be_half(node: 'onnx.NodeProto', floats: set[str], constants: dict[str, np.ndarray], halved: set[str]) -> bool:
    """Return whether a node that needs no float32 is one of float16, and its constants fit into that."""
    if not any(name in floats for name in node.output):
        return False
    read = [name for name in node.input if name in floats]
    if not all(_fits(constants[name]) for name in read if name in constants):
        return False
    if node.op_type in PRODUCTS:
        return True
    computed = [name for name in read if name not in constants]
    return node.op_type in MOVES and bool(computed) and all(name in halved for name in computed)


def _fits(value: np.ndarray) -> bool:
    """Return whether float16 has a constant: none that overflows, and no single number that vanishes."""
    if np.abs(value).max(initial=0) > LARGEST:
        return False
    return value.size != 1 or (value.astype(np.float16) != 0) == (value != 0)
