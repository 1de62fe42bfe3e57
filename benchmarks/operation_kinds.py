"""Where the time of a profiled training step went, by kind of operation.

An operation's own time, without that of the operations within it, counts for the first of these that holds: the part of
the trainer that it runs in (optimizer, gradients), the part of the model whose range it runs in (loss, dropout), its
name. Backward passes are told by PyTorch's names for them, so dropout's, a product, counts as element-wise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.profiler import record_function

OPTIMIZER, GRADIENTS, LOSS, DROPOUT = "optimizer", "gradients: zeros, scale, norm", "softmax and loss", "dropout"
FORWARD, BACKWARD = "linear layers, forward", "linear layers, backward"
BATCHED, NORM, ELEMENTWISE = "attention, maps of units", "layer norms", "element-wise"
COPIES, EMBEDDING, REST = "copies, casts, zeros", "embeddings", "rest: Python, the profiler, data"

#: In the order of the table.
KINDS = (FORWARD, BACKWARD, BATCHED, NORM, DROPOUT, ELEMENTWISE, COPIES, EMBEDDING, LOSS, GRADIENTS, OPTIMIZER, REST)

#: Ranges of fairseq's trainer, of this file, and of autograd -> kind.
_RANGES = {
    "optimizer": OPTIMIZER,
    "multiply-grads": GRADIENTS,
    "clip-grads": GRADIENTS,
    "reduce-grads": GRADIENTS,
    "zero_grad": GRADIENTS,
    LOSS: LOSS,
    "LogSoftmaxBackward0": LOSS,
    "_LabelSmoothedLossBackward": LOSS,
    DROPOUT: DROPOUT,
    "aten::dropout": DROPOUT,
}

#: Pieces of operations' names -> kind; the first that is found counts.
_NAMES = (
    (("mm", "matmul", "linear", "mkldnn"), FORWARD),
    (("scaled_dot_product", "_softmax"), BATCHED),
    (("layer_norm",), NORM),
    (("embedding", "index_select", "index_add"), EMBEDDING),
    (("copy", "clone", "contiguous", "cat", "fill", "zero", "empty", "to", "stack"), COPIES),
)


@contextmanager
def marked(model: nn.Module, criterion: Any) -> Iterator[None]:
    """Within, calls of dropout modules and the criterion's ``compute_loss`` are ranges that :func:`kind_of` knows."""
    ranges: list[Any] = []

    def enter(*_: Any) -> None:
        ranges.append(record_function(DROPOUT))
        ranges[-1].__enter__()

    def leave(*_: Any) -> None:
        ranges.pop().__exit__(None, None, None)

    handles = []
    for module in model.modules():
        if type(module).__name__ in ("Dropout", "FairseqDropout"):
            handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    compute: Callable[..., Any] = criterion.compute_loss

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        with record_function(LOSS):
            return compute(*args, **kwargs)

    criterion.compute_loss = compute_loss
    try:
        yield
    finally:
        del criterion.compute_loss
        for handle in handles:
            handle.remove()


def kind_of(event: Any) -> str:
    """The kind of one of ``torch.profiler``'s events."""
    names = []
    above = event
    while above is not None:
        names.append(above.name.removeprefix("autograd::engine::evaluate_function: "))
        above = above.cpu_parent
    for name in reversed(names):
        if name in _RANGES:
            return _RANGES[name]
    own = names[0].removeprefix("aten::")
    if not event.name.startswith("aten::"):
        return REST
    if own.startswith(("bmm", "baddbmm")):
        return BATCHED
    kind = next((kind for pieces, kind in _NAMES if any(piece in own for piece in pieces)), ELEMENTWISE)
    return BACKWARD if kind == FORWARD and "backward" in names else kind


def seconds_of_kinds(events: Iterable[Any], step: str) -> dict[str, float]:
    """Seconds of each kind, for events within ranges called ``step``, whose whole time is what is shared out."""
    found = dict.fromkeys(KINDS, 0.0)
    whole = 0.0
    for event in events:
        if event.name == step:
            whole += event.cpu_time_total / 1e6
        else:
            found[kind_of(event)] += event.self_cpu_time_total / 1e6
    found[REST] = 0.0
    found[REST] = whole - sum(found.values())
    return found
