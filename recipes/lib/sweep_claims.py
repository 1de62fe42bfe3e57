"""Claims of the papers beside what a sweep's record says of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from sweep_numbers import Difference, chances, difference, spread
from sweep_plan import Record

#: What a claim says of its system and the baseline.
BETTER, AS_GOOD, FASTER = "better", "as good", "faster to train"

#: In the bootstrap of each seed, for a difference that counts.
LEVEL = 0.05

#: What may be lost where something is said to be as good, in points of the score.
MARGIN = 0.5


@dataclass(frozen=True)
class Claim:
    """What a paper says, and what it takes to look for it here.

    Attributes:
        text: the claim.
        published: the paper's numbers, BLEU unless it says otherwise; where they stand.
        system: of the protocol; "" where the protocol has none.
        baseline: of the protocol.
        kind: what is said of the two.
        elsewhere: what there is of it besides, a sentence for the last column.
    """

    text: str
    published: str
    system: str = ""
    baseline: str = ""
    kind: str = BETTER
    elsewhere: str = ""


#: By paper, in the order of README.md, and what was asked here besides.
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "Depth-wise LSTM": (
        Claim(
            "better than residual connections and feed-forward nets",
            "En-De 27.55 to 28.53, En-Fr 39.54 to 40.10 (Table 1)",
            "depthwise_lstm", "transformer",
        ),
        Claim(
            "12 layers are as good as 24 of the Transformer",
            "En-De 29.26, 29.02 (Table 6)",
            elsewhere="depth-wise systems have 4 layers; 24 + 24 [train without diverging](#24--24-layers)",
        ),
        Claim(
            "without gates much is lost",
            "28.53 to 23.24 (Table 2)",
            elsewhere="one seed of a [short training](#compared-with-stock-fairseq) agrees",
        ),
        Claim(
            "its layers lose more when they are made linear, and the last ones of the decoder most",
            "decoder layer 6: -30 % of BLEU, the Transformer's -4 % (first version, Tables 6, 7)",
            elsewhere="one seed of a [short training](analysis.md#what-a-layers-non-linearity-is-worth): so in the "
            "decoder, not in the encoder",
        ),
    ),
    "Shallow to deep": (
        Claim("12 encoder layers better than 6", "27.05 to 28.33 (Table 6)", "deep", "transformer_relative"),
        Claim(
            "connected blocks better than none", "30 layers 29.52 to 29.90 (Table 5)", "deep_blocks", "deep",
        ),
        Claim(
            "growing is as good as training from the start",
            "24 layers 29.39, 29.39; 48 layers 30.03, 30.21 (Table 1)",
            "sdt", "deep_blocks", AS_GOOD,
        ),
        Claim(
            "growing takes less time", "24 layers 32 % less, 48 layers 40 % (Table 1)", "sdt", "deep_blocks", FASTER
        ),
        Claim("restarts of the learning rate are better than none", "48 layers 29.93 to 30.21 (Table 2)", "sdt",
              "sdt_no_restart"),
    ),
    "Multi-unit": (
        Claim(
            "4 units better than one, with the same relative positions",
            "En-De 28.2 to 28.8 (Table 2)",
            "mute", "transformer_relative",
        ),
        Claim(
            "biased inputs and a learned order better than plain units",
            "En-De 28.8 to 29.3 (Table 2)",
            "mute_sequential", "mute",
        ),
        Claim("both together better than one unit", "En-De 28.2 to 29.3 (Table 2)", "mute_sequential",
              "transformer_relative"),
    ),
    "Asked here": (
        Claim("relative positions better than none", "En-De 27.4 to 28.2 (multi-unit, Table 2)",
              "transformer_relative", "transformer"),
        Claim("12 layers in connected blocks better than 4", "-", "deep_blocks", "transformer_relative"),
        Claim("forget gates that start at a bias of 1 better than at 0", "-", "depthwise_lstm_forget1",
              "depthwise_lstm"),
    ),
}  # fmt: skip

RULE = (
    f"Better is supported where every one of two or more seeds has a higher score with p of at most {LEVEL:g}, and",
    "contradicted where every one has a lower score with such a p. As good is supported where the mean difference",
    f"less two of its standard errors over seeds is above -{MARGIN:g}, and contradicted as better is. Faster is",
    "supported where every seed took less time, and contradicted where every one took more. All else is undecided: the",
    "differences are smaller than what so few seeds, a test set of this size and models this small can show.",
)


def rows(record: Record) -> Iterator[list[str]]:
    """Yield the rows of a table: a claim, what is published, what is here, and the verdict."""
    yield ["paper", "claim", "published", "systems here", "here", "p, of each seed", "verdict"]
    for paper, claims in CLAIMS.items():
        for claim in claims:
            if not claim.system:
                yield [paper, claim.text, claim.published, "-", "-", "-", f"undecided: {claim.elsewhere}"]
                continue
            systems = f"`{claim.system}`, `{claim.baseline}`"
            found = difference(record, claim.system, claim.baseline)
            if found is None:
                yield [paper, claim.text, claim.published, systems, "-", "-", "undecided: not trained yet"]
                continue
            if claim.kind == FASTER:
                here, p = f"{spread([100 * (time - 1) for time in found.times], 0, '+')} % time", "-"
            else:
                here, p = spread(found.scores, 2, "+"), chances(found)
            yield [paper, claim.text, claim.published, systems, here, p, verdict(claim.kind, found)]


def verdict(kind: str, found: Difference) -> str:
    """Say whether the numbers support a claim, by :data:`RULE`."""
    if len(found.scores) < 2:
        return "undecided"
    if kind == FASTER:
        return _decided(all(time < 1 for time in found.times), all(time > 1 for time in found.times))
    sure = all(chance <= LEVEL for chance in found.chances)
    higher = all(score > 0 for score in found.scores) and sure
    lower = all(score < 0 for score in found.scores) and sure
    if kind == AS_GOOD:
        error = statistics.stdev(found.scores) / math.sqrt(len(found.scores))
        return _decided(statistics.fmean(found.scores) - 2 * error > -MARGIN, lower)
    return _decided(higher, lower)


def _decided(supported: bool, contradicted: bool) -> str:
    return "supported" if supported else "contradicted" if contradicted else "undecided"
