"""Raw text to the tokens that a model was trained with, and back."""

from __future__ import annotations

import logging
import os
import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from fairseq.data import Dictionary, encoders
from fairseq.data.encoders import BPE_REGISTRY, TOKENIZER_REGISTRY

from fairseq_compat import provenance
from fairseq_compat.errors import UserError
from fairseq_depthwise.checkpoints.recorded_paths import moved_file
from fairseq_depthwise.translation.translation_options import TextOptions as TextOptions

log = logging.getLogger(__name__)

#: What ``--post-process`` of fairseq calls the subwords of each kind, and how they mark what they are a part of: by
#: their begin, or by their end.
MARKS = {"sentencepiece": ("\u2581", ""), "subword_nmt": ("", "@@"), "fastbpe": ("", "@@")}

#: fairseq's option that names the learned subwords of each kind; the first kind is the one that a file stands for.
_FILES = {"subword_nmt": "bpe_codes", "sentencepiece": "sentencepiece_model", "fastbpe": "bpe_codes"}

#: What a record may say without the user's word -> its options that are read. Others look for files in the network.
_RECORDED = {
    **dict.fromkeys(("nltk", "space", "moses_normalized", "bytes", "characters"), ()),
    "moses": ("moses_no_dash_splits", "moses_no_escape"),
    "subword_nmt": ("bpe_codes", "bpe_separator"),
    "sentencepiece": ("sentencepiece_model", "sentencepiece_enable_sampling", "sentencepiece_alpha"),
    "fastbpe": ("bpe_codes",),
}

_MOST_WORDS = 100_000  # words that subword-nmt may remember

#: What is more than a word, such as a page of Chinese, becomes several.
_LONG_WORD = re.compile(r"(\S{1000})(?=\S)")


def post_process_for(dictionary: Dictionary) -> str | None:
    """Return what makes words of the entries: ``sentencepiece``, ``subword_nmt``, or None where they are words."""
    for name, (begin, end) in MARKS.items():
        if any(symbol.startswith(begin) and symbol.endswith(end) for symbol in dictionary.symbols):
            return name
    return None


@dataclass(frozen=True)
class TextSettings:
    """The same after the record was looked at: options of fairseq's tokenizer and subwords, empty for none."""

    tokenizer: Mapping[str, Any]  # with its name as "tokenizer"
    bpe: Mapping[str, Any]  # with its name as "bpe"

    def require(self, path: str, recorded: provenance.Record) -> None:
        """Raise UserError where the checkpoint ``path`` records another tokenizer, or other subwords."""
        needed = self.bpe.get(_FILES.get(self.bpe.get("bpe", ""), ""), "these options")
        provenance.require_same(path, recorded, provenance.of_text(self.tokenizer, self.bpe), needed)

    @cached_property
    def subwords(self) -> Any:
        """fairseq's object for the subwords, the same for every direction; None for none."""
        return encoders.build_bpe(Namespace(**self.bpe))


def settings_for(
    options: TextOptions,
    cfg: Mapping[str, Any],
    dictionary: Dictionary,
    *,
    path: str,
    data: str,
    recorded: provenance.Record = MappingProxyType({}),
) -> TextSettings:
    """Return what is given, and for the rest what a training recorded in ``cfg``, with files in or beside ``data``."""
    if options.tokenized:
        return TextSettings({}, {})
    settings = TextSettings(
        _chosen("tokenizer", options.tokenizer, cfg, TOKENIZER_REGISTRY, path),
        _subwords(options, cfg, dictionary, path, data, recorded),
    )
    settings.require(path, recorded)
    for kind in ("tokenizer", "bpe"):
        if kind in recorded and not getattr(settings, kind):
            log.warning(
                "%s was trained with --%s %s, and lines do not go through it here; give that, unless they are tokens",
                path, kind, recorded[kind],
            )  # fmt: skip
    return settings


def _subwords(
    options: TextOptions,
    cfg: Mapping[str, Any],
    dictionary: Dictionary,
    path: str,
    data: str,
    record: provenance.Record,
) -> dict[str, Any]:
    """Return the subwords' part of the settings."""
    given = {file: value for file in dict.fromkeys(_FILES.values()) if (value := getattr(options, file))}
    for file, value in given.items():
        if not os.path.isfile(value):
            raise UserError(f"{_option(file)} {value} is not a file; give what the training's text was split with")
    name, recorded = options.bpe, provenance.settings_in("bpe", cfg)
    if name is None and not recorded.keys() & given.keys():
        name = next((kind for kind, file in _FILES.items() if file in given), None)
    chosen = _chosen("bpe", name, cfg, BPE_REGISTRY, path)
    kind = chosen.get("bpe")
    needed = _FILES.get(kind or "")
    for file in given:
        if file != needed:
            raise UserError(f"{_option(file)} is given, and --bpe {kind or 'none'} does not read it; leave one out")
    if needed is not None:
        if needed in given:
            chosen[needed] = given[needed]
        elif (recorded_file := chosen.get(needed, "???")) in (None, "", "???"):
            raise UserError(f"--bpe {kind} needs a file, and {path} names none; give it with {_option(needed)}")
        else:
            moved = moved_file(str(recorded_file), path, data, _option(needed), record.get(needed))
            chosen[needed] = os.path.abspath(moved)
    if kind is None and options.bpe is None and (found := post_process_for(dictionary)) is not None:
        raise UserError(
            f"{path} was trained with subwords of the kind {found}, and does not say of which file; give it with "
            f"{_option(_FILES[found])}, or --tokenized if the lines are subwords already"
        )
    return chosen


class TextCodec:
    """Text to tokens of one language, and tokens of another to text, as fairseq-interactive does it."""

    def __init__(self, settings: TextSettings, source_lang: str, target_lang: str) -> None:
        languages = {"source_lang": source_lang, "target_lang": target_lang}
        self._tokenizer = encoders.build_tokenizer(Namespace(**{**settings.tokenizer, **languages}))
        self._bpe = settings.subwords

    def encode(self, line: str) -> str:
        """Return the tokens of a line, with spaces between them."""
        line = line.strip()
        if self._tokenizer is not None:
            line = self._tokenizer.encode(line)
        if self._bpe is None:
            return line
        # subword-nmt remembers every word that it has split, and takes a time of the square of its length.
        known = getattr(getattr(self._bpe, "bpe", None), "cache", None)
        if known is not None:
            line = _LONG_WORD.sub(r"\1 ", line)
            if len(known) > _MOST_WORDS:
                known.clear()
        tokens: str = self._bpe.encode(line)
        return tokens

    def decode(self, tokens: str) -> str:
        """Return the text of tokens, one line; of bytes it could be more."""
        text: str = tokens if self._bpe is None else self._bpe.decode(tokens)
        text = text if self._tokenizer is None else self._tokenizer.decode(text)
        return text.replace("\n", " ")


def _chosen(kind: str, name: str | None, cfg: Mapping[str, Any], known: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return what is named; otherwise what was recorded, of a kind that reads nothing but files of this machine."""
    found = provenance.settings_in(kind, cfg)
    read = (kind, *_RECORDED.get(str(found.get(kind)), ()))
    recorded = {option: value for option, value in found.items() if option in read}
    given = name
    name = name or recorded.get(kind) or "none"
    if name == "none":
        return {}
    if name not in known:
        raise UserError(f"--{kind} {name} is not known; it must be none or one of {', '.join(sorted(known))}")
    if name not in _RECORDED and given is None:
        raise UserError(f"{path} records --{kind} {name}, which may fetch files; give the option, or --{kind} none")
    return recorded if recorded.get(kind) == name else {kind: name}


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
