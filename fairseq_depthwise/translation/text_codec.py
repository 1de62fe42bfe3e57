"""Converts raw text to the tokens that a model was trained with, and back."""

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
from fairseq_depthwise.translation.translation_options import TextOptions

log = logging.getLogger(__name__)

#: Kind of subwords, as in fairseq's ``--post-process`` -> the mark at the beginning of tokens that begin a word, and
#: the mark at the end of tokens that do not end one.
MARKS = {"sentencepiece": ("\u2581", ""), "subword_nmt": ("", "@@"), "fastbpe": ("", "@@")}

#: Kind of subwords -> fairseq's option for its file; if only a file is given, the first kind with that option.
_FILES = {"subword_nmt": "bpe_codes", "sentencepiece": "sentencepiece_model", "fastbpe": "bpe_codes"}

#: Recorded tokenizers and subwords that are used without being asked for -> the recorded options that are read. Others
#: might download files.
_RECORDED = {
    **dict.fromkeys(("nltk", "space", "moses_normalized", "bytes", "characters"), ()),
    "moses": ("moses_no_dash_splits", "moses_no_escape"),
    "subword_nmt": ("bpe_codes", "bpe_separator"),
    "sentencepiece": ("sentencepiece_model", "sentencepiece_enable_sampling", "sentencepiece_alpha"),
    "fastbpe": ("bpe_codes",),
}

_MOST_WORDS = 100_000  # the most words in subword-nmt's cache

#: Splits what is too long for a word, such as a page of Chinese.
_LONG_WORD = re.compile(r"(\S{1000})(?=\S)")


def post_process_for(dictionary: Dictionary) -> str | None:
    """Return the ``--post-process`` that turns entries into words: ``sentencepiece`` or ``subword_nmt``, else None."""
    for name, (begin, end) in MARKS.items():
        if any(symbol.startswith(begin) and symbol.endswith(end) for symbol in dictionary.symbols):
            return name
    return None


@dataclass(frozen=True)
class TextSettings:
    """Options of fairseq's tokenizer and subwords, from the user and the training's record; empty for none."""

    tokenizer: Mapping[str, Any]  # with its name as "tokenizer"
    bpe: Mapping[str, Any]  # with its name as "bpe"

    def require(self, path: str, recorded: provenance.Record) -> None:
        """Raise UserError if the checkpoint ``path`` records a different tokenizer or different subwords."""
        needed = self.bpe.get(_FILES.get(self.bpe.get("bpe", ""), ""), "these options")
        provenance.require_same(path, recorded, provenance.of_text(self.tokenizer, self.bpe), needed)

    @cached_property
    def subwords(self) -> Any:
        """fairseq's object for subwords, shared by all directions; None without subwords."""
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
    """Return the options' settings, or else those that training recorded in ``cfg``, with files in or near ``data``."""
    if options.tokenized:
        return TextSettings({}, {})
    settings = TextSettings(
        _settings_of("tokenizer", options.tokenizer, cfg, TOKENIZER_REGISTRY, path),
        _subwords(options, cfg, dictionary, path, data, recorded),
    )
    settings.require(path, recorded)
    for kind in ("tokenizer", "bpe"):
        if kind in recorded and not getattr(settings, kind):
            log.warning(
                "%s was trained with --%s %s, and lines do not go through it here; give that, unless they are tokens",
                path,
                kind,
                recorded[kind],
            )
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
    files: dict[str, str] = {}
    # 1. Files named by options; two kinds of subwords share one option.
    for option in dict.fromkeys(_FILES.values()):
        file = getattr(options, option)
        if file and not os.path.isfile(file):
            raise UserError(f"{_flag(option)} {file} is not a file; give what the training's text was split with")
        if file:
            files[option] = file

    # 2. The kind: the option's, or the training's, or that of the file named by an option.
    name, recorded = options.bpe, provenance.settings_in("bpe", cfg)
    if name is None and not recorded.keys() & files.keys():
        name = next((kind for kind, option in _FILES.items() if option in files), None)
    settings = _settings_of("bpe", name, cfg, BPE_REGISTRY, path)
    kind = settings.get("bpe")
    needed = _FILES.get(kind or "")
    for option in files:
        if option != needed:
            raise UserError(f"{_flag(option)} is given, and --bpe {kind or 'none'} does not read it; leave one out")

    # 3. Its file: the option's, or the recorded one, wherever it is now. "???" is OmegaConf's mark of a missing value.
    if needed is not None:
        recorded_file = settings.get(needed, "???")
        if needed in files:
            settings[needed] = files[needed]
        elif recorded_file in (None, "", "???"):
            raise UserError(f"--bpe {kind} needs a file, and {path} names none; give it with {_flag(needed)}")
        else:
            moved = moved_file(str(recorded_file), path, data, _flag(needed), record.get(needed))
            settings[needed] = os.path.abspath(moved)
    # 4. Refuse a dictionary of subwords if nothing says how to split text into them.
    kind_in_dictionary = post_process_for(dictionary)
    if kind is None and options.bpe is None and kind_in_dictionary is not None:
        raise UserError(
            f"{path} was trained with subwords of the kind {kind_in_dictionary}, and does not say of which file; give "
            f"it with {_flag(_FILES[kind_in_dictionary])}, or --tokenized if the lines are subwords already"
        )
    return settings


class TextCodec:
    """Converts text to tokens of one language, and tokens of another to text, as fairseq-interactive does."""

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
        # subword-nmt caches every word, and takes time quadratic in a word's length.
        cache = getattr(getattr(self._bpe, "bpe", None), "cache", None)
        if cache is not None:
            line = _LONG_WORD.sub(r"\1 ", line)
            if len(cache) > _MOST_WORDS:
                cache.clear()
        tokens: str = self._bpe.encode(line)
        return tokens

    def decode(self, tokens: str) -> str:
        """Return the text of tokens as one line; byte-level subwords could give several."""
        text: str = tokens if self._bpe is None else self._bpe.decode(tokens)
        text = text if self._tokenizer is None else self._tokenizer.decode(text)
        return text.replace("\n", " ")


def _settings_of(
    kind: str, option: str | None, cfg: Mapping[str, Any], known: Mapping[str, Any], path: str
) -> dict[str, Any]:
    """Return the tokenizer or subwords that an option names, or else the recorded ones.

    Recorded ones are used only if they read nothing but local files.
    """
    # A checkpoint may be a stranger's, and must not decide what is downloaded.
    all_recorded = provenance.settings_in(kind, cfg)
    safe_options = (kind, *_RECORDED.get(str(all_recorded.get(kind)), ()))
    recorded = {name: value for name, value in all_recorded.items() if name in safe_options}
    name = option or recorded.get(kind) or "none"
    if name == "none":
        return {}
    if name not in known:
        raise UserError(f"--{kind} {name} is not known; it must be none or one of {', '.join(sorted(known))}")
    if name not in _RECORDED and option is None:
        raise UserError(f"{path} records --{kind} {name}, which may fetch files; give the option, or --{kind} none")
    return recorded if recorded.get(kind) == name else {kind: name}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
