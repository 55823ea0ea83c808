"""Rewriting of an exported graph so that it runs faster: merged projections, and weights of int8."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

SCOPES = "pkg.torch.onnx.name_scopes"  # metadata of a node: the modules that it comes from
MICROSOFT = "com.microsoft"  # domain of the operators of onnxruntime
# Largest value of an int8 weight. Processors without VNNI add two products in 16 bits, which 7 bits never exceed.
LARGEST = 63


class Graph:
    """The nodes and weights of a model, to be changed and then written back with `save`."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
        self.weights = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
        self.sums = {
            node.input[0]: node
            for node in self.nodes
            if node.op_type == "Add" and self.weights.get(node.input[1], np.empty(0)).ndim == 1
        }

    def linear_layers(self) -> Iterator[Linear]:
        """Yield every product with a weight, and the bias that is added to it."""
        for node in self.nodes:
            if node.op_type == "MatMul" and self.weights.get(node.input[1], np.empty(0)).ndim == 2:
                yield Linear(node, self.sums.get(node.output[0]), self.weights[node.input[1]])

    def replace(self, layers: Sequence[Linear], made: Sequence[onnx.NodeProto]) -> None:
        """Replace layers by nodes, which take the place of the first."""
        old = {part.output[0] for layer in layers for part in (layer.product, layer.sum) if part is not None}
        at = next(i for i, node in enumerate(self.nodes) if node.output[0] in old)
        kept = [node for node in self.nodes[at:] if node.output[0] not in old]
        self.nodes[at:] = [*made, *kept]

    def save(self) -> None:
        """Write the nodes back, and the weights that they use."""
        graph = self.model.graph
        used = {name for node in self.nodes for name in node.input}
        for items, changed in (
            (graph.node, self.nodes),
            (
                graph.initializer,
                [
                    numpy_helper.from_array(value, name)
                    for name, value in self.weights.items()
                    if name in used
                ],
            ),
        ):
            del items[:]
            items.extend(changed)


class Linear(NamedTuple):
    """A linear layer: a product with a weight, and perhaps the sum with a bias."""

    product: onnx.NodeProto
    sum: onnx.NodeProto | None
    weight: NDArray[np.float32]  # (in, out)

    @property
    def source(self) -> str:
        """Name of the input."""
        return str(self.product.input[0])

    @property
    def output(self) -> str:
        """Name of the output."""
        return str((self.product if self.sum is None else self.sum).output[0])

    @property
    def modules(self) -> list[str]:
        """Names of the modules that it comes from, outermost first, itself last."""
        for item in self.product.metadata_props:
            if item.key == SCOPES:
                return [part.strip(" '\"") for part in item.value.strip("[]").split(",")][:-1]
        return []

    def is_in(self, names: Collection[str]) -> bool:
        """Return whether it is one of the named modules, or inside one."""
        return any(f"{module}.".startswith(f"{name}.") for module in self.modules for name in names)


def merge_projections(model: onnx.ModelProto) -> int:
    """Join the linear layers of a module with the same input, such as queries, keys and values; return the number of joints."""
    graph = Graph(model)
    groups: dict[tuple[str, ...], list[Linear]] = defaultdict(list)
    for layer in graph.linear_layers():
        groups[(layer.source, *layer.modules[-2:-1], str(layer.sum is None))].append(layer)
    several = [layers for layers in groups.values() if len(layers) > 1]
    for number, layers in enumerate(several):
        name = f"merged_{number}"
        graph.weights[f"{name}_weight"] = np.concatenate([layer.weight for layer in layers], axis=1)
        graph.weights[f"{name}_sizes"] = np.array([layer.weight.shape[1] for layer in layers], np.int64)
        product = helper.make_node("MatMul", [layers[0].source, f"{name}_weight"], [f"{name}_product"])
        product.metadata_props.extend(layers[0].product.metadata_props)
        made, joined = [product], f"{name}_product"
        sums = [layer.sum for layer in layers if layer.sum is not None]
        if sums:
            graph.weights[f"{name}_bias"] = np.concatenate([graph.weights[node.input[1]] for node in sums])
            made.append(helper.make_node("Add", [joined, f"{name}_bias"], [f"{name}_sum"]))
            joined = f"{name}_sum"
        outputs = [layer.output for layer in layers]
        made.append(helper.make_node("Split", [joined, f"{name}_sizes"], outputs, axis=-1))
        graph.replace(layers, made)
    graph.save()
    return len(several)


def quantize(model: onnx.ModelProto, skipped: Collection[str]) -> int:
    """Store the weights of linear layers as int8, with a scale per output, and return the number of layers.

    Inputs are quantized while the model runs. Embeddings keep their precision.

    Args:
        model: Exported model.
        skipped: Names of modules whose linear layers keep their precision, too.
    """
    graph = Graph(model)
    inputs: dict[str, list[str]] = {}  # of layers: values, scale and zero point as int8
    layers = [layer for layer in graph.linear_layers() if not layer.is_in(skipped)]
    for number, layer in enumerate(layers):
        name = f"int8_{number}"
        values, scales = to_int8(layer.weight)
        graph.weights |= {f"{name}_weight": values, f"{name}_scales": scales}
        graph.weights[f"{name}_zeros"] = np.zeros(len(scales), np.int8)
        made = []
        if layer.source not in inputs:
            inputs[layer.source] = [f"{name}_input", f"{name}_input_scale", f"{name}_input_zero"]
            made.append(helper.make_node("DynamicQuantizeLinear", [layer.source], inputs[layer.source]))
        data, scale, zero = inputs[layer.source]
        given = [data, f"{name}_weight", scale, f"{name}_scales", zero, f"{name}_zeros"]
        if layer.sum is not None:
            given.append(layer.sum.input[1])
        made.append(helper.make_node("MatMulIntegerToFloat", given, [layer.output], domain=MICROSOFT))
        graph.replace([layer], made)
    graph.save()
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return len(layers)


def to_int8(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return a weight `(in, out)` as int8 values and the scale of each output."""
    scales = np.maximum(np.abs(weight).max(axis=0) / LARGEST, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(weight / scales).astype(np.int8), scales
