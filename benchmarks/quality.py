"""Measure quality and speed: BLEU of trained models and milliseconds per sentence, in every way of decoding.

    python benchmarks/quality.py --data DATA --bpe-codes CODES --test TEST.en TEST.de Transformer=CHECKPOINT ...

Our models decode uncompiled, compiled and in int8; fairseq's Transformer uncompiled, and with CTranslate2 if that is
installed. All ways take turns, on one thread. Writes the record ``quality_cpu``, which ``figures.py`` draws.
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
from fairseq_depthwise.figures import COLORS, MARKERS
from fairseq_depthwise.translation.translation_options import BeamOptions, TextOptions, TranslatorOptions
from fairseq_depthwise.translation.translator import LoadedTranslator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Translate = Callable[[Sequence[str]], list[str]]

#: Way of decoding -> fields of ``TranslatorOptions``; fairseq's Transformer has the first only.
WAYS: dict[str, dict[str, Any]] = {
    "float32": {"compile": False},
    "compiled": {"compile": True},
    "int8": {"precision": "int8"},
}
#: Compute types of CTranslate2.
CTRANSLATE2_TYPES = ("float32", "int8")

#: Batch size -> number of test sentences translated in a turn. None: all of them, and the translations are scored.
BATCHES: dict[int, int | None] = {32: None, 1: 100}


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = records.make_parser(__doc__)
    add = parser.add_argument
    add("models", nargs="+", metavar="NAME=CHECKPOINT", help="a name begins with the family, as in 'Transformer 6+6'")
    add("--data", required=True, help="folder with the dictionaries")
    add("--bpe-codes", help="codes of subword-nmt, if those recorded in training are missing")
    add("--test", nargs=2, required=True, metavar=("SOURCE", "REFERENCE"), help="raw text, one sentence per line")
    add("--beam", type=records.integer(1), default=4, help="beam size (default: %(default)s)")
    add("--rounds", type=records.integer(1), default=5, metavar="N", help="rounds that count (default: %(default)s)")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, and write the record."""
    options = parse_options(sys.argv[1:])
    records.prepare_process()
    torch.set_num_threads(1)
    lines, references = map(read_lines, options.test)
    bleu = TranslationMetric("sacrebleu")
    scores: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    for batch, sentences_in_turn in BATCHES.items():
        translators: dict[str, Translate] = {}
        names: dict[str, dict[str, str]] = {}
        for argument in options.models:
            model, _, checkpoint = argument.partition("=")
            for way, translate in load_translators(checkpoint, batch, options):
                translators[f"{model}, {way}"] = translate
                names[f"{model}, {way}"] = {"model": model, "way": way}
        # Translate once for BLEU, outside of the timed turns.
        if sentences_in_turn is None:
            scores = {name: bleu.score(translate(lines), [references]).score for name, translate in translators.items()}

        sentences = lines[:sentences_in_turn]
        # Only some of the sentences if each is a batch of its own; a turn would take minutes.
        turns = {name: partial(timed, partial(translate, sentences)) for name, translate in translators.items()}
        for name, seconds_of_rounds in take_turns(turns, options.rounds).items():
            milliseconds = [round(1000 * seconds / len(sentences), 3) for seconds in seconds_of_rounds]
            rows.append({**names[name], "batch": batch, "bleu": scores[name], "milliseconds": milliseconds})
            records.print_progress(
                f"{name}, {batch} at a time: {median(milliseconds):.2f} ms per sentence, {scores[name]:.2f} BLEU"
            )
    setup = records.describe_setup("quality", sys.argv[1:], sentences=len(lines), beam=options.beam)
    records.write_record(options.records, "quality_cpu", {"setup": setup, "rows": rows})


def load_translators(checkpoint: str, batch: int, options: argparse.Namespace) -> Iterator[tuple[str, Translate]]:
    """Yield each way in which a model can decode, and a function that translates lines that way."""
    text = TextOptions(bpe_codes=options.bpe_codes)
    for way, settings in WAYS.items():
        translator = LoadedTranslator(
            checkpoint,
            data=options.data,
            options=TranslatorOptions(text=text, beam=BeamOptions(beam=options.beam), batch_size=batch, **settings),
            say=records.print_progress,
        )
        yield way, translator.translate
        # We can neither compile nor quantize fairseq's own Transformer, but CTranslate2 can convert it.
        if type(translator.models[0]).__module__.startswith("fairseq."):
            if installed_version("ctranslate2"):
                for compute_type in CTRANSLATE2_TYPES:
                    translate = _load_ctranslate2(translator, checkpoint, batch, compute_type, options)
                    yield f"CTranslate2 {compute_type}", translate
            return


def _load_ctranslate2(
    translator: LoadedTranslator, checkpoint: str, batch: int, compute_type: str, options: argparse.Namespace
) -> Translate:
    import ctranslate2
    from ctranslate2.converters import FairseqConverter

    codec = translator.direction(*translator.languages).codec
    with tempfile.TemporaryDirectory() as folder:
        # Unpickling is safe here: LoadedTranslator has already loaded this checkpoint as plain data.
        # CTranslate2 reads the folder now and does not need it later.
        converter = FairseqConverter(checkpoint, options.data, unsafe_deserialization=True)
        converted = converter.convert(f"{folder}/converted")
        model = ctranslate2.Translator(converted, compute_type=compute_type, inter_threads=1, intra_threads=1)

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
    """Draw BLEU over milliseconds per sentence at each batch size: a color per family, a marker per way of decoding.

    The points of a model are joined, and labeled with what follows the family in its name.
    """
    families = dict.fromkeys(row["model"].partition(" ")[0] for row in rows)
    ways = dict.fromkeys(row["way"] for row in rows)
    colors = dict(zip(families, COLORS, strict=False))
    markers = dict(zip(ways, MARKERS, strict=False))
    panels = figure.subplots(len(BATCHES), 1, sharex=True, sharey=True)
    for axes, batch in zip(panels, sorted(BATCHES), strict=True):
        for model in dict.fromkeys(row["model"] for row in rows):
            family, _, label = model.partition(" ")
            points = []
            for row in rows:
                if row["model"] == model and row["batch"] == batch:
                    points.append((median(row["milliseconds"]), row["bleu"], markers[row["way"]]))
            for time, bleu, marker in points:
                axes.plot(time, bleu, color=colors[family], marker=marker, linestyle="none", markersize=7)
            points.sort()
            axes.plot(
                [time for time, *_ in points], [bleu for _, bleu, _ in points], color=colors[family], linewidth=0.8
            )
            # Beside the slowest way, where there is room.
            slowest, bleu, _ = points[-1]
            axes.annotate(
                label.replace(",", ""),
                (slowest, bleu),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                annotation_clip=False,
            )
        axes.set(
            title=f"{batch} {'sentence' if batch == 1 else 'sentences'} at a time", ylabel="sacreBLEU", xscale="log"
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.minorticks_off()
        axes.grid(visible=True)
    ticks = (1, 2, 5, 10, 20, 50)
    panels[-1].set_xticks(ticks, [str(tick) for tick in ticks])
    panels[-1].set(xlabel="milliseconds a sentence")
    # Room for the labels.
    panels[-1].set_xlim(right=100)

    from matplotlib.lines import Line2D

    of_families = [Line2D([], [], color=colors[family], linewidth=6) for family in families]
    of_ways = [Line2D([], [], color="black", marker=markers[way], linestyle="none") for way in ways]
    figure.legend(of_families, list(families), loc="outside upper center", ncols=len(families))
    figure.legend(of_ways, list(ways), loc="outside lower center", ncols=3)


if __name__ == "__main__":
    run_step(main)
