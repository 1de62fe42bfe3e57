"""Whether every family computes on a device, in every precision, what it computes on a CPU in float32, and how fast."""

from __future__ import annotations

import copy
import multiprocessing
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor, nn

from fairseq_compat.errors import first_line
from fairseq_depthwise.checkpoints.sizes import build_with_words, family_of
from fairseq_depthwise.models.base.vocabulary import placeholder_dictionary
from fairseq_depthwise.models.depthwise_lstm.kernels import choice
from fairseq_depthwise.serving.beam_search import BeamOptions, BeamSearch

#: Name of a row -> its architecture and options; the first is what the others' times are compared with.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": ("transformer", {}),
    "depth-wise": ("depthwise_lstm_transformer", {}),
    "depth-wise, eager": ("depthwise_lstm_transformer", {"depthwise_kernel": "eager"}),
    "sdt": ("sdt_transformer", {}),
    "mute, 4 units": ("mute_transformer", {}),
}


#: Seconds until a process counts as one that hangs.
_LONGEST = 600


@dataclass(frozen=True)
class Precision:
    """A type that models are cast to.

    Attributes:
        gradients: length of the gradients' difference from those on the CPU, in their length, at most.
        scores: largest difference of the log-probability of a token.
    """

    dtype: torch.dtype
    gradients: float
    scores: float


#: About three times what a CPU's bf16 and fp16 make, the most of all models; float32 may be computed in TF32.
PRECISIONS = {
    "fp32": Precision(torch.float32, 5e-3, 5e-3),
    "bf16": Precision(torch.bfloat16, 0.12, 0.2),
    "fp16": Precision(torch.float16, 0.04, 0.03),
}


@dataclass(frozen=True)
class Size:
    """Sizes of models and batches; the defaults are the papers' base model, and 4,096 tokens on each side."""

    width: int = 512
    layers: int = 6
    words: int = 32_000
    sentences: int = 128
    length: int = 32
    beam: int = 4
    seconds: float = 2.0


@dataclass
class Row:
    """What came out for a model in a precision; ``status`` is ok, differs or failed.

    Attributes:
        training: target tokens in a second, forward and backward.
        search: sentences in a second, beam search.
        gradients: difference as in :class:`Precision`; ``scores`` likewise.
    """

    model: str
    precision: str
    status: str = "failed"
    training: float | None = None
    search: float | None = None
    gradients: float | None = None
    scores: float | None = None
    remark: str = ""


def check_device(
    device: str, size: Size | None = None, *, precisions: tuple[str, ...] = tuple(PRECISIONS), isolated: bool = True
) -> Iterator[Row]:
    """Check all models in all precisions, and yield a row for each; none ends the others.

    Args:
        device: "cuda", or another that PyTorch knows.
        size: of models and batches.
        precisions: names in ``PRECISIONS``.
        isolated: give each a process of its own, since a GPU's error is one of all that the process does afterwards.
    """
    for precision in precisions:
        for model in MODELS:
            row = Row(model, precision)
            try:
                arguments = (row, device, size or Size())
                row = _in_a_process(_measure, *arguments) if isolated else _measure(*arguments)
            except Exception as error:  # of the driver, a kernel, the process: many kinds
                known = isinstance(error, ChildProcessError)
                row.status, row.remark = (
                    "failed",
                    str(error) if known else f"{type(error).__name__}: {first_line(error)}",
                )
            yield row


