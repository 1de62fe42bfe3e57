"""``translate``: raw text in, raw text out, with a model that is loaded once."""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import IO, TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import output_file
from fairseq_compat.versions import fairseq_problem
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files
from fairseq_depthwise.commands.parsers import add_parser, positive_int
from fairseq_depthwise.commands.translator_options import (
    add_search_options,
    add_text_options,
    chosen_precision,
    load_translator,
)
from fairseq_depthwise.text_files import Block, blocks_of, compressed

if TYPE_CHECKING:
    from fairseq_depthwise.serving.cluster.ray_blocks import Loaded
    from fairseq_depthwise.serving.loaded_translator import Hypothesis, LoadedTranslator, Translation

#: Seconds between two lines of progress on stderr.
_EVERY = 10.0


#: What ``--ray`` without an address is.
_HERE = "here"


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "translate",
        run=run,
        help="translate text: raw lines in, raw translations out, in order",
        example="fairseq-depthwise translate checkpoints --bpe-codes bpe.codes --tokenizer moses < new.en > new.de\n"
        "  fairseq-depthwise translate average.pt test.en --output test.hyp\n"
        "  fairseq-depthwise translate a.pt:b.pt --json --nbest 4 < new.en\n"
        "  printf 'The dog sleeps.\\tHund\\n' | fairseq-depthwise translate average.pt --constraints --json\n"
        "  fairseq-depthwise translate average.pt news.*.en.gz --output-folder news.de --ray head:6379\n\n"
        "Data, languages, --tokenizer, --bpe and its file are those of the training, if fairseq-train was given them;\n"
        "options name what was not recorded or has been moved since. An empty line's translation is empty.",
    )
    parser.add_argument(
        "model", metavar="MODEL",
        help="a checkpoint, of this plugin or of fairseq's own transformers; several joined with : are an ensemble; a "
        "folder that was exported, or one that stands for the checkpoint_best.pt in it",
    )  # fmt: skip
    parser.add_argument(
        "files", nargs="*", default=["-"], metavar="FILE",
        help="text, one sentence in each line; - is stdin (default: stdin); .gz and .xz are decompressed",
    )  # fmt: skip
    parser.add_argument("--data", metavar="BIN", help="the folder with the dictionaries")
    parser.add_argument("-s", "--source-lang", metavar="LANG", help="language of the text")
    parser.add_argument("-t", "--target-lang", metavar="LANG", help="language of the translations")
    add_text_options(parser)
    group = add_search_options(parser, nbest="translations of a line, with --json")
    group.add_argument(
        "--constraints", nargs="?", const="ordered", choices=("ordered", "unordered"), metavar="ORDER",
        help="after a line's text come tabs, each with words that its translation must have, in this order (ordered, "
        "the default) or in any (unordered); stderr names those that it has not",
    )  # fmt: skip
    group.add_argument(
        "--sampling", action="store_true",
        help="draw translations instead of searching for the most probable ones; --beam 1 draws one of each line",
    )  # fmt: skip
    group.add_argument(
        "--sampling-topk", type=positive_int, metavar="K", help="draw from the K most probable tokens (default: all)"
    )
    group.add_argument("--seed", type=positive_int, default=1, metavar="N", help="of --sampling (default: 1)")
    group.add_argument(
        "--buffer-lines", type=positive_int, default=1000, metavar="N",
        help="read, and put into batches by length, so many lines at a time (default: 1000; 1 at a terminal)",
    )  # fmt: skip
    group = parser.add_argument_group("alignments and scores")
    group.add_argument(
        "--print-alignment", nargs="?", const="hard", choices=("hard", "soft"), metavar="KIND",
        help="after a translation write a tab and pairs of a source and a target word, as 0-0 1-2, the words of the "
        "tokenized texts counted from 0 (hard, the default); or how much each target word attends to each source word "
        "(soft)",
    )  # fmt: skip
    group.add_argument(
        "--token-scores", action="store_true",
        help="with --json, the tokens of translations and their log-probabilities to base 2",
    )  # fmt: skip
    parser.add_argument(
        "--output", metavar="FILE",
        help="write to this file instead of stdout, once all is translated; .gz and .xz are compressed",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace --output if it exists")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--scores", action="store_true", help="write the score and a tab before each translation")
    form.add_argument(
        "--json", action="store_true", help="write a JSON object in each line: source, translation, score, ..."
    )
    group = parser.add_argument_group("large texts")
    group.add_argument(
        "--ray", nargs="?", const=_HERE, metavar="ADDRESS",
        help="let actors of Ray translate blocks of --buffer-lines (the extra ray): HOST:PORT of a cluster, auto for "
        "the one that this machine belongs to, nothing to start Ray here; what is done when it ends early is in "
        "OUTPUT.blocks, and the same command goes on",
    )  # fmt: skip
    group.add_argument(
        "--ray-actors", type=positive_int, metavar="N",
        help="actors, with a model and --threads cores, or a GPU, each (default: as many as the cluster has)",
    )  # fmt: skip
    group.add_argument(
        "--output-folder", metavar="FOLDER",
        help="with --ray, instead of --output: the translations of each FILE in a file of its name in this folder",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    if (problem := fairseq_problem()) is not None:
        raise UserError(problem)
    output_path = _require_files(options)
    if options.nbest > 1 and not options.json:
        raise UserError(f"--nbest {options.nbest} makes several translations of a line; add --json, which shows them")
    if options.token_scores and not options.json:
        raise UserError("--token-scores are written as JSON only; add --json")
    precision = chosen_precision(options)
    if options.ray is not None:
        return _translate_on_ray(options, precision, output_path)
    for name in ("ray_actors", "output_folder"):
        if getattr(options, name):
            raise UserError(f"--{name.replace('_', '-')} {getattr(options, name)} is for --ray; add it")
    at_terminal = options.files == ["-"] and sys.stdin.isatty()
    translator = load_translator(options, precision)
    if at_terminal:
        print("type a sentence and press return; Ctrl-D ends", file=sys.stderr)
    with _opened(output_path) as output:
        _translate(translator, output, options, at_once=at_terminal)
    return 0


#: Options that blocks of translations do not depend on, or that the record has in other forms: digests of files.
_FREE = {
    *("run", "files", "model", "data", "bpe_codes", "sentencepiece_model", "output", "output_folder"),
    *("force", "ray", "ray_actors", "threads", "cpu", "compile", "max_tokens", "batch_size"),
}


def _translate_on_ray(options: argparse.Namespace, precision: str, output_path: str | None) -> int:
    from fairseq_depthwise.serving.cluster.large_text import LargeText, require_folder, translate_large_text
    from fairseq_depthwise.serving.cluster.ray_blocks import Demand, require_ray
    from fairseq_depthwise.serving.exported_folder import is_exported

    address = None if options.ray == _HERE else options.ray
    require_ray(address)
    if streams := [path for path in options.files if not os.path.isfile(path)]:
        name = "stdin" if streams[0] == "-" else streams[0]
        raise UserError(f"--ray reads files, so that a second start can go on, and {name} is none; write it to one")
    if (options.output is None) == (options.output_folder is None):
        raise UserError("--ray writes to --output FILE or to --output-folder FOLDER; give one of them")
    if not is_exported(options.model):
        checkpoint_files(options.model)  # which says what is missing, before Ray is started
    option, output = "--output", output_path
    if output is None:
        option, output = "--output-folder", require_folder(options.output_folder, options.files, force=options.force)
    depends_on = {f"--{name.replace('_', '-')}": value for name, value in vars(options).items() if name not in _FREE}
    text = LargeText(options.files, option, output, options.buffer_lines, depends_on, options.force)
    demand = Demand(options.ray_actors, options.threads or 1, gpu=not options.cpu)
    sent = argparse.Namespace(**{name: value for name, value in vars(options).items() if name != "run"})
    translate_large_text(text, address, demand, functools.partial(_load_actor, sent, precision))
    return 0


def _load_actor(options: argparse.Namespace, precision: str) -> Loaded:
    """Return what an actor translates with."""
    from fairseq_compat.process import keep_freed_memory
    from fairseq_depthwise.serving.cluster.ray_blocks import Loaded

    keep_freed_memory()
    translator = load_translator(options, precision)

    def translate(block: Block) -> tuple[bytes, list[str]]:
        text, warnings = translated_block(translator, block, options)
        return compressed(options.output or block.path, text), warnings

    return Loaded(translate, translator.digests())


def _require_files(options: argparse.Namespace) -> str | None:
    """Return the output, after checking what would otherwise fail once the model is loaded, or after a long time."""
    given = options.files
    if given.count("-") > 1:
        raise UserError(f"stdin (-) is given {given.count('-')} times; it can be read once")
    for path in given:
        if os.path.isdir(path):
            raise UserError(f"{path} is a folder; give a text file")
        # A pipe must be opened once: what is written to it before it is closed would be lost.
        if path != "-" and (os.path.isfile(path) or not os.path.exists(path)):
            open(path, "rb").close()
    if options.output is None:
        return None
    read = [path for path in [*given, *options.model.split(":")] if path != "-"]
    return output_file("--output", options.output, force=options.force, inputs=read, stream=options.ray is None)


def _opened(output: str | None) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdout.buffer) if output is None else atomic_write(output)


