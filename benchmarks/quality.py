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
from recipe_step import run_step
from turns import take_turns, timed

from fairseq_compat.versions import installed_version
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.translations import read_lines
from fairseq_depthwise.figures import COLORS, MARKERS, write_figure
from fairseq_depthwise.translation.translation_options import BeamOptions, TextOptions, TranslatorOptions
from fairseq_depthwise.translation.translator import LoadedTranslator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Translate = Callable[[Sequence[str]], list[str]]

#: How our models decode -> fields of ``TranslatorOptions``; fairseq's Transformer has the first way only.
WAYS: dict[str, dict[str, Any]] = {
    "float32": {"compile": False},
    "compiled": {"compile": True},
    "int8": {"precision": "int8"},
}
#: Types of CTranslate2.
CTRANSLATE2_TYPES = ("float32", "int8")

#: Sentences at a time -> how many of the test set are translated in a turn; None: all, whose translations are scored.
BATCHES: dict[int, int | None] = {32: None, 1: 100}


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
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
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, and write record and figure."""
    options = parse_options(sys.argv[1:])
    records.prepare_process()
    torch.set_num_threads(1)
    lines, references = map(read_lines, options.test)
    bleu = TranslationMetric("sacrebleu")
    scores: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    for batch, most in BATCHES.items():
        works: dict[str, Translate] = {}
        names: dict[str, dict[str, str]] = {}
        for argument in options.models:
            model, _, checkpoint = argument.partition("=")
            for way, translate in ways_of(checkpoint, batch, options):
                works[f"{model}, {way}"] = translate
                names[f"{model}, {way}"] = {"model": model, "way": way}
        # All sentences are translated once for BLEU, and in each turn for the time.
        if most is None:
            scores = {name: bleu.score(translate(lines), [references]).score for name, translate in works.items()}

        part = lines[:most]
        turns = {name: partial(timed, partial(translate, part)) for name, translate in works.items()}
        for name, seconds in take_turns(turns, options.rounds).items():
            milliseconds = [round(1000 * of_round / len(part), 3) for of_round in seconds]
            rows.append({**names[name], "batch": batch, "bleu": scores[name], "milliseconds": milliseconds})
            records.tell(f"{name}, {batch} at a time: {median(milliseconds):.2f} ms, {scores[name]:.2f} BLEU")
    setup = records.setup_of("quality", sys.argv[1:], sentences=len(lines), beam=options.beam)
    records.write_record(options.records, "quality_cpu", {"setup": setup, "rows": rows})
    write_figure(options.figure, (10.0, 4.2), lambda figure: draw(rows, figure))


def ways_of(checkpoint: str, batch: int, options: argparse.Namespace) -> Iterator[tuple[str, Translate]]:
    """Yield the ways in which a model decodes, and a function that translates lines."""
    text = TextOptions(bpe_codes=options.bpe_codes)
    for way, settings in WAYS.items():
        translator = LoadedTranslator(
            checkpoint,
            data=options.data,
            options=TranslatorOptions(text=text, beam=BeamOptions(beam=options.beam), batch_size=batch, **settings),
            say=records.tell,
        )
        yield way, translator.translate
        # fairseq's own Transformer cannot be compiled or quantized by us, but converted.
        if type(translator.models[0]).__module__.startswith("fairseq."):
            for kind in CTRANSLATE2_TYPES if installed_version("ctranslate2") else ():
                yield f"CTranslate2 {kind}", _by_ctranslate2(translator, checkpoint, batch, kind, options)
            return


def _by_ctranslate2(
    translator: LoadedTranslator, checkpoint: str, batch: int, kind: str, options: argparse.Namespace
) -> Translate:
    import ctranslate2
    from ctranslate2.converters import FairseqConverter

    codec = translator.direction(*translator.languages).codec
    with tempfile.TemporaryDirectory() as folder:
        # The checkpoint is the user's own, and was loaded above as plain data.
        converter = FairseqConverter(checkpoint, options.data, unsafe_deserialization=True)
        converted = converter.convert(f"{folder}/converted")
        model = ctranslate2.Translator(converted, compute_type=kind, inter_threads=1, intra_threads=1)

    def translate(lines: Sequence[str]) -> list[str]:
        results = model.translate_batch(
            [codec.encode(line).split() for line in lines],
            beam_size=options.beam,
            length_penalty=BeamOptions().length_penalty,
            max_batch_size=batch,
            max_decoding_length=BeamOptions().max_length,
        )
        return [codec.decode(" ".join(result.hypotheses[0])) for result in results]

    return translate


def draw(rows: Sequence[dict[str, Any]], figure: Figure) -> None:
    """Draw BLEU over milliseconds a sentence for each batch size: models have colors, ways have markers."""
    models = dict.fromkeys(row["model"] for row in rows)
    ways = dict.fromkeys(row["way"] for row in rows)
    colors = dict(zip(models, COLORS, strict=False))
    markers = dict(zip(ways, MARKERS, strict=False))
    panels = figure.subplots(1, len(BATCHES), sharex=True, sharey=True)
    for axes, batch in zip(panels, sorted(BATCHES), strict=True):
        for row in rows:
            if row["batch"] == batch:
                style = {"color": colors[row["model"]], "marker": markers[row["way"]]}
                axes.plot(median(row["milliseconds"]), row["bleu"], linestyle="none", **style)
        axes.set(title=f"{batch} at a time", xlabel="milliseconds a sentence", xscale="log")
        ticks = (1, 2, 5, 10, 20, 50)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.grid(visible=True)
    panels[0].set_ylabel("sacreBLEU")

    # One entry for each model and each way, not for each of their pairs.
    for model in models:
        panels[0].plot([], [], label=model, color=colors[model], marker="s", linestyle="none")
    for way in ways:
        panels[0].plot([], [], label=way, color="black", marker=markers[way], linestyle="none")
    figure.legend(loc="outside right", fontsize=8)


if __name__ == "__main__":
    run_step(main)
