"""Writes the corpus ``hops``: follow k links of a chain that the sentence itself describes.

A source sentence has 16 pairs "a b", which say that b follows a, in random order; then a query: a symbol, and the
number of steps. The target is the one symbol that so many steps lead to. The pairs form one cycle of 16 of the 64
symbols, drawn anew for every sentence, so that every query has an answer, each symbol stands in two pairs, and no step
comes back before the sixteenth.

    python recipes/hops/generate.py --output FOLDER --train 400000 --held-out 500 --seed 1
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

SYMBOLS = [f"s{number}" for number in range(64)]
PAIRS = 16
MOST_STEPS = 8


def write_pair_of_texts(prefix: Path, steps_of_sentences: list[int], generator: random.Random) -> None:
    """Write ``prefix.pairs`` and ``prefix.answer``, a line for each number of steps."""
    with open(f"{prefix}.pairs", "w") as sources, open(f"{prefix}.answer", "w") as targets:
        for steps in steps_of_sentences:
            source, target = draw_sentence(steps, generator)
            sources.write(f"{source}\n")
            targets.write(f"{target}\n")


def draw_sentence(steps: int, generator: random.Random) -> tuple[str, str]:
    """Draw a cycle and a query of ``steps`` steps; return the source sentence and the answer."""
    cycle = generator.sample(SYMBOLS, PAIRS)
    # The last symbol is followed by the first.
    pairs = [f"{symbol} {cycle[(place + 1) % PAIRS]}" for place, symbol in enumerate(cycle)]
    # Their order says nothing of the cycle.
    generator.shuffle(pairs)
    # The answer is so many symbols further on.
    start = generator.randrange(PAIRS)
    query = f"{cycle[start]} k{steps}"
    return f"{' '.join(pairs)} {query}", cycle[(start + steps) % PAIRS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder of the texts")
    parser.add_argument("--train", type=int, required=True, help="sentences; their steps are uniform in 1 to 8")
    parser.add_argument("--held-out", type=int, required=True, help="sentences of each test set, one for each k")
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    steps = range(1, MOST_STEPS + 1)
    write_pair_of_texts(options.output / "train", generator.choices(steps, k=options.train), generator)
    write_pair_of_texts(options.output / "valid", generator.choices(steps, k=options.held_out), generator)
    # A test set for each number of steps.
    for number in steps:
        write_pair_of_texts(options.output / f"test.k{number}", [number] * options.held_out, generator)


if __name__ == "__main__":
    main()
