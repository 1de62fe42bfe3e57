"""The graphs of a beam search, traced by ``torch.export`` through the models' own layers.

They are what is compiled (:mod:`fairseq_depthwise.serving.compiled_graphs`) and exported. All sizes are dynamic:
sentences, hypotheses, source tokens, and the capacity of the cache.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule

from fairseq_compat import UserError
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell
from fairseq_depthwise.models.linearized.model import LinearizedTransformer
from fairseq_depthwise.modules.decoding.graph_search import Graphs, SearchState
from fairseq_depthwise.modules.decoding.search_graphs import FREE, EncoderGraph, StepGraph
from fairseq_depthwise.serving.formats import FORMATS
from fairseq_depthwise.serving.standalone.compile_program import quick_tracing

#: Operations that look at types only.
_LOOKS = ("aten.promote_types.default", "aten._assert_tensor_metadata.default")

#: How far a probability may be from the model's own.
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2}

#: The names of the graphs, in order.
GRAPHS = ("encoder", "decoder_step")

#: Sentences of a batch, and capacity, at most; torch wants numbers.
_MOST_SENTENCES, _MOST_CAPACITY = 2**16, 2**16

#: Where tracing notes which lines of which files an operation came from; files elsewhere say nothing to a reader.
_NOTES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")

#: Sentences and beams that a step is traced with, few as where the fastest products are worth a search. None equals
#: another size, nor 1, which torch takes for constants.
_SENTENCES, _BEAMS = 2, 3


@dataclass(frozen=True)
class TracedGraphs:
    """The programs of one model, or of several whose probabilities are averaged."""

    encoder: ExportedProgram
    step: ExportedProgram


class CallableGraphs:
    """Functions as :class:`~fairseq_depthwise.modules.decoding.graph_search.Graphs`."""

    def __init__(self, encode: Any, step: Any) -> None:
        self.encode, self.step = encode, step


def refuse_unless_ours(path: str, model: type | object, architecture: str = "") -> None:
    """Raise :class:`UserError` where a model, or models of its class, cannot be traced, with the reason."""
    family = model if isinstance(model, type) else type(model)
    if issubclass(family, LinearizedTransformer):
        raise UserError(
            f"{path} has linear layers in the places of layers and is for analysis only; use the model that it was "
            "made of"
        )
    if not issubclass(family, StackModel):
        raise UserError(
            f"{path} holds fairseq's own architecture {architecture or family.__name__}, whose decoder keeps its state "
            "in dictionaries and looks at values to decide what to compute, which no trace can follow; models of this "
            "plugin can be traced"
        )


@torch.no_grad()
def trace(models: Sequence[StackModel], *, in_place: bool) -> TracedGraphs:
    """Trace models on the CPU in evaluation mode, after fairseq's ``prepare_for_inference_``, with one pair of
    dictionaries.

    ``in_place`` lets the step write into the tensors that it is given.
    """
    for model in models:
        longest = model.decoder.max_positions()
        model.decoder.embedding.reach(longest)
        for module in model.modules():
            if isinstance(module, DepthwiseLSTMCell):
                module.kernel = "eager"  # the equations themselves; whoever runs the programs may compile them
    longest_source = min(model.encoder.max_positions() for model in models)
    sentences, beams = Dim("sentences", min=1, max=_MOST_SENTENCES), Dim("beams", min=1, max=1024)
    source, capacity = Dim("source", min=1, max=longest_source), Dim("capacity", min=2, max=_MOST_CAPACITY)
    hypotheses, own = {0: sentences, 1: beams}, {0: sentences, 2: capacity, 3: beams}
    cross = {0: sentences, 2: source}
    layers = sum(len(model.decoder.layers) for model in models)
    step_sizes = (
        *3 * [hypotheses], {**hypotheses, 2: capacity}, None, None, None, {0: sentences, 1: source},
        layers * (own, own, cross, cross),
    )  # fmt: skip
    tokens = torch.full((_SENTENCES, min(13, longest_source)), models[0].encoder.dictionary.eos())
    encoder = EncoderGraph(models).eval()
    arguments = step_arguments(SearchState.first(encoder(tokens)[0], encoder(tokens)[1:], _BEAMS), models[0])
    return TracedGraphs(
        _traced(encoder, (tokens,), ({0: sentences, 1: source},)),
        _traced(StepGraph(models, in_place=in_place).eval(), arguments, step_sizes),
    )


def step_arguments(state: SearchState, model: StackModel) -> tuple[Tensor, ...]:
    """Return the arguments of a first step in which every hypothesis counts."""
    sentences, beams, _ = state.ancestors.shape
    tokens = torch.full((sentences, beams), model.decoder.dictionary.eos())
    origins, totals = torch.arange(beams).expand(sentences, beams).contiguous(), torch.zeros(sentences, beams)
    scalars = (torch.tensor([number]) for number in (0, FREE, 0))
    return (tokens, origins, totals, state.ancestors, *scalars, state.padding, *state.layers)


def _traced(module: nn.Module, arguments: tuple[Tensor, ...], sizes: tuple[Any, ...]) -> ExportedProgram:
    with quick_tracing():
        # Not strict: Python runs as it is, and only what torch computes is recorded.
        program = torch.export.export(module, arguments, dynamic_shapes=sizes, strict=False)
    for part in program.graph_module.modules():
        if isinstance(part, GraphModule):
            for node in part.graph.nodes:
                for note in _NOTES:
                    node.meta.pop(note, None)
    # PyTorch 2.9 and newer check what they have noted of sizes before a program runs, such as that there are more rows
    # than sentences, though nothing depends on it.
    program._guards_code = []
    _simplify(program)
    _drop_unused(program)
    return program


def _simplify(program: ExportedProgram) -> None:
    """Leave out what computes nothing: looks at types, and conversions to the type that a tensor has."""
    aten, graph = torch.ops.aten, program.graph
    for node in reversed(graph.nodes):
        if node.target is aten.to.dtype:
            tensor, dtype = node.args[:2]
            if tensor.meta["val"].dtype != dtype or any(user.op == "output" for user in node.users):
                node.target, node.args, node.kwargs = aten._to_copy.default, (tensor,), {"dtype": dtype}
                continue
            node.replace_all_uses_with(tensor)
        elif str(node.target) not in _LOOKS:
            continue
        graph.erase_node(node)


def _drop_unused(program: ExportedProgram) -> None:
    """Leave out weights that nothing reads: those of linear layers that are computed together, from a joined copy."""
    unused = {node.name for node in program.graph.nodes if node.op == "placeholder" and not node.users}
    specs = []
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and spec.arg.name in unused:
            program.graph.erase_node(next(node for node in program.graph.nodes if node.name == spec.arg.name))
            program.state_dict.pop(spec.target, None)
            program.constants.pop(spec.target, None)
        else:
            specs.append(spec)
    program.graph_signature.input_specs = specs
    program.graph_module.recompile()


def graph_files(models: Sequence[StackModel], ending: str) -> dict[str, Any]:
    """Return files of the graphs and the tensors that go in and out, in order; sizes with a name may be any."""
    dtype = str(models[0].encoder.embedding.tokens.weight.dtype).removeprefix("torch.")
    attentions: list[Any] = [layer.cross_attention for model in models for layer in model.decoder.layers]
    hypotheses = ("sentences", "beams")
    padding = _tensor("padding", "bool", "sentences", "source")
    cross, own, newest = [], [], []
    for number, attention in enumerate(attentions):
        for kind in ("keys", "values"):
            around = ("sentences", attention.heads, attention.head_dim)
            cross.append(_tensor(f"cross_{kind}_{number}", dtype, *around[:2], "source", around[2]))
            own.append(_tensor(f"own_{kind}_{number}", dtype, *around[:2], "capacity", "beams", around[2]))
            newest.append(_tensor(f"newest_{kind}_{number}", dtype, *around[:2], "beams", around[2]))
    layers = [
        tensor
        for number in range(len(attentions))
        for tensor in (*own[2 * number : 2 * number + 2], *cross[2 * number : 2 * number + 2])
    ]
    ancestors = _tensor("ancestors", "int64", *hypotheses, "capacity")
    integers = [_tensor(name, "int64", 1) for name in ("newest", "forced", "shortest")]
    return {
        "encoder": {
            "file": f"encoder{ending}",
            "inputs": [_tensor("source_tokens", "int64", "sentences", "source")],
            "outputs": [padding, *cross],
        },
        "decoder_step": {
            "file": f"decoder_step{ending}",
            "inputs": [
                _tensor("tokens", "int64", *hypotheses),
                _tensor("origins", "int64", *hypotheses),
                _tensor("totals", "float32", *hypotheses),
                ancestors, *integers, padding, *layers,
            ],
            "outputs": [
                _tensor("best", "float32", "sentences", "2 * beams"),
                _tensor("numbers", "int64", "sentences", "2 * beams"),
                {**ancestors, "name": "ancestors_after"}, *newest,
            ],
        },
    }  # fmt: skip


def _tensor(name: str, dtype: str, *shape: int | str) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


def write_graphs(
    kind: str, graphs: TracedGraphs, models: Sequence[StackModel], path: str, folder: str, *, int8: bool = False
) -> dict[str, Any]:
    """Write both graphs in a format into a folder, and compare what is loaded from there with the models.

    Return what :func:`graph_files` does. With ``int8`` matrix products compute in int8.
    """
    form = FORMATS[kind].imported()
    functions = graph_files(models, FORMATS[kind].ending)
    files = [os.path.join(folder, about["file"]) for about in functions.values()]
    for program, file, about in zip((graphs.encoder, graphs.step), files, functions.values(), strict=True):
        form.write(program, file, about)
    require_equal(form.load(files), models, path)
    if int8:
        for file in files:
            form.quantize(file)
        # How far int8 may be from float32 is the user's to say; but it has to run, and to give probabilities.
        require_equal(form.load(files), models, path, tolerance=1.0)
    return functions


@torch.no_grad()
def require_equal(graphs: Graphs, models: Sequence[StackModel], path: str, tolerance: float | None = None) -> None:
    """Compare some steps with the models' own, for one hypothesis of one sentence and for several.

    A probability that differs by more than ``tolerance``, or what the type allows, is a UserError.
    """
    first = models[0]
    if tolerance is None:
        tolerance = _TOLERANCE[first.encoder.embedding.tokens.weight.dtype]
    pad, eos = first.encoder.dictionary.pad(), first.encoder.dictionary.eos()
    word = min(len(first.encoder.dictionary), len(first.decoder.dictionary)) - 1  # if there is one
    length = min(3, *(model.encoder.max_positions() for model in models))
    longest = min(3, *(model.decoder.max_positions() for model in models))
    sentences = [[word] * (length - 1) + [eos], [pad] * (length - 1) + [eos]]
    for source, beams in ((torch.tensor(sentences[:1]), 1), (torch.tensor(sentences), 2)):
        target = torch.tensor([eos, word, eos])[:longest].expand(len(source) * beams, -1)
        expected = [_best_of_models(models, source, target[:, : step + 1], beams) for step in range(longest)]
        for found, wanted in zip(_best_of_graphs(graphs, models, source, target, beams), expected, strict=True):
            difference = float((found.exp() - wanted.exp()).abs().max())
            if not difference <= tolerance:
                raise UserError(f"{path}: probabilities of the graphs differ from the model's by {difference:.2g}")


def _best_of_graphs(
    graphs: Graphs, models: Sequence[StackModel], source: Tensor, target: Tensor, beams: int
) -> list[Tensor]:
    """Return the best log-probabilities (B x 2k) after each token of ``target`` (N x T)."""
    padding, *cross = graphs.encode(source)
    state = SearchState.first(padding, cross, beams)
    found = []
    for step, tokens in enumerate(target.unbind(1)):
        _, origins, totals, _, _, forced, shortest, *_ = step_arguments(state, models[0])
        best, _, state.ancestors, *own = graphs.step(
            tokens.view(-1, beams).contiguous(), origins, totals, state.ancestors, torch.tensor([step]), forced,
            shortest, state.padding, *state.layers,
        )  # fmt: skip
        state.write(step, own)
        found.append(best)
    return found


def _best_of_models(models: Sequence[StackModel], source: Tensor, target: Tensor, beams: int) -> Tensor:
    """Return the same after all of ``target`` (N x T), as the models have it for a whole sentence."""
    found = []
    for model in models:
        encoded = model.encoder.reorder_encoder_out(
            model.encoder(source), torch.arange(len(source)).repeat_interleave(beams)
        )
        found.append(model.get_normalized_probs(model.decoder(target, encoded), log_probs=True)[:, -1].float())
    log_probs = torch.logsumexp(torch.stack(found), dim=0) - torch.tensor(len(found)).log()
    log_probs[:, models[0].decoder.dictionary.pad()] = -torch.inf
    return log_probs.view(len(source), -1).topk(2 * beams).values
