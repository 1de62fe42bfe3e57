r"""``translate``: raw text in, raw text out, with a model that is loaded once.

example:
  fairseq-depthwise translate checkpoints --bpe-codes bpe.codes --tokenizer moses < new.en > new.de
  fairseq-depthwise translate average.pt test.en --output test.hyp
  fairseq-depthwise translate a.pt:b.pt --json --nbest 4 < new.en
  printf 'The dog sleeps.\tHund\n' | fairseq-depthwise translate average.pt --constraints --json
  fairseq-depthwise translate average.pt news.*.en.gz --output-folder news.de --ray head:6379

Data, languages, --tokenizer, --bpe and its file are those of the training, if fairseq-train was given them;
options name what was not recorded or has been moved since. An empty line's translation is empty.
"""

from __future__ import annotations

import argparse
import functools
import glob
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import output_file
from fairseq_depthwise.checkpoints.recorded_paths import input_files
from fairseq_depthwise.commands.parsers import positive_int
from fairseq_depthwise.commands.translator_options import add_translator_options, load_translator, require_model
from fairseq_depthwise.options import add_options, option, options_of, that_change_results
from fairseq_depthwise.text_files import Block, blocks_of, compressed
from fairseq_depthwise.translation.translation_options import TranslatorOptions, refuse_pairs, refuse_without

if TYPE_CHECKING:
    from fairseq_depthwise.serving.cluster.ray_blocks import Loaded
    from fairseq_depthwise.translation.translator import Hypothesis, LoadedTranslator, Translation

#: Seconds between progress messages on stderr.
_EVERY = 10.0

#: The value of ``--ray`` without an address.
_HERE = "here"


@dataclass(frozen=True)
class LineOptions:
    """How lines are read and written."""

    buffer_lines: int = option(1000, "read, and put into batches by length, so many lines at a time; 1 at a terminal")
    seed: int | None = option(None, "of --sampling (default: 1)", type=positive_int, metavar="N")
    scores: bool = option(False, "write the score and a tab before each translation")
    json: bool = option(False, "write a JSON object in each line: source, translation, score, ...")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a checkpoint, of this plugin or of fairseq's own transformers; several joined with : are an ensemble; a "
        "folder that was exported, or one that stands for the checkpoint_best.pt in it",
    )
    parser.add_argument(
        "files",
        nargs="*",
        default=["-"],
        metavar="FILE",
        help="text, one sentence in each line; - is stdin (default: stdin); .gz and .xz are decompressed",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write to this file instead of stdout, once all is translated; .gz and .xz are compressed",
    )
    parser.add_argument("--force", action="store_true", help="replace --output if it exists")
    add_options(parser, LineOptions)
    add_translator_options(parser)
    group = parser.add_argument_group("large texts")
    group.add_argument(
        "--ray",
        nargs="?",
        const=_HERE,
        metavar="ADDRESS",
        help="let actors of Ray translate blocks of --buffer-lines (the extra ray): HOST:PORT of a cluster, auto for "
        "the one that this machine belongs to, nothing to start Ray here; what is done when it ends early is in "
        "OUTPUT.blocks, and the same command goes on",
    )
    group.add_argument(
        "--ray-actors",
        type=positive_int,
        metavar="N",
        help="actors, with a model and --threads cores, or a GPU, each (default: as many as the cluster has)",
    )
    group.add_argument(
        "--output-folder",
        metavar="FOLDER",
        help="with --ray, instead of --output: the translations of each FILE in a file of its name in this folder",
    )


def check(options: argparse.Namespace) -> None:
    options.output = _require_files(options)
    refuse_pairs(("--scores", "--json", options.scores and options.json))
    refuse_without(
        ("--seed", "--sampling", options.seed is not None and not options.sampling),
        ("--nbest", "--json", options.nbest > 1 and not options.json),
        ("--token-scores", "--json", options.token_scores and not options.json),
        ("--ray-actors", "--ray", options.ray_actors and options.ray is None),
        ("--output-folder", "--ray", options.output_folder and options.ray is None),
    )
    options_of(TranslatorOptions, options)  # which refuses those that do not go together
    require_model(options.model)


def run(options: argparse.Namespace) -> int:
    if options.ray is not None:
        return _translate_on_ray(options)
    # At a terminal, translate each line as soon as it is typed.
    at_terminal = options.files == ["-"] and sys.stdin.isatty()
    translator = load_translator(options)
    if at_terminal:
        print("type a sentence and press return; Ctrl-D ends", file=sys.stderr)
    # A file appears when it is complete; standard output is written as translations come.
    opened: Any = nullcontext(sys.stdout.buffer) if options.output is None else atomic_write(options.output)
    with opened as output:
        _translate(translator, output, options, at_once=at_terminal)
    return 0


def _translate_on_ray(options: argparse.Namespace) -> int:
    from fairseq_depthwise.serving.cluster.large_text import require_folder, translate_large_text
    from fairseq_depthwise.serving.cluster.ray_blocks import Translators, require_ray

    address = None if options.ray == _HERE else options.ray
    require_ray(address)
    for path in options.files:
        if not os.path.isfile(path):
            name = "stdin" if path == "-" else path
            raise UserError(f"--ray reads files, so that a second start can go on, and {name} is none; write it to one")
    if (options.output is None) == (options.output_folder is None):
        raise UserError("--ray writes to --output FILE or to --output-folder FOLDER; give one of them")
    output = options.output or require_folder(options.output_folder, options.files, force=options.force)
    # What the translations depend on, so that blocks made with other options are not reused.
    depends_on = {"--source-lang": options.source_lang, "--target-lang": options.target_lang}
    for declared in (TranslatorOptions, LineOptions):
        depends_on |= dict(that_change_results(options_of(declared, options)))
    load = functools.partial(_load_actor, options)
    threads = options.threads or 1
    start = functools.partial(Translators, address, load, options.ray_actors, threads, gpu=not options.cpu)
    translate_large_text(
        options.files,
        output,
        in_folder=options.output is None,
        lines=options.buffer_lines,
        depends_on=depends_on,
        start=start,
        force=options.force,
    )
    return 0