def _in_a_process(function: Callable[..., Row], *arguments: Any) -> Row:
    """Return what a function returns in a process of its own.

    Raises:
        ChildProcessError: the process died, or took too long and was killed.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(_LONGEST):
            raise ChildProcessError(f"no result after {_LONGEST} seconds")
        result = receiver.recv()
    except EOFError:
        process.join()
        raise ChildProcessError(f"its process ended with status {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    if isinstance(result, Row):
        return result
    raise ChildProcessError(result)


def _send(sender: Connection, function: Callable[..., Row], arguments: tuple[Any, ...]) -> None:
    try:
        sender.send(function(*arguments))
    except Exception as error:  # many cannot be sent
        sender.send(f"{type(error).__name__}: {first_line(error)}")


def _measure(row: Row, device_name: str, size: Size) -> Row:
    import fairseq_depthwise  # noqa: F401  # registers the models, in a process of its own

    device, precision = torch.device(device_name), PRECISIONS[row.precision]
    reference = _build(*MODELS[row.model], size)
    model = copy.deepcopy(reference).to(device, precision.dtype)
    few = _batch(size, min(4, size.sentences), torch.device("cpu"))
    row.gradients = _distance(_gradients(model, _moved(few, device)), _gradients(reference, few))
    many = _batch(size, size.sentences, device)
    rate = _rate(lambda: _gradients(model.train(), many), device, size.seconds)
    row.training = rate * size.sentences * size.length
    model.zero_grad()
    search = _search(model, size, device)
    row.scores = max(_score_differences(search, reference.eval(), few))
    row.search = _rate(lambda: search.hypotheses(many), device, size.seconds) * size.sentences
    # Not a number is no number below the limit.
    exact = row.gradients <= precision.gradients and row.scores <= precision.scores
    row.status = "ok" if exact else "differs"
    problems = {problem for problem in choice.problems.values() if problem is not None}
    row.remark = "; ".join(f"computed with eager: {problem}" for problem in sorted(problems))
    return row


def _build(arch: str, options: dict[str, Any], size: Size) -> nn.Module:
    """Return a model on the CPU with random parameters, the same in every process."""
    torch.manual_seed(1)
    sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in _sides(size).items()}
    given = Namespace(**sizes, share_all_embeddings=True, dropout=0.1, **options)
    given.depthwise_hidden_dim, given.encoder_block_size = 4 * size.width, size.layers
    ARCH_CONFIG_REGISTRY[arch](given)
    family = family_of(arch)
    assert family is not None
    model: nn.Module = build_with_words(family, vars(given), size.words, size.words)
    return model.eval()


def _sides(size: Size) -> dict[str, int]:
    heads = max(1, size.width // 64)
    return {"embed_dim": size.width, "layers": size.layers, "attention_heads": heads, "ffn_embed_dim": 4 * size.width}


def _batch(size: Size, sentences: int, device: torch.device) -> dict[str, Any]:
    """Return random sentences of one length, but for one that is half as long."""
    generator = torch.Generator().manual_seed(2)
    dictionary = placeholder_dictionary(size.words)
    source, target = torch.randint(4, size.words, (2, sentences, size.length), generator=generator)
    source[:, -1] = target[:, -1] = dictionary.eos()
    source[0, : size.length // 2] = dictionary.pad()
    previous = target.roll(1, dims=1)
    lengths = source.ne(dictionary.pad()).sum(dim=1)
    given = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": previous}
    return _moved({"net_input": given, "target": target}, device)


def _moved(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    inputs = {name: tensor.to(device) for name, tensor in batch["net_input"].items()}
    return {"net_input": inputs, "target": batch["target"].to(device)}


def _gradients(model: nn.Module, batch: dict[str, Any]) -> list[Tensor]:
    """Return the gradients of the loss, times a power of two that spares fp16 numbers too small for it."""
    model.zero_grad()
    scores = model(**batch["net_input"])[0]
    loss = F.cross_entropy(scores.float().flatten(0, 1), batch["target"].flatten())
    (loss * 2**10).backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def _distance(actual: list[Tensor], expected: list[Tensor]) -> float:
    pairs = [(one.double().cpu(), other.double()) for one, other in zip(actual, expected, strict=True)]
    difference = sum(float((one - other).square().sum()) for one, other in pairs)
    return float((difference / sum(float(other.square().sum()) for _, other in pairs)) ** 0.5)


def _search(model: nn.Module, size: Size, device: torch.device) -> BeamSearch:
    dictionary = placeholder_dictionary(size.words)
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    options = BeamOptions(beam=size.beam, max_length=size.length)
    return BeamSearch(task, [copy.deepcopy(model).eval()], options, device)


def _score_differences(search: BeamSearch, reference: Any, batch: dict[str, Any]) -> Iterator[float]:
    """Yield how far the scores of the tokens found are from those that the model has on the CPU, for each sentence."""
    found = [hypotheses[0] for hypotheses in search.hypotheses(batch)]
    for number, hypothesis in enumerate(found):
        tokens = hypothesis["tokens"].cpu()
        previous = torch.cat([tokens[-1:], tokens[:-1]])[None]
        inputs = {name: batch["net_input"][name][number : number + 1] for name in ("src_tokens", "src_lengths")}
        with torch.no_grad():
            output = reference(**inputs, prev_output_tokens=previous)
            expected = reference.get_normalized_probs(output, log_probs=True)[0].gather(1, tokens[:, None])[:, 0]
        difference = (hypothesis["positional_scores"].cpu().float() - expected).abs().max()
        yield float(difference)


def _rate(work: Callable[[], Any], device: torch.device, seconds: float) -> float:
    """Return how often in a second something is done, by the median of the times in so many seconds, at least 3."""

    def timed() -> float:
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    timed(), timed()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        times.append(timed())
    return 1 / median(times)
