"""Claims of the papers beside what a sweep's record says of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from sweep_numbers import MARGIN, Difference, chances, difference, spread
from sweep_plan import Record

#: One-sided, in the bootstrap of each seed, for a difference that counts, or that is too small to count.
LEVEL = 0.025

#: Number of seeds -> Student's t for 95 %, one-sided, with one degree of freedom less.
STUDENT = {2: 6.314, 3: 2.920, 4: 2.353, 5: 2.132, 6: 2.015, 7: 1.943, 8: 1.895, 9: 1.860, 10: 1.833}


@dataclass(frozen=True)
class Claim:
    """What a paper says, and what it takes to look for it here.

    Attributes:
        text: the claim.
        published: the paper's numbers, BLEU unless it says otherwise; where they stand.
        system: of the protocol; "" where the protocol has none.
        baseline: of the protocol.
        as_good: whether it says that the system is as good, not better.
        elsewhere: where the protocol does not ask, why, and what else there is.
    """

    text: str
    published: str
    system: str = ""
    baseline: str = ""
    as_good: bool = False
    elsewhere: str = ""


#: By paper, in the order of README.md, and what was asked here besides.
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "Depth-wise LSTM": (
        Claim(
            "better than residual connections and feed-forward nets",
            "En-De 27.55 to 28.53, En-Fr 39.54 to 40.10 (Table 1)",
            "depthwise_lstm", "transformer",
        ),
        Claim("the same, against norms after the sub-layers, as in Table 1", "-", "depthwise_lstm",
              "transformer_post_norm"),
        Claim(
            "12 layers are as good as 24 of the Transformer",
            "En-De 29.26, 29.02; Cs-En 29.64, 29.73 (Table 6)",
            elsewhere="depth-wise systems have 4 layers here",
        ),
        Claim(
            "without gates much is lost",
            "En-De 28.53 to 23.24 (Table 2)",
            elsewhere="no system here is without gates",
        ),
        Claim(
            "its layers lose more when they are made linear, and the last one of the decoder most",
            "BLEU of decoder layer 6 -30 %, the Transformer's -4 % (first version, Tables 6, 7)",
            elsewhere="no checkpoints were kept; in [short trainings](analysis.md) the last layer of its decoder loses "
            "most, too",
        ),
    ),
    "Shallow to deep": (
        Claim("a deeper encoder is better", "6 to 12 layers 27.05 to 28.33 (Table 6)", "deep", "transformer_relative"),
        Claim("connected blocks are better than none", "30 layers 29.52 to 29.90 (Table 5)", "deep_blocks", "deep"),
        Claim(
            "grown with connected blocks, it is as good as trained from the start without them",
            "24 layers 29.39, 29.39; 48 layers 30.21, 30.03 (Table 1)",
            "sdt", "deep", as_good=True,
        ),
        Claim(
            "grown, it is as good as trained from the start, both with blocks", "30 layers 29.95, 29.90 (Table 5)",
            "sdt", "deep_blocks", as_good=True,
        ),
        Claim(
            "growing takes less time",
            "24 layers 32 % less, 48 layers 40 % (Table 1)",
            elsewhere="minutes of the table are those of starting a GPU's work; "
            "[benchmarks](benchmarks.md#shallow-to-deep-training) have seconds of each depth",
        ),
        Claim("restarts of the learning rate are better than none", "48 layers 29.93 to 30.21 (Table 2)", "sdt",
              "sdt_no_restart"),
    ),
    "Multi-unit": (
        Claim("4 units are better than one, with the same relative positions", "En-De 28.2 to 28.8 (Table 2)", "mute",
              "transformer_relative"),
        Claim("biased inputs and a learned order are better than plain units", "En-De 28.8 to 29.3 (Table 2)",
              "mute_sequential", "mute"),
        Claim("both together are better than one unit", "En-De 28.2 to 29.3 (Table 2)", "mute_sequential",
              "transformer_relative"),
    ),
    "Asked here": (
        Claim("relative positions are better than none", "En-De 27.4 to 28.2 (multi-unit, Table 2)",
              "transformer_relative", "transformer"),
        Claim("12 layers in connected blocks are better than 4", "-", "deep_blocks", "transformer_relative"),
        Claim("a third of the dropout is better for the depth-wise model", "-", "depthwise_lstm_less_dropout",
              "depthwise_lstm"),
        Claim("with it, the depth-wise model is better than the Transformer", "-", "depthwise_lstm_less_dropout",
              "transformer"),
        Claim("a third of the dropout is better for the Transformer", "-", "transformer_less_dropout", "transformer"),
        Claim("forget gates that start at a bias of 2 are better than at 0", "-", "depthwise_lstm_forget2",
              "depthwise_lstm"),
        Claim("forget gates that start at a bias of 1 are better than at 0", "-", "depthwise_lstm_forget1",
              "depthwise_lstm"),
    ),
}  # fmt: skip


def rows(record: Record) -> Iterator[list[str]]:
    """Yield the rows of a table: a claim, what is published, what is here, and the verdict."""
    yield ["paper", "claim", "published", "systems here", "difference", "p, of each seed", "verdict"]
    for paper, claims in CLAIMS.items():
        for claim in claims:
            said = [paper, claim.text, claim.published]
            if not claim.system:
                yield [*said, "-", "-", "-", f"not asked: {claim.elsewhere}"]
                continue
            said.append(f"`{claim.system}`, `{claim.baseline}`")
            if found := difference(record, claim.system, claim.baseline):
                yield [*said, spread(found.scores, 2, "+"), chances(found), verdict(found, as_good=claim.as_good)]
            else:
                failed = [f"`{name}`" for name in (claim.system, claim.baseline) if record.has_failed(name)]
                yield [*said, "-", "-", f"failed: {', '.join(failed)}" if failed else "not trained yet"]


def verdict(found: Difference, *, as_good: bool) -> str:
    """Say whether differences support a claim; docs/results.md has the rule."""
    seeds = len(found.scores)
    if seeds < 2:
        return "undecided"
    sure = all(chance <= LEVEL for chance in found.chances)
    if sure and all(score < 0 for score in found.scores):
        return "contradicted"
    if as_good:
        error = statistics.stdev(found.scores) / math.sqrt(seeds)
        bounded = statistics.fmean(found.scores) - STUDENT[min(seeds, max(STUDENT))] * error > -MARGIN
        supported = bounded and all(loss <= LEVEL for loss in found.losses)
    else:
        supported = sure and all(score > 0 for score in found.scores)
    return "supported" if supported else "undecided"
