"""Reads the weights out of an ONNX file, so that a known model can be computed without a runtime.

Owns as much of the format as that takes: messages of fields, tensors, and which matrix is
multiplied before which bias is added. Knows no model.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]
Span = tuple[int, int]

# Numbers of fields in the messages of the format.
MODEL_GRAPH = 7
GRAPH_NODE, GRAPH_INITIALIZER = 1, 5
NODE_INPUT, NODE_OUTPUT, NODE_KIND = 1, 2, 4
TENSOR_DIMENSION, TENSOR_TYPE, TENSOR_NAME, TENSOR_BYTES = 1, 2, 8, 9

FLOAT, INT8 = 1, 3
BYTES_OF_WIRE_TYPE = {1: 8, 5: 4}


def read_weights(path: Path) -> Weights:
    """Tensors by name; a matrix is named as the bias added to its product, `weight` for `bias`."""
    data = path.read_bytes()
    graph = next(span for number, span in fields(data, (0, len(data))) if number == MODEL_GRAPH)
    tensors: dict[str, NDArray[Any]] = {}
    nodes = []
    for number, span in fields(data, span_of(graph)):
        if number == GRAPH_INITIALIZER:
            name, tensor = read_tensor(data, span_of(span))
            tensors[name] = tensor
        elif number == GRAPH_NODE:
            nodes.append(read_node(data, span_of(span)))
    weights: Weights = {name: each for name, each in tensors.items() if each.dtype == np.float32}
    for name in [name for name in tensors if name.endswith("_q")]:
        bare = name.removesuffix("_q")
        weights[bare] = tensors[name].astype(np.float32) * tensors[f"{bare}_scale"]
    # From the name of a product in the graph to its matrix.
    factors: dict[str, NDArray[np.float32]] = {}
    for kind, inputs, output in nodes:
        if kind == "MatMul" and inputs[1] in weights:
            factors[output] = weights.pop(inputs[1])
        elif kind == "Add":
            for product, bias in (inputs, inputs[::-1]):
                if product in factors and bias.endswith(".bias"):
                    weights[bias.removesuffix("bias") + "weight"] = factors[product]
    return weights


def read_node(data: bytes, where: Span) -> tuple[str, list[str], str]:
    """What a node does, the names it takes, and the name of its first result."""
    found: dict[int, list[str]] = {NODE_KIND: [], NODE_INPUT: [], NODE_OUTPUT: []}
    for number, span in fields(data, where):
        if number in found:
            start, end = span_of(span)
            found[number].append(data[start:end].decode())
    return found[NODE_KIND][0], found[NODE_INPUT], found[NODE_OUTPUT][0]


def read_tensor(data: bytes, where: Span) -> tuple[str, NDArray[Any]]:
    """Name and numbers of a tensor; empty if it is of a type that no weights have."""
    shape = []
    kind, name, content = 0, "", b""
    for number, value in fields(data, where):
        if number == TENSOR_DIMENSION:
            shape.append(number_of(value))
        elif number == TENSOR_TYPE:
            kind = number_of(value)
        elif number == TENSOR_NAME:
            start, end = span_of(value)
            name = data[start:end].decode()
        elif number == TENSOR_BYTES:
            start, end = span_of(value)
            content = data[start:end]
    types: dict[int, type[np.generic]] = {FLOAT: np.float32, INT8: np.int8}
    if kind not in types:
        return name, np.empty(0, dtype=np.int8)
    return name, np.frombuffer(content, dtype=types[kind]).reshape(shape)


def fields(data: bytes, where: Span) -> Iterator[tuple[int, int | Span]]:
    """The fields of a message: number, and value or the place of a value of some length."""
    at, end = where
    while at < end:
        key, at = varint(data, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, at = varint(data, at)
            yield number, value
            continue
        length = BYTES_OF_WIRE_TYPE.get(wire_type)
        if length is None:
            length, at = varint(data, at)
        yield number, (at, at + length)
        at += length


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits per byte, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def span_of(value: int | Span) -> Span:
    """The value of a field that has a length."""
    if isinstance(value, int):
        raise TypeError("the ONNX file has a number where a text, tensor or graph belongs")
    return value


def number_of(value: int | Span) -> int:
    """The value of a field that is a number."""
    if not isinstance(value, int):
        raise TypeError("the ONNX file has a text where a number belongs")
    return value