def _translate(translator: LoadedTranslator, output: IO[bytes], options: argparse.Namespace, *, at_once: bool) -> None:
    """Translate block after block, so that memory does not grow with the text."""
    started = last_report = time.monotonic()
    done = 0
    for block in blocks_of(options.files, 1 if at_once else options.buffer_lines):
        text, warnings = translated_block(translator, block, options)
        for warning in warnings:
            print(warning, file=sys.stderr)
        output.write(compressed(options.output or "", text))
        output.flush()
        done += len(block.lines)
        if not at_once and time.monotonic() - last_report > _EVERY:
            last_report = time.monotonic()
            print(f"  {_lines(done)}, {done / (last_report - started):,.1f} a second", file=sys.stderr)
    if not done:
        output.write(compressed(options.output or "", b""))
    if not at_once:
        print(f"{_lines(done)} translated in {time.monotonic() - started:,.1f} s", file=sys.stderr)


def translated_block(
    translator: LoadedTranslator, block: Block, options: argparse.Namespace
) -> tuple[bytes, list[str]]:
    """Return the lines to write for a block, and what is odd about its translations."""
    import torch

    from fairseq_depthwise.serving.argument_names import options_named

    texts, constraints = list(block.lines), None
    if options.constraints:
        fields = [text.split("\t") for text in texts]
        texts, constraints = [text for text, *_ in fields], [after for _, *after in fields]
    if options.sampling:  # the same for a block wherever and whenever it is translated
        place = hashlib.sha256(f"{options.seed} {block.file} {block.number}".encode()).digest()
        torch.manual_seed(int.from_bytes(place[:7], "big"))
    with options_named():
        translations = translator.translations(texts, constraints=constraints)
    where = "stdin" if block.path == "-" else block.path
    warnings = [
        f"{where}, line {number}: {warning}"
        for number, translation in enumerate(translations, start=block.first)
        for warning in _warnings(translation)
    ]
    return "".join(f"{_as_line(translation, options)}\n" for translation in translations).encode(), warnings


