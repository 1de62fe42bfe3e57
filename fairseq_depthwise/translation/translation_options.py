"""Options of translating and exporting, on the command line and in programs. Nothing here imports PyTorch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from fairseq_compat import UserError
from fairseq_compat.ranges import RANGES
from fairseq_depthwise.options import CheckedOptions, between, option, positive_int
from fairseq_depthwise.translation.export_formats import FORMATS

if TYPE_CHECKING:
    from omegaconf import DictConfig


#: The formats of ``export`` that can be in int8, for help and messages.
_WITH_INT8 = " or ".join(name for name, export_format in FORMATS.items() if export_format.has_int8)

#: Converts a length penalty. Within these limits, scores of up to 100,000 tokens are finite in float32.
as_length_penalty = between(RANGES["lenpen"].lowest, RANGES["lenpen"].highest)


def refuse_pairs(*pairs: tuple[str, str, Any]) -> None:
    """Raise UserError for the first pair of options that are both set; ``pairs``: option, option, whether both are."""
    for first, second, both in pairs:
        if both:
            raise UserError(f"{first} does not go with {second}; leave one of them out")


def refuse_without(*pairs: tuple[str, str, Any]) -> None:
    """Raise UserError for the first option that lacks another; ``pairs``: option, the other, whether it is missing."""
    for option_name, needed, is_missing in pairs:
        if is_missing:
            raise UserError(f"{option_name} is for {needed}; add it")


@dataclass(frozen=True)
class BeamOptions(CheckedOptions):
    """How hypotheses are searched for; all defaults but the first two are fairseq's."""

    TITLE: ClassVar[str] = "search"

    beam: int = option(4, "beam size", type=between(1, 10_000, int))
    length_penalty: float = option(0.6, "length penalty", flag="--lenpen", type=as_length_penalty, metavar="P")
    max_length: int = option(200, "tokens of a translation", flag="--max-len-b", type=between(1, 2**24, int))
    constraints: str | None = option(
        None,
        "after a line's text come tabs, each with words that its translation must have, in this order (ordered, the "
        "default) or in any (unordered); stderr names those that it has not",
        nargs="?",
        const="ordered",
        choices=("ordered", "unordered"),
        metavar="ORDER",
    )
    sampling: bool = option(
        False, "draw translations instead of searching for the most probable ones; --beam 1 draws one of each line"
    )
    sampling_topk: int | None = option(
        None, "draw from the K most probable tokens (default: all)", type=positive_int, metavar="K"
    )

    def cfg(self) -> DictConfig:
        """Return fairseq's complete configuration with these options."""
        from fairseq.dataclass.configs import FairseqConfig
        from omegaconf import OmegaConf

        cfg = OmegaConf.structured(FairseqConfig)
        search = {"beam": self.beam, "lenpen": self.length_penalty, "max_len_b": self.max_length}
        # In fairseq -1 means all tokens.
        cfg.generation.update(search | {"sampling": self.sampling, "sampling_topk": self.sampling_topk or -1})
        return cfg


@dataclass(frozen=True)
class TextOptions(CheckedOptions):
    """How text becomes tokens; None stands for what the training recorded."""

    TITLE: ClassVar[str] = "text processing"

    tokenizer: str | None = option(None, "as fairseq's: moses, space, nltk; or none", metavar="NAME")
    bpe: str | None = option(None, "as fairseq's: subword_nmt, sentencepiece, ...; or none", metavar="NAME")
    # Digests cover the contents of these files, so their names do not matter.
    bpe_codes: str | None = option(None, "codes of subword-nmt", metavar="FILE", changes_result=False)
    sentencepiece_model: str | None = option(None, "model of SentencePiece", metavar="FILE", changes_result=False)
    tokenized: bool = option(
        False, "the text is tokens as the model reads them, in subwords; translations stay as the model writes them"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tokenized:
            return
        for value in (self.tokenizer, self.bpe, self.bpe_codes, self.sentencepiece_model):
            if value not in (None, "none"):
                raise UserError(f"--tokenized text is neither tokenized nor split, and {value} is given; leave one out")


@dataclass(frozen=True)
class TranslatorOptions(CheckedOptions):
    """How lines are translated."""

    TITLE: ClassVar[str] = "computation and output"

    beam: BeamOptions = field(default_factory=BeamOptions)
    text: TextOptions = field(default_factory=TextOptions)
    nbest: int = option(1, "translations of a line, at most --beam")
    max_tokens: int | None = option(
        None,
        "source tokens in a batch, padding counted; the result does not depend on it, but with --int8 a little "
        "(default: 4096 without --batch-size)",
        type=positive_int,
        metavar="N",
        changes_result=False,
    )
    batch_size: int | None = option(None, "lines in a batch", type=positive_int, metavar="N", changes_result=False)
    max_line_tokens: int | None = option(
        None,
        "translate a line of more tokens in pieces, cut at ends of sentences (default: what the model takes)",
        type=positive_int,
        metavar="N",
    )
    precision: str = option(
        "fp32",
        {
            "bf16": "compute in bf16",
            "fp16": "compute in fp16, which needs a GPU",
            "int8": "compute matrix products in int8, on a CPU, by onnxruntime; made at the first use, and kept",
        },
    )
    compile: bool | None = option(
        None,
        "compile the model for this CPU, which takes a minute or more, and keep the result, which later commands use "
        "without being asked, unless they are told --no-compile",
        action=argparse.BooleanOptionalAction,
        changes_result=False,
    )
    alignment: str | None = option(
        None,
        "the words of the tokenized texts that belong together: pairs of a source and a target word, as 0-0 1-2 (hard, "
        "the default); or how much each target word attends to each source word (soft)",
        flag="--print-alignment",
        nargs="?",
        const="hard",
        choices=("hard", "soft"),
        metavar="KIND",
    )
    token_scores: bool = option(False, "the tokens of translations and their log-probabilities to base 2")

    def __post_init__(self) -> None:
        super().__post_init__()
        int8 = self.precision == "int8"
        refuse_pairs(
            ("--int8", "--compile", int8 and self.compile),
            ("--sampling", "--constraints", self.beam.sampling and self.beam.constraints),
            ("--sampling", "--int8", self.beam.sampling and int8),
            ("--sampling", "--compile", self.beam.sampling and self.compile),
        )
        refuse_without(("--sampling-topk", "--sampling", self.beam.sampling_topk and not self.beam.sampling))
        if self.nbest > self.beam.beam:
            raise UserError(f"--nbest {self.nbest} is more than the hypotheses that --beam {self.beam.beam} keeps")


@dataclass(frozen=True)
class ExportOptions(CheckedOptions):
    """What is exported, and how."""

    data: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    format: str = option(
        next(iter(FORMATS)),
        "; or ".join(export_format.help for export_format in FORMATS.values()),
        choices=tuple(FORMATS),
    )
    int8: bool = option(False, f"compute matrix products in int8, with --format {_WITH_INT8}")
    force: bool = option(False, "replace OUT if it is an export")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.int8 and not FORMATS[self.format].has_int8:
            raise UserError(f"--int8 is for --format {_WITH_INT8}, not for {self.format}")
