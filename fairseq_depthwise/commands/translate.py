"""``translate``: raw text in, raw text out, with a model that is loaded once."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import output_file
from fairseq_compat.versions import fairseq_problem
from fairseq_depthwise.commands.parsers import add_parser, positive_int
from fairseq_depthwise.commands.translation_cost import translation_cost
from fairseq_depthwise.text_files import lines_of

if TYPE_CHECKING:
    from fairseq_depthwise.serving.loaded_translator import Hypothesis, LoadedTranslator, Translation

#: Seconds from one word on stderr about how far it is to the next.
_EVERY = 10.0


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "translate",
        run=run,
        help="translate text: raw lines in, raw translations out, in order",
        example="fairseq-depthwise translate checkpoints --bpe-codes bpe.codes --tokenizer moses < new.en > new.de\n"
        "  fairseq-depthwise translate average.pt test.en --output test.hyp\n"
        "  fairseq-depthwise translate a.pt:b.pt --json --nbest 4 < new.en\n"
        "  fairseq-depthwise translate average.pt test.en --cpu --int8 --reference test.de\n"
        "  printf 'The dog sleeps.\\tHund\\n' | fairseq-depthwise translate average.pt --constraints --json\n\n"
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
        help="text, one sentence in each line; - is stdin (default: stdin)",
    )  # fmt: skip
    parser.add_argument("--data", metavar="BIN", help="the folder with the dictionaries")
    parser.add_argument("-s", "--source-lang", metavar="LANG", help="language of the text")
    parser.add_argument("-t", "--target-lang", metavar="LANG", help="language of the translations")
    _add_text_options(parser)
    _add_search_options(parser)
    _add_analysis_options(parser)
    parser.add_argument("--output", metavar="FILE", help="write to this file instead of stdout, once all is translated")
    parser.add_argument("--force", action="store_true", help="replace --output if it exists")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--scores", action="store_true", help="write the score and a tab before each translation")
    form.add_argument(
        "--json", action="store_true", help="write a JSON object in each line: source, translation, score, ..."
    )


def _add_text_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("text processing")
    group.add_argument("--tokenizer", metavar="NAME", help="as fairseq's: moses, space, nltk; or none")
    group.add_argument("--bpe", metavar="NAME", help="as fairseq's: subword_nmt, sentencepiece, ...; or none")
    group.add_argument("--bpe-codes", metavar="FILE", help="codes of subword-nmt")
    group.add_argument("--sentencepiece-model", metavar="FILE", help="model of SentencePiece")
    group.add_argument(
        "--tokenized", action="store_true",
        help="the text is tokens as the model reads them, in subwords; translations stay as the model writes them",
    )  # fmt: skip


def _add_search_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("search")
    group.add_argument("--beam", type=positive_int, default=4, metavar="N", help="beam size (default: 4)")
    group.add_argument("--lenpen", type=float, default=0.6, metavar="P", help="length penalty (default: 0.6)")
    group.add_argument(
        "--max-len-b", type=positive_int, default=200, metavar="N", help="tokens of a translation (default: 200)"
    )
    group.add_argument("--nbest", type=positive_int, default=1, metavar="N", help="translations of a line, with --json")
    group.add_argument(
        "--constraints", nargs="?", const="ordered", choices=("ordered", "unordered"), metavar="ORDER",
        help="after a line's text come tabs, each with words that its translation must have, in this order (ordered, "
        "the default) or in any (unordered); stderr names those that it has not",
    )  # fmt: skip
    group.add_argument(
        "--max-tokens", type=positive_int, metavar="N",
        help="source tokens in a batch; the result does not depend on it, but with --int8 a little (default: 4096 "
        "without --batch-size)",
    )  # fmt: skip
    group.add_argument("--batch-size", type=positive_int, metavar="N", help="lines in a batch")
    group.add_argument(
        "--buffer-lines", type=positive_int, default=1000, metavar="N",
        help="read, and put into batches by length, so many lines at a time (default: 1000; 1 at a terminal)",
    )  # fmt: skip
    group.add_argument(
        "--max-line-tokens", type=positive_int, metavar="N",
        help="translate a line of more tokens in pieces, cut at ends of sentences (default: what the model takes)",
    )  # fmt: skip
    group.add_argument("--cpu", action="store_true", help="do not use GPUs")
    precision = group.add_mutually_exclusive_group()
    precision.add_argument("--bf16", action="store_true", help="compute in bf16")
    precision.add_argument("--fp16", action="store_true", help="compute in fp16, which needs a GPU")
    group.add_argument(
        "--compile", action="store_true",
        help="compile the model for this CPU at the first use, which takes minutes, and keep the result",
    )  # fmt: skip
    precision.add_argument(
        "--int8", action="store_true",
        help="compute matrix products in int8, on a CPU, by onnxruntime; made at the first use, and kept",
    )  # fmt: skip
    group.add_argument(
        "--reference", metavar="REF",
        help="translate in float32, too, and write what the lower precision costs in BLEU instead of translations; "
        "the models are loaded one after the other",
    )  # fmt: skip
    group.add_argument("--threads", type=positive_int, metavar="N", help="of PyTorch, on a CPU")


def _add_analysis_options(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> int:
    if (problem := fairseq_problem()) is not None:
        raise UserError(problem)
    output_path = _require_files(options)
    if options.nbest > 1 and not options.json:
        raise UserError(f"--nbest {options.nbest} makes several translations of a line; add --json, which shows them")
    if options.token_scores and not options.json and not options.reference:
        raise UserError("--token-scores are written as JSON only; add --json")
    precision = next((name for name in ("int8", "bf16", "fp16") if getattr(options, name)), "fp32")
    if options.reference:
        return _write_cost(options, precision, output_path)
    at_terminal = options.files == ["-"] and sys.stdin.isatty()
    # Each file is numbered by itself in what is said of its lines.
    lines = chain.from_iterable(
        ((path, number, line) for number, line in enumerate(lines_of(path), start=1)) for path in options.files
    )
    translator = _load(options, precision)
    if at_terminal:
        print("type a sentence and press return; Ctrl-D ends", file=sys.stderr)
    try:
        with _opened(output_path) as output:
            _translate(translator, lines, output, options, at_once=at_terminal)
    except KeyboardInterrupt:
        return 130
    return 0


def _write_cost(options: argparse.Namespace, precision: str, output_path: str | None) -> int:
    if precision == "fp32":
        raise UserError("--reference compares a lower precision with float32; add --int8, --bf16 or --fp16")
    names = ("scores", "constraints", "print_alignment", "token_scores")
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    given += ["--nbest"] if options.nbest > 1 else []
    if given:
        raise UserError(f"--reference writes a comparison instead of translations; leave {' and '.join(given)} out")
    text = translation_cost(options, precision, lambda one: _load(options, one))
    with _opened(output_path) as output:
        output.write(text.encode("utf-8"))
    return 0


def _require_files(options: argparse.Namespace) -> str | None:
    """Find what would otherwise go wrong after the model has been loaded, or after a long time; return the output."""
    given = [*options.files, *([options.reference] if options.reference else [])]
    if given.count("-") > 1:
        raise UserError(f"stdin (-) is given {given.count('-')} times; it can be read once")
    for path in given:
        if path != "-":
            with open(path, "rb") if not os.path.isdir(path) else nullcontext():
                pass
        if os.path.isdir(path):
            raise UserError(f"{path} is a folder; give a text file")
    if options.output is None:
        return None
    read = [path for path in [*given, *options.model.split(":")] if path != "-"]
    return output_file("--output", options.output, force=options.force, inputs=read, stream=True)


def _load(options: argparse.Namespace, precision: str) -> LoadedTranslator:
    import torch

    from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only
    from fairseq_depthwise.serving.argument_names import options_named
    from fairseq_depthwise.serving.beam_search import BeamOptions
    from fairseq_depthwise.serving.loaded_translator import LoadedTranslator, TranslatorOptions
    from fairseq_depthwise.serving.text_codec import TextOptions

    if options.threads:
        torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    if options.fp16 and device == "cpu":
        raise UserError("--fp16 needs a GPU; --bf16 runs on a CPU, too")
    names = ("tokenizer", "bpe", "bpe_codes", "sentencepiece_model", "tokenized")
    max_tokens = options.max_tokens or (None if options.batch_size else 4096)
    with options_named(), fairseq_warnings_only():
        chosen = TranslatorOptions(
            beam=BeamOptions(options.beam, options.lenpen, options.max_len_b, options.constraints),
            text=TextOptions(**{name: getattr(options, name) for name in names}),
            nbest=options.nbest,
            token_scores=options.token_scores,
            alignment=options.print_alignment or False,
            max_tokens=max_tokens,
            batch_size=options.batch_size,
            max_line_tokens=options.max_line_tokens,
            dtype={"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32),
            int8=precision == "int8",
            compile=options.compile,
        )
        translator = LoadedTranslator(
            options.model, data=options.data, source_lang=options.source_lang, target_lang=options.target_lang,
            options=chosen, device=device, say=lambda sentence: print(sentence, file=sys.stderr),
        )  # fmt: skip
    source, target = translator.languages
    where = f"{source} to {target}, on {translator.device}"
    print(f"{', '.join(translator.files)} with {translator.data}: {where}", file=sys.stderr)
    return translator


def _opened(output: str | None) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdout.buffer) if output is None else atomic_write(output)


def _translate(
    translator: LoadedTranslator,
    lines: Iterator[tuple[str, int, str]],
    output: IO[bytes],
    options: argparse.Namespace,
    *,
    at_once: bool,
) -> None:
    """Buffer after buffer, so that what is kept does not grow with the text."""
    from fairseq_depthwise.serving.argument_names import options_named

    started = said = time.monotonic()
    done = 0
    while buffer := list(islice(lines, 1 if at_once else options.buffer_lines)):
        texts, constraints = [line for _, _, line in buffer], None
        if options.constraints:
            fields = [text.split("\t") for text in texts]
            texts, constraints = [text for text, *_ in fields], [after for _, *after in fields]
        with options_named():
            found = translator.translations(texts, constraints=constraints)
        for (path, number, _), one in zip(buffer, found, strict=True):
            _say_what_is_odd("stdin" if path == "-" else path, number, one)
        output.write("".join(f"{_as_line(one, options)}\n" for one in found).encode("utf-8"))
        output.flush()
        done += len(buffer)
        if not at_once and time.monotonic() - said > _EVERY:
            said = time.monotonic()
            print(f"  {_lines(done)}, {done / (said - started):,.1f} a second", file=sys.stderr)
    if not at_once:
        print(f"{_lines(done)} translated in {time.monotonic() - started:,.1f} s", file=sys.stderr)


def _as_line(one: Translation, options: argparse.Namespace) -> str:
    best = one.hypotheses[0]
    if options.json:
        return json.dumps(_as_document(one, options), ensure_ascii=False)
    fields = [best.text]
    if options.scores:
        fields.insert(0, f"{best.score:.4f}")
    if best.alignment is not None:
        fields.append(" ".join(f"{source}-{target}" for source, target in best.alignment))
    if best.attention is not None:
        fields.append(" ".join(",".join(f"{weight:.6f}" for weight in row) for row in best.attention))
    return "\t".join(fields)


def _as_document(one: Translation, options: argparse.Namespace) -> dict[str, Any]:
    best = _fields_of(one.hypotheses[0])
    document = {"source": one.source, "translation": best.pop("text"), **best}
    if one.source_words is not None:
        document["source_words"] = one.source_words
    if options.constraints:
        document["unmet_constraints"] = one.unmet_constraints
    if options.nbest > 1:
        document["nbest"] = list(map(_fields_of, one.hypotheses))
    return document


def _fields_of(hypothesis: Hypothesis) -> dict[str, Any]:
    """Return what is known of a hypothesis."""
    return {name: value for name, value in vars(hypothesis).items() if value is not None}


def _say_what_is_odd(path: str, number: int, one: Translation) -> None:
    where = f"{path}, line {number}"
    if one.pieces > 1:
        print(f"{where}: too long for the model, translated in {one.pieces} pieces", file=sys.stderr)
    if one.cut_off:
        print(
            f"{where}: the translation has as many tokens as it may have and is perhaps cut off; a larger --max-len-b "
            "allows more, a smaller --max-line-tokens cuts the line",
            file=sys.stderr,
        )
    for constraint, why in one.unmet_constraints.items():
        print(f"{where}: the translation lacks the constraint {constraint!r}: {why}", file=sys.stderr)


def _lines(count: int) -> str:
    return f"{count:,} line{'' if count == 1 else 's'}"
