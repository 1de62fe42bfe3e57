"""What ``translate`` and ``serve`` have in common: options of text and search, and a translator made of them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import positive_int

if TYPE_CHECKING:
    from fairseq_depthwise.serving.loaded_translator import LoadedTranslator


#: Attribute of BeamOptions -> option.
_BEAM_OPTIONS = {
    **{name: name for name in ("beam", "constraints", "sampling", "sampling_topk")},
    "length_penalty": "lenpen",
    "max_length": "max_len_b",
}


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how text becomes tokens."""
    group = parser.add_argument_group("text processing")
    group.add_argument("--tokenizer", metavar="NAME", help="as fairseq's: moses, space, nltk; or none")
    group.add_argument("--bpe", metavar="NAME", help="as fairseq's: subword_nmt, sentencepiece, ...; or none")
    group.add_argument("--bpe-codes", metavar="FILE", help="codes of subword-nmt")
    group.add_argument("--sentencepiece-model", metavar="FILE", help="model of SentencePiece")
    group.add_argument(
        "--tokenized", action="store_true",
        help="the text is tokens as the model reads them, in subwords; translations stay as the model writes them",
    )  # fmt: skip


def add_search_options(parser: argparse.ArgumentParser, *, nbest: str) -> Any:
    """Add the options of the search and of what it computes with, and return their group.

    Args:
        nbest: what ``--nbest`` means here.
    """
    group = parser.add_argument_group("search")
    group.add_argument("--beam", type=positive_int, default=4, metavar="N", help="beam size (default: 4)")
    group.add_argument("--lenpen", type=float, default=0.6, metavar="P", help="length penalty (default: 0.6)")
    group.add_argument(
        "--max-len-b", type=positive_int, default=200, metavar="N", help="tokens of a translation (default: 200)"
    )
    group.add_argument("--nbest", type=positive_int, default=1, metavar="N", help=nbest)
    group.add_argument(
        "--max-tokens", type=positive_int, metavar="N",
        help="source tokens in a batch; the result does not depend on it, but with --int8 a little (default: 4096 "
        "without --batch-size)",
    )  # fmt: skip
    group.add_argument("--batch-size", type=positive_int, metavar="N", help="lines in a batch")
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
    group.add_argument("--threads", type=positive_int, metavar="N", help="of PyTorch, on a CPU")
    return group


def chosen_precision(options: argparse.Namespace) -> str:
    """Return int8, bf16, fp16 or fp32."""
    return next((name for name in ("int8", "bf16", "fp16") if getattr(options, name)), "fp32")


def load_translator(options: argparse.Namespace, precision: str) -> LoadedTranslator:
    """Load what the options of this file and of the model name, and say on stderr what it is."""
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
    for name in ("tokenizer", "bpe", "bpe_codes", "sentencepiece_model") if options.tokenized else ():
        if getattr(options, name) not in (None, "none"):
            raise UserError(
                f"--{name.replace('_', '-')} {getattr(options, name)} contradicts --tokenized: text that is tokens "
                "already is neither tokenized nor split; leave one of them out"
            )
    names = ("tokenizer", "bpe", "bpe_codes", "sentencepiece_model", "tokenized")
    max_tokens = options.max_tokens or (None if options.batch_size else 4096)
    with options_named(), fairseq_warnings_only():
        chosen = TranslatorOptions(
            beam=BeamOptions(**{name: getattr(options, option) for name, option in _BEAM_OPTIONS.items()}),
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
