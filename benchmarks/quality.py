"""Quality against time: BLEU of trained models and milliseconds a sentence, in every way of decoding.

    python benchmarks/quality.py --data DATA --bpe-codes CODES --test TEST.en TEST.de Transformer=CHECKPOINT ...

Each model decodes uncompiled, compiled and in int8 where it can be; fairseq's Transformer also by CTranslate2, if that
is installed. All ways take turns, on one thread. Writes the record ``quality_cpu`` and docs/figures/quality_cpu.svg.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import records
import torch

from fairseq_compat.versions import installed_version
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.translations import read_lines
from fairseq_depthwise.figures import COLORS, MARKERS, write_figure
from fairseq_depthwise.translation.translation_options import BeamOptions, TextOptions, TranslatorOptions
from fairseq_depthwise.translation.translator import LoadedTranslator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Translate = Callable[[Sequence[str]], list[str]]

#: How our models decode -> what ``TranslatorOptions`` are given; fairseq's Transformer has the first way only.
WAYS: dict[str, dict[str, Any]] = {
    "float32": {"compile": False}, "compiled": {"compile": True}, "int8": {"precision": "int8"},
}  # fmt: skip
#: CTranslate2's types.
OTHER_WAYS = ("float32", "int8")

#: Sentences at a time -> how many of the test set are translated in a turn; None: all, whose translations are scored.
BATCHES: dict[int, int | None] = {1: 100, 32: None}


def ways_of(checkpoint: str, batch: int, options: argparse.Namespace) -> Iterator[tuple[str, Translate]]:
    """Yield the ways in which a model decodes, and a function that translates lines."""
    text = TextOptions(bpe_codes=options.bpe_codes)
    shared: dict[str, Any] = {"text": text, "beam": BeamOptions(beam=options.beam), "batch_size": batch}
    for way, given in WAYS.items():
        translator = LoadedTranslator(
            checkpoint, data=options.data, options=TranslatorOptions(**shared, **given), say=records.tell
        )
        yield way, translator.translate
        if type(translator.models[0]).__module__.startswith("fairseq."):
            if installed_version("ctranslate2"):
                for kind in OTHER_WAYS:
                    yield f"CTranslate2 {kind}", _by_ctranslate2(translator, checkpoint, batch, kind, options)
            return


def _by_ctranslate2(
    translator: LoadedTranslator, checkpoint: str, batch: int, kind: str, options: argparse.Namespace
) -> Translate:
    import ctranslate2
    from ctranslate2.converters import FairseqConverter

    codec = translator.direction(*translator.languages).codec
    with tempfile.TemporaryDirectory() as folder:
        # Read is the user's own checkpoint, which was loaded above as plain data.
        converter = FairseqConverter(checkpoint, options.data, unsafe_deserialization=True)
        converted = converter.convert(f"{folder}/converted")
        model = ctranslate2.Translator(converted, compute_type=kind, inter_threads=1, intra_threads=1)

    def translate(lines: Sequence[str]) -> list[str]:
        words = [codec.encode(line).split() for line in lines]
        found = model.translate_batch(
            words, beam_size=options.beam, length_penalty=BeamOptions().length_penalty, max_batch_size=batch,
            max_decoding_length=BeamOptions().max_length,
        )  # fmt: skip
        return [codec.decode(" ".join(one.hypotheses[0])) for one in found]

    return translate


def draw(rows: Sequence[dict[str, Any]], figure: Figure) -> None:
    """Draw BLEU over milliseconds a sentence for each batch size: models have colors, ways have markers."""
    looks = [
        (key, name, {look: styles[place]})
        for key, look, styles in (("model", "color", COLORS), ("way", "marker", MARKERS))
        for place, name in enumerate(dict.fromkeys(row[key] for row in rows))
    ]
    panels = figure.subplots(1, len(BATCHES), sharex=True, sharey=True)
    for axes, batch in zip(panels, BATCHES, strict=True):
        for row in (row for row in rows if row["batch"] == batch):
            style = {what: value for key, name, look in looks if row[key] == name for what, value in look.items()}
            axes.plot(median(row["milliseconds"]), row["bleu"], linestyle="none", **style)
        axes.set(title=f"{batch} at a time", xlabel="milliseconds a sentence", xscale="log")
        axes.set_xticks(ticks := (1, 2, 5, 10, 20, 50), [*map(str, ticks)])
        axes.minorticks_off()
        axes.grid(visible=True)
    panels[0].set_ylabel("sacreBLEU")
    for _, name, look in looks:
        panels[0].plot([], [], label=name, **{"color": "black", "marker": "s", "linestyle": "none"} | look)
    figure.legend(loc="outside right", fontsize=8)


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = records.make_parser(__doc__)
    add = parser.add_argument
    add("models", nargs="+", metavar="NAME=CHECKPOINT")
    add("--data", required=True, help="folder of the dictionaries")
    add("--bpe-codes", help="of subword-nmt, where the training's are not there")
    add("--test", nargs=2, required=True, metavar=("SOURCE", "REFERENCE"), help="raw text, a sentence a line")
    add("--beam", type=records.integer(1), default=4, help="(default: %(default)s)")
    add("--rounds", type=records.integer(1), default=5, metavar="N", help="that count (default: %(default)s)")
    add("--figure", default="docs/figures/quality_cpu.svg", help="(default: %(default)s)")
    return parser.parse_args(given)


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure, and write record and figure."""
    torch.set_num_threads(1)
    lines, references = map(read_lines, options.test)
    bleu, rows = TranslationMetric("sacrebleu"), []
    scores: dict[tuple[str, str], float] = {}
    for batch, most in sorted(BATCHES.items(), reverse=True):  # those that are scored first
        works: dict[tuple[str, str], Translate] = {}
        for model, _, checkpoint in (one.partition("=") for one in options.models):
            works |= {(model, way): translate for way, translate in ways_of(checkpoint, batch, options)}
        if most is None:
            scores = {key: bleu.score(translate(lines), [references]).score for key, translate in works.items()}
        part = lines[:most]
        turns = {str(key): partial(records.timed, partial(translate, part)) for key, translate in works.items()}
        seconds = records.take_turns(turns, options.rounds)
        for model, way in works:
            found = [round(1000 * one / len(part), 3) for one in seconds[str((model, way))]]
            rows.append({"model": model, "way": way, "batch": batch, "bleu": scores[model, way], "milliseconds": found})
            records.tell(f"{model}, {way}, {batch} at a time: {median(found):.2f} ms, {scores[model, way]:.2f} BLEU")
    setup = records.setup_of("quality", given, sentences=len(lines), beam=options.beam)
    records.write_record(options.records, "quality_cpu", {"setup": setup, "rows": rows})
    write_figure(options.figure, (10.0, 4.2), lambda figure: draw(rows, figure))


if __name__ == "__main__":
    sys.exit(records.run_program("quality", parse_options, run, None))