def _load_actor(options: argparse.Namespace) -> Loaded:
    """Load an actor's translator; return its function and digests."""
    from fairseq_compat.process import keep_freed_memory

    # Other processes do this at the start of a command, but this one is started by Ray.
    keep_freed_memory()
    translator = load_translator(options)

    def translate(block: Block) -> tuple[bytes, list[str]]:
        text, warnings = translated_block(translator, block, options)
        return compressed(options.output or block.path, text), warnings

    return translate, translator.digests()


def _require_files(options: argparse.Namespace) -> str | None:
    """Return the output, after checking what would otherwise fail late: when the model is loaded, or at the end."""
    if options.files.count("-") > 1:
        raise UserError(f"stdin (-) is given {options.files.count('-')} times; it can be read once")
    for path in options.files:
        if os.path.isdir(path):
            raise UserError(f"{path} is a folder; give a text file")
        # Not pipes: opened and closed here, they would lose what has been written to them.
        if path != "-" and (os.path.isfile(path) or not os.path.exists(path)):
            open(path, "rb").close()
    if options.output is None:
        return None
    # The output must not be one of the files that are read.
    inputs = [path for path in options.files if path != "-"]
    inputs += filter(None, (options.bpe_codes, options.sentencepiece_model))
    inputs += input_files(options.model)
    if options.data:
        inputs += glob.glob(os.path.join(glob.escape(options.data), "dict.*"))
    return output_file("--output", options.output, force=options.force, inputs=inputs, stream=options.ray is None)


def _translate(translator: LoadedTranslator, output: IO[bytes], options: argparse.Namespace, *, at_once: bool) -> None:
    """Translate block after block, so that memory does not grow with the text."""
    started = last_report = time.monotonic()
    done = 0
    for block in blocks_of(options.files, 1 if at_once else options.buffer_lines):
        text, warnings = translated_block(translator, block, options)
        for warning in warnings:
            print(warning, file=sys.stderr)
        # Concatenated .gz or .xz blocks are a valid file.
        output.write(compressed(options.output or "", text))
        output.flush()
        done += len(block.lines)
        if not at_once and time.monotonic() - last_report > _EVERY:
            last_report = time.monotonic()
            print(f"  {_lines(done)}, {done / (last_report - started):,.1f} a second", file=sys.stderr)
    # Even an empty .gz or .xz file has a header.
    if not done:
        output.write(compressed(options.output or "", b""))
    if not at_once:
        print(f"{_lines(done)} translated in {time.monotonic() - started:,.1f} s", file=sys.stderr)


def translated_block(
    translator: LoadedTranslator, block: Block, options: argparse.Namespace
) -> tuple[bytes, list[str]]:
    """Return the lines to write for a block, and warnings about its translations."""
    import torch

    texts: list[str] = list(block.lines)
    constraints: list[list[str]] | None = None
    if options.constraints:
        texts, constraints = [], []
        for line in block.lines:
            text, *constraints_of_line = line.split("\t")
            texts.append(text)
            constraints.append(constraints_of_line)
    if options.sampling:  # the same seed for a block, wherever and whenever it is translated
        place = hashlib.sha256(f"{options.seed or 1} {block.file} {block.number}".encode()).digest()
        torch.manual_seed(int.from_bytes(place[:7], "big"))
    translations = translator.translations(texts, constraints=constraints)
    where = "stdin" if block.path == "-" else block.path
    lines = []
    warnings = []
    for number, translation in enumerate(translations, start=block.first):
        lines.append(f"{_as_line(translation, options)}\n")
        for warning in _warnings(translation):
            warnings.append(f"{where}, line {number}: {warning}")
    return "".join(lines).encode(), warnings


def _as_line(translation: Translation, options: argparse.Namespace) -> str:
    best = translation.hypotheses[0]
    if options.json:
        return json.dumps(_as_document(translation, options), ensure_ascii=False, allow_nan=False)
    fields = [best.text]
    if options.scores:
        fields.insert(0, f"{best.score:.4f}")
    if best.alignment is not None:
        fields.append(" ".join(f"{source}-{target}" for source, target in best.alignment))
    if best.attention is not None:
        rows = []
        for row in best.attention:
            rows.append(",".join(f"{weight:.6f}" for weight in row))
        fields.append(" ".join(rows))
    return "\t".join(fields)


def _as_document(translation: Translation, options: argparse.Namespace) -> dict[str, Any]:
    best = _fields_of(translation.hypotheses[0])
    # The fields of the best hypothesis are those of the line, with or without --nbest.
    document = {"source": translation.source, "translation": best.pop("text"), **best}
    if translation.source_words is not None:
        document["source_words"] = translation.source_words
    if options.constraints:
        document["unmet_constraints"] = translation.unmet_constraints
    if options.nbest > 1:
        document["nbest"] = list(map(_fields_of, translation.hypotheses))
    return document


def _fields_of(hypothesis: Hypothesis) -> dict[str, Any]:
    """Return the fields of a hypothesis that are set."""
    return {name: value for name, value in vars(hypothesis).items() if value is not None}


def _warnings(translation: Translation) -> Iterator[str]:
    """Yield warnings for a line's translation."""
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
