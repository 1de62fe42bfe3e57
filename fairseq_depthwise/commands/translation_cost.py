"""``translate --reference``: what a lower precision costs, in place of the translations."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from fairseq_compat import UserError
from fairseq_depthwise import tables
from fairseq_depthwise.evaluation.precision_cost import PrecisionCost, TimedTranslations, precision_cost
from fairseq_depthwise.evaluation.scores import require_same_length
from fairseq_depthwise.evaluation.translations import read_lines, read_reference

if TYPE_CHECKING:
    from fairseq_depthwise.serving.loaded_translator import LoadedTranslator


def translation_cost(options: argparse.Namespace, precision: str, load: Callable[[str], LoadedTranslator]) -> str:
    """Translate a text in float32 and in another precision, and say how they compare.

    Args:
        options: of ``translate``: ``files``, ``reference``, ``json``.
        precision: fp16, bf16 or int8.
        load: loads the model in a precision; called twice, and there is one model at a time.

    Raises:
        UserError: text and reference differ in length, or a line of them is empty.
    """
    lines, reference = _read(options.files, options.reference)
    full, lower = (_timed(load(name), name, lines) for name in ("fp32", precision))
    cost = precision_cost(full, lower, reference)
    if options.json:
        return json.dumps({**asdict(cost), "difference": cost.difference}, indent=2) + "\n"
    return _as_text(cost)


def _read(files: Sequence[str], reference: str) -> tuple[list[str], list[str]]:
    """Read the text and its reference."""
    text = {path: read_lines(path) for path in files}
    expected = read_reference(reference)
    lines = [line for path in files for line in text[path]]
    require_same_length(" + ".join(files), lines, reference, expected)
    for path, sentences in (*text.items(), (reference, expected)):
        for number, line in enumerate(sentences, start=1):
            if not line.strip():
                raise UserError(f"{path}, line {number} is empty; --reference compares texts of one sentence per line")
    return lines, expected


def _timed(translator: LoadedTranslator, precision: str, lines: Sequence[str]) -> TimedTranslations:
    translator.translate(lines[:1])  # what is made at the first use, as packed weights
    started = time.perf_counter()
    sentences = translator.translate(lines)
    return TimedTranslations(precision, sentences, time.perf_counter() - started)


def _as_text(cost: PrecisionCost) -> str:
    rows = [
        ["precision", "BLEU", "sentences/s"],
        ["fp32", f"{cost.full_bleu:.2f}", f"{cost.full_speed:,.1f}"],
        [cost.precision, f"{cost.lower_bleu:.2f}", f"{cost.lower_speed:,.1f}"],
        ["difference", f"{cost.difference:+.2f}", f"x {cost.lower_speed / cost.full_speed:.2f}"],
    ]
    return (
        f"{tables.aligned(rows)}\n{cost.different_lines:,} of {cost.sentences:,} translations differ\n"
        f"BLEU: {cost.signature}\n"
    )
