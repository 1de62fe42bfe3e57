"""What ``prepare`` is told: the texts, and how they are tokenized, split and cleaned."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from glob import escape, glob
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.provenance import file_digest

#: Values of --tokenizer -> fairseq's tokenizer with its options, the default first.
TOKENIZERS: dict[str, dict[str, Any]] = {
    "moses": {"name": "moses", "moses_no_dash_splits": True, "moses_no_escape": False},
    "moses-dashes": {"name": "moses", "moses_no_dash_splits": False, "moses_no_escape": False},
    "none": {},
}

#: Values of --subwords -> fairseq's subwords with their options, the default first; the file is in the data folder.
SUBWORDS: dict[str, dict[str, Any]] = {
    "bpe": {"name": "subword_nmt", "bpe_codes": "bpe.codes", "bpe_separator": "@@"},
    "sentencepiece": {"name": "sentencepiece", "sentencepiece_model": "sentencepiece.model"},
    "none": {},
}

#: Of the letters in the text, how much SentencePiece's vocabulary covers; the recipes' value.
CHARACTER_COVERAGE = 0.9999

#: Endings of compressed texts.
_COMPRESSED = ("", ".gz", ".xz")


@dataclass(frozen=True)
class Settings:
    """All that decides what is made of the texts.

    Attributes:
        languages: source and target.
        tokenizer: a key of :data:`TOKENIZERS`.
        subwords: a key of :data:`SUBWORDS`.
        merges: how many operations BPE learns, or entries SentencePiece; 0 without subwords.
        joined: whether both languages share a dictionary.
        ratio: a training pair may have at most so many tokens on one side for each on the other; 0 for any number.
        longest: a side of a training pair may have at most so many tokens; 0 for any number.
    """

    languages: tuple[str, str]
    tokenizer: str
    subwords: str
    merges: int
    joined: bool
    ratio: float
    longest: int

    @property
    def words(self) -> str:
        """The form of text that subwords are learned from; see :func:`text_name`."""
        return "tok" if TOKENIZERS[self.tokenizer] else ""

    @property
    def tokens(self) -> str:
        """The form of text that the model reads, but for cleaning."""
        return "sub" if SUBWORDS[self.subwords] else self.words

    def recorded(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {**asdict(self), "languages": list(self.languages)}


@dataclass(frozen=True)
class Part:
    """A part of the corpus, such as ``train``, as fairseq calls it, with a text of each language."""

    name: str
    paths: tuple[str, str]

    def digests(self) -> list[str]:
        return [file_digest(path) for path in self.paths]


def find_parts(languages: tuple[str, str], train: str, valid: str | None, tests: Sequence[str]) -> list[Part]:
    """Return the parts that options name by the beginnings of their files, such as ``corpus/train``.

    Raises:
        UserError: a file is missing.
    """
    parts = [Part("train", _texts("--train", train, languages))]
    if valid is not None:
        parts.append(Part("valid", _texts("--valid", valid, languages)))
    # fairseq calls them test, test1, test2 and so on.
    for number, test in enumerate(tests):
        parts.append(Part(f"test{number or ''}", _texts("--test", test, languages)))
    return parts


def _texts(option: str, prefix: str, languages: tuple[str, str]) -> tuple[str, str]:
    source, target = (_text(option, prefix, language) for language in languages)
    return source, target


def _text(option: str, prefix: str, language: str) -> str:
    """Return the file of one language, which may be compressed."""
    plain = f"{prefix}.{language}"
    for ending in _COMPRESSED:
        if os.path.isfile(plain + ending):
            return plain + ending
    # Names of a few files that begin alike: perhaps the language is misspelled.
    similar = ", ".join(sorted(glob(f"{escape(prefix)}.*"))[:6])
    remedy = f"there are {similar}" if similar else "give the beginning of its files, such as corpus/train"
    raise UserError(f"{option} {prefix}: there is no {plain} or {plain}.gz; {remedy}")


def require_languages(source: str, target: str) -> tuple[str, str]:
    """Return both languages; raise UserError where they are the same, or cannot be parts of a file's name."""
    if source == target:
        raise UserError(f"--source-lang and --target-lang are both {source}; give two languages")
    for option, language in (("--source-lang", source), ("--target-lang", target)):
        if not language or any(letter in language for letter in "/.,: "):
            raise UserError(f"{option} {language!r} is no ending of files; give a code such as en")
    return source, target


def subword_files(settings: Settings) -> list[str]:
    """Return the names of the files of the subwords."""
    options = SUBWORDS[settings.subwords]
    return [options[name] for name in ("bpe_codes", "sentencepiece_model") if name in options]


def names_of(parts: Sequence[Part]) -> list[str]:
    """Return the names of the parts of the data, for which "valid" may be cut from "train"."""
    return ["train", "valid", *(part.name for part in parts if part.name not in ("train", "valid"))]


def text_name(name: str, form: str, language: str = "") -> str:
    """Return the name of a file of text, such as ``train.tok.en``; raw text has no form."""
    return ".".join(filter(None, (name, form, language)))


def preprocess_options(settings: Settings, names: Sequence[str], folder: str, data: str, workers: int) -> list[str]:
    """Return the options of fairseq-preprocess for the texts in a folder."""
    prefixes = {name: os.path.join(folder, text_name(name, settings.tokens)) for name in names}
    # Only training pairs are dropped, so only they have another form.
    prefixes["train"] = os.path.join(folder, text_name("train", "clean"))
    source, target = settings.languages
    options = ["--source-lang", source, "--target-lang", target]
    if settings.joined:
        options.append("--joined-dictionary")
    options += ["--trainpref", prefixes.pop("train"), "--validpref", prefixes.pop("valid")]
    if prefixes:
        options += ["--testpref", ",".join(prefixes.values())]
    return [*options, "--destdir", data, "--workers", str(workers)]


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the names of what differs between two descriptions of settings and texts."""
    names = []
    for group in ("settings", "texts"):
        earlier, current = before.get(group, {}), now.get(group, {})
        # The names of both, in order, each once.
        for name in dict.fromkeys([*earlier, *current]):
            if earlier.get(name) != current.get(name):
                if group == "texts":
                    names.append(f"the text of {name}")
                else:
                    names.append(f"{name} {earlier.get(name)} and now {current.get(name)}")
    return ", ".join(names)
