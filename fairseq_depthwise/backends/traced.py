"""Traces the graphs of a beam search, to be compiled or exported, by ``torch.export`` through the models' own layers.

All sizes are dynamic: sentences, hypotheses, source tokens, and the capacity of the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from fairseq_compat import UserError
from fairseq_depthwise.backends.graph_search import Graphs, GraphSearch, SearchLimits, SearchState
from fairseq_depthwise.backends.graphs import FREE, EncoderGraph, StepGraph
from fairseq_depthwise.backends.standalone.compile_program import quick_tracing
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.models.linearized.model import LinearizedTransformer

_LOOKS = ("aten.promote_types.default", "aten._assert_tensor_metadata.default")  # operations that only look at types
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2}  # how far a probability may be from the model's own
GRAPHS = ("encoder", "decoder_step")  # the names of the graphs, in order

#: Where tracing notes the source line of an operation, which means nothing on other machines.
_NOTES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")

#: Sentences and beams with which a step is traced: few, because only for few rows is it worth trying products. Neither
#: equals another size, nor 1, which PyTorch would take for a constant.
_SENTENCES, _BEAMS = 2, 3


def refuse_unless_ours(path: str, family: type, architecture: str = "") -> None:
    """Raise :class:`UserError` with the reason if models of a class cannot be traced."""
    if issubclass(family, LinearizedTransformer):
        raise UserError(f"{path} is linearized, for analysis only; use the model that it was made of")
    if not issubclass(family, StackModel):
        name = architecture or family.__name__
        # Their decoders keep state in dictionaries, and decide by values what to compute.
        raise UserError(f"{path} holds fairseq's own architecture {name}, which cannot be traced as this plugin's can")


@torch.no_grad()
def trace(models: Sequence[StackModel], *, in_place: bool) -> Iterator[ExportedProgram]:
    """Yield encoder and step of models on the CPU in evaluation mode, after fairseq's ``prepare_for_inference_``.

    With ``in_place`` the step writes into the states that it is given.
    """
    for model in models:
        # Sinusoidal tables grow as a search reaches further positions, which a graph cannot do.
        model.decoder.embedding.reach(model.decoder.max_positions())
    longest = min(model.encoder.max_positions() for model in models)
    encoder_sizes, step_sizes = _dynamic_sizes(models, longest)

    # 13 tokens, a size unlike all others. Which tokens they are does not matter.
    source = torch.full((_SENTENCES, min(13, longest)), models[0].encoder.dictionary.eos())
    encoder = EncoderGraph(models).eval()
    # padding is B x S; cross has the keys and values (B x heads x S x head_dim) of each layer of each model.
    padding, *cross = encoder(source)
    yield _traced(encoder, (source,), encoder_sizes)

    # Arguments of a first step; tokens, origins and totals are B x k.
    state = SearchState.first(padding, cross, _BEAMS)
    tokens = torch.full((_SENTENCES, _BEAMS), models[0].decoder.dictionary.eos())
    origins = torch.arange(_BEAMS).expand(_SENTENCES, _BEAMS).contiguous()
    totals = torch.zeros(_SENTENCES, _BEAMS)
    # One-element tensors: plain numbers would become constants of the graph.
    newest, forced, shortest = (torch.tensor([number]) for number in (0, FREE, 0))
    arguments = (tokens, origins, totals, state.ancestors, newest, forced, shortest, padding)
    count = len(arguments)
    step_sizes = [*step_sizes[:count], tuple(step_sizes[count:])]  # the states of layers are one argument
    step = StepGraph(models, in_place=in_place).eval()
    yield _traced(step, (*arguments, *state.layers), step_sizes)


def _dynamic_sizes(models: Sequence[StackModel], longest: int) -> list[list[Any]]:
    """Return, for each graph and each of its inputs, the dynamic sizes."""
    # PyTorch wants limits even for these.
    sizes = {
        "sentences": Dim("sentences", min=1, max=2**16),
        "beams": Dim("beams", min=1, max=1024),
        "source": Dim("source", min=1, max=longest),
        "capacity": Dim("capacity", min=2, max=2**16),
    }
    sizes_of_graphs = []
    for graph in graph_tensors(models).values():
        sizes_of_tensors: list[Any] = []
        for tensor in graph["inputs"]:
            # Sizes that are numbers stay fixed.
            named = enumerate(tensor["shape"])
            sizes_of_tensors.append({place: sizes[name] for place, name in named if name in sizes})
        sizes_of_graphs.append(sizes_of_tensors)
    return sizes_of_graphs


def _traced(module: nn.Module, arguments: tuple[Tensor, ...], sizes: Sequence[Any]) -> ExportedProgram:
    with quick_tracing():
        # Not strict: Python just runs, and only PyTorch's operations are recorded.
        program = torch.export.export(module, arguments, dynamic_shapes=tuple(sizes), strict=False)
    for node in program.graph.nodes:
        for note in _NOTES:
            node.meta.pop(note, None)
    # Before running a program, PyTorch 2.9 and newer check what tracing noted about sizes, for example that there are
    # more rows than sentences, although nothing depends on it.
    program._guards_code = []
    _simplify(program)
    _drop_unused(program)
    return program


def _simplify(program: ExportedProgram) -> None:
    """Remove what computes nothing: checks of types, and conversions of tensors to the type that they have."""
    aten, graph = torch.ops.aten, program.graph
    for node in reversed(graph.nodes):
        if node.target is aten.to.dtype:
            tensor, dtype = node.args[:2]
            # The exporter of ONNX knows _to_copy alone. An output is copied even to its own type: otherwise it would be
            # another tensor under a second name.
            if tensor.meta["val"].dtype != dtype or any(user.op == "output" for user in node.users):
                node.target, node.args, node.kwargs = aten._to_copy.default, (tensor,), {"dtype": dtype}
                continue
            node.replace_all_uses_with(tensor)
        elif str(node.target) not in _LOOKS:
            continue
        graph.erase_node(node)


def _drop_unused(program: ExportedProgram) -> None:
    """Remove weights that nothing reads: those of linear layers that are computed together, from a joined copy."""
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


def graph_tensors(models: Sequence[StackModel]) -> dict[str, Any]:
    """Return the inputs and outputs of each graph, in order; sizes that are names are dynamic."""
    dtype = str(models[0].encoder.embedding.tokens.weight.dtype).removeprefix("torch.")
    # The order of StepGraph's states: model by model, layer by layer.
    attentions: list[Any] = []
    for model in models:
        attentions += [layer.cross_attention for layer in model.decoder.layers]
    hypotheses = ("sentences", "beams")
    padding = _tensor("padding", "bool", "sentences", "source")
    ancestors = _tensor("ancestors", "int64", *hypotheses, "capacity")
    scalars = [_tensor(name, "int64", 1) for name in ("newest", "forced", "shortest")]
    layers: list[dict[str, Any]] = []
    all_cross: list[dict[str, Any]] = []
    all_newest: list[dict[str, Any]] = []
    for number, attention in enumerate(attentions):
        own_states = _keys_and_values("own", number, dtype, attention, "capacity", "beams")
        cross_states = _keys_and_values("cross", number, dtype, attention, "source")
        layers += own_states + cross_states
        all_cross += cross_states
        all_newest += _keys_and_values("newest", number, dtype, attention, "beams")
    tokens = [_tensor(name, "int64", *hypotheses) for name in ("tokens", "origins")]
    candidates = ("sentences", "2 * beams")
    best = [_tensor("best", "float32", *candidates), _tensor("numbers", "int64", *candidates)]
    return {
        "encoder": {
            "inputs": [_tensor("source_tokens", "int64", "sentences", "source")],
            "outputs": [padding, *all_cross],
        },
        "decoder_step": {
            "inputs": [*tokens, _tensor("totals", "float32", *hypotheses), ancestors, *scalars, padding, *layers],
            "outputs": [*best, {**ancestors, "name": "ancestors_after"}, *all_newest],
        },
    }


def _keys_and_values(name: str, number: int, dtype: str, attention: Any, *sizes: str) -> list[dict[str, Any]]:
    """Return the keys and the values of a layer: sentences x heads x ``sizes`` x head_dim."""
    shape = ("sentences", attention.heads, *sizes, attention.head_dim)
    return [_tensor(f"{name}_{kind}_{number}", dtype, *shape) for kind in ("keys", "values")]


def _tensor(name: str, dtype: str, *shape: int | str) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


@torch.no_grad()
def require_equal(graphs: Graphs, models: Sequence[StackModel], path: str, *, tolerance: float | None = None) -> None:
    """Refuse graphs whose probabilities in a search differ from the models' by more than ``tolerance``.

    Its default depends on the type. Hypotheses for one sentence and for two are compared with the models' own forward
    pass over whole sentences.
    """
    source_dictionary, target_dictionary = models[0].encoder.dictionary, models[0].decoder.dictionary
    if tolerance is None:
        tolerance = _TOLERANCE[models[0].encoder.embedding.tokens.weight.dtype]
    pad, eos = source_dictionary.pad(), source_dictionary.eos()
    # Tiny models may take even fewer tokens.
    length = min(3, *(model.encoder.max_positions() for model in models))
    longest = min(3, *(model.decoder.max_positions() for model in models)) - 1
    last_word = len(source_dictionary) - 1
    # Two sentences, one of them padded on the left, as in fairseq.
    sentences = torch.tensor([[last_word] * (length - 1) + [eos], [pad] * (length - 1) + [eos]])
    search = GraphSearch(graphs, eos=eos, vocabulary=len(target_dictionary))
    # First a greedy search, whose every token must be the best one; then two beams for two sentences.
    for source, beams in ((sentences[:1], 1), (sentences, 2)):
        results = search(source, SearchLimits(beams, 1.0, longest, eos))
        for row, hypotheses in zip(source, results, strict=True):
            differences = []
            for hypothesis in hypotheses:
                tokens, probabilities = hypothesis["tokens"], hypothesis["positional_scores"].exp()
                of_vocabulary = _probabilities(models, row, tokens)
                expected = of_vocabulary.gather(1, tokens[:, None])[:, 0]
                if beams == 1:  # each token must be the best of those that may follow
                    of_vocabulary[:1, eos] = of_vocabulary[:, pad] = 0
                    expected[:-1] = of_vocabulary[:-1].amax(1)
                differences.append(float((expected - probabilities).abs().max()))
            # NaN is within no tolerance.
            if not differences or not all(difference <= tolerance for difference in differences):
                most = max(differences, default=1.0)
                raise UserError(f"{path}: probabilities of the graphs differ from the model's by {most:.2g}")


def _probabilities(models: Sequence[StackModel], source: Tensor, tokens: Tensor) -> Tensor:
    """Return the models' mean probability of each token of the vocabulary at each position (T x V).

    They are computed in one forward of the whole sentences ``source`` (S) and ``tokens`` (T).
    """
    eos = models[0].encoder.dictionary.eos()
    # The decoder's input starts with the end of sentence, as in fairseq's training.
    previous = torch.cat([torch.tensor([eos]), tokens[:-1]])[None]
    of_models = []
    for model in models:
        # 1 x T x V
        scores, _ = model.decoder(previous, model.encoder(source[None]))
        of_models.append(model.get_normalized_probs((scores, None), log_probs=False)[0])
    return torch.stack(of_models).float().mean(0)
