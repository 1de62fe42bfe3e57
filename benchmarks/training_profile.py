"""Where the time of a training step goes, by kind of operation, in stock fairseq and in each family.

Each family twice: with what the plugin replaces put back (criterion, optimizer), and as it is. Shares come from
PyTorch's profiler around ``Trainer.train_step``, whole updates are timed without it, both ways by turns. Writes the
record ``training_profile``.

    python benchmarks/training_profile.py
    python benchmarks/training_profile.py --size base --precisions bf16 --families depthwise
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench_rows import DEPTHWISE, MUTE, SDT, STOCK, Row, Size
from program import fairseq_options, integer, make_parser, names_of, run_program, tell, use_threads
from record import finish, setup_of
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from turns import take_turns, timed
from workloads import TYPES, Side, Training, corpus, dictionary_of, training_batches

import fairseq_depthwise  # noqa: F401  # registers the models

BEFORE = " before"

#: Families, with the options that they have here.
FAMILIES: dict[str, tuple[str, ...]] = {
    DEPTHWISE: (),
    SDT: ("--encoder-block-size", "3"),
    MUTE: ("--encoder-units", "4"),
}

#: Size -> widths, and layers of each stack.
SIZES = {"narrow": (Size(256, 1024, 4, 8192), 3), "base": (Size(512, 2048, 8, 32768), 6)}

#: fairseq's own in the place of what the plugin has.
FAIRSEQS = ("--criterion", "label_smoothed_cross_entropy", "--optimizer", "adam")

_STEP = "training step"


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = make_parser(__doc__)
    add, shown = parser.add_argument, "(default: %(default)s)"
    add("--size", choices=SIZES, default="narrow", help=f"of all models {shown}")
    add("--families", type=names_of(tuple(FAMILIES)), default=list(FAMILIES), metavar="LIST", help="default: all")
    add("--precisions", type=names_of(tuple(TYPES)), default=list(TYPES), metavar="LIST", help="default: fp32,bf16")
    add("--train-tokens", type=integer(1), default=1000, metavar="N", help=f"target tokens in a batch {shown}")
    add("--steps", type=integer(1), default=3, metavar="N", help=f"profiled steps {shown}")
    add("--rounds", type=integer(2), default=5, metavar="N", help=f"timed updates {shown}")
    add("--threads", type=integer(1), metavar="N", help="of PyTorch (default: its own choice)")
    add("--model-overrides", type=fairseq_options, default=(), metavar="OPTIONS", help="fairseq options for all models")
    return parser.parse_args(given)


def sides_of(options: argparse.Namespace) -> dict[str, Side]:
    """Return stock fairseq, and each family before and after."""
    size, layers = SIZES[options.size]

    def side(family: str, *further: str) -> Side:
        row = Row("", family, layers, decoder_layers=layers, extra=FAMILIES.get(family, ()))
        return Side(row.arch, (*row.options(size), *further, *options.model_overrides))

    sides = {STOCK: side(STOCK)}
    for family in options.families:
        sides |= {family + BEFORE: side(family, *FAIRSEQS), family: side(family, "--optimizer", "fused_adam")}
    return sides


def profiled(work: Training, batches: Sequence[Any], steps: int) -> dict[str, float]:
    """Return the seconds of each kind of operation in a step."""
    trainer = work.trainer
    with marked(trainer.model, trainer.criterion), profile(activities=[ProfilerActivity.CPU]) as profiler:
        for number in range(steps):
            with record_function(_STEP):
                work(batches[number % len(batches)])
    return {kind: seconds / steps for kind, seconds in seconds_of_kinds(profiler.events(), _STEP).items()}


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return for each precision and side the seconds of each kind, and of whole updates by turns."""
    dictionary = dictionary_of(SIZES[options.size][0].vocabulary)
    batches = training_batches(corpus(dictionary, max(600, options.train_tokens // 3)), options.train_tokens, 3)
    results = []
    for precision in options.precisions:
        for group in (STOCK, *options.families):
            names = [STOCK] if group == STOCK else [group + BEFORE, group]
            sides = sides_of(options)
            works = {name: Training(sides[name], dictionary, "cpu", precision) for name in names}
            turns = {name: timed(_on(batches, work)) for name, work in works.items()}
            seconds = take_turns(turns, rounds=options.rounds, warm_up=3)
            for name, work in works.items():
                kinds = profiled(work, batches, options.steps)
                results.append({"precision": precision, "side": name, "kinds": kinds, "updates": seconds[name]})
                tell(f"{precision} {name}: {statistics.median(seconds[name]):.3f} s an update")
            works.clear()
            turns.clear()
            gc.collect()  # fairseq's trainer is full of cycles, and the next models need the memory
    return results


def _on(batches: Sequence[Any], work: Training) -> Callable[[int], None]:
    return lambda number: work(batches[number % len(batches)])


# --- kinds of operations --------------------------------------------------------------------------------------------

# An operation's own time, without that of the operations within it, counts for the first of these that holds: the part
# of the trainer that it runs in (optimizer, gradients), the part of the model whose range it runs in (loss, dropout),
# its name. Backward passes are known by PyTorch's names for them, so dropout's, a product, counts as element-wise.
OPTIMIZER, GRADIENTS, LOSS, DROPOUT = "optimizer", "gradients: zeros, scale, norm", "softmax and loss", "dropout"
FORWARD, BACKWARD = "linear layers, forward", "linear layers, backward"
BATCHED, NORM, ELEMENTWISE = "attention, layers of units", "layer norms", "element-wise"
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

#: Pieces of operations' names -> kind; the first that occurs counts.
_NAMES = (
    (("mm", "matmul", "linear", "mkldnn"), FORWARD),
    (("scaled_dot_product", "_softmax"), BATCHED),
    (("layer_norm",), NORM),
    (("embedding", "index_select", "index_add"), EMBEDDING),
    (("copy", "clone", "contiguous", "cat", "fill", "zero", "empty", "to", "stack"), COPIES),
)


@contextmanager
def marked(model: nn.Module, criterion: Any) -> Iterator[None]:
    """Make ranges, which :func:`kind_of` knows, of calls of dropout modules and the criterion's ``compute_loss``."""
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
    """Return the kind of one of ``torch.profiler``'s events."""
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
    """Return the seconds of each kind for events within ranges called ``step``, whose whole time is shared out."""
    seconds = dict.fromkeys(KINDS, 0.0)
    whole = 0.0
    for event in events:
        if event.name == step:
            whole += event.cpu_time_total / 1e6
        else:
            seconds[kind_of(event)] += event.self_cpu_time_total / 1e6
    seconds[REST] = 0.0
    seconds[REST] = whole - sum(seconds.values())
    return seconds


# --- the program ----------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure and write the record."""
    use_threads(options.threads)
    setup = setup_of("training_profile", given, size=options.size, steps=options.steps, rounds=options.rounds)
    finish(options.records, "training_profile", {"setup": setup, "results": measure(options)})


def main(arguments: Sequence[str] | None = None) -> int:
    return run_program("training_profile", parse_options, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