def _as_line(translation: Translation, options: argparse.Namespace) -> str:
    best = translation.hypotheses[0]
    if options.json:
        return json.dumps(_as_document(translation, options), ensure_ascii=False)
    fields = [best.text]
    if options.scores:
        fields.insert(0, f"{best.score:.4f}")
    if best.alignment is not None:
        fields.append(" ".join(f"{source}-{target}" for source, target in best.alignment))
    if best.attention is not None:
        fields.append(" ".join(",".join(f"{weight:.6f}" for weight in row) for row in best.attention))
    return "\t".join(fields)


def _as_document(translation: Translation, options: argparse.Namespace) -> dict[str, Any]:
    best = _fields_of(translation.hypotheses[0])
    document = {"source": translation.source, "translation": best.pop("text"), **best}
    if translation.source_words is not None:
        document["source_words"] = translation.source_words
    if options.constraints:
        document["unmet_constraints"] = translation.unmet_constraints
    if options.nbest > 1:
        document["nbest"] = list(map(_fields_of, translation.hypotheses))
    return document


def _fields_of(hypothesis: Hypothesis) -> dict[str, Any]:
    """Return what is known of a hypothesis."""
    return {name: value for name, value in vars(hypothesis).items() if value is not None}


def _warnings(translation: Translation) -> Iterator[str]:
    """Yield what is odd about a line's translation."""
    if translation.pieces > 1:
        yield f"too long for the model, translated in {translation.pieces} pieces"
    if translation.cut_off:
        yield (
            "the translation has as many tokens as it may have and is perhaps cut off; a larger --max-len-b allows "
            "more, a smaller --max-line-tokens cuts the line"
        )
    for constraint, why in translation.unmet_constraints.items():
        yield f"the translation lacks the constraint {constraint!r}: {why}"


def _lines(count: int) -> str:
    return f"{count:,} line{'' if count == 1 else 's'}"
