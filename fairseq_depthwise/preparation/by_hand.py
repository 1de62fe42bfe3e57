"""``commands.sh``: the same data by the commands of the tools, for a user who wants another step among them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from fairseq_depthwise.preparation.settings import (
    CHARACTER_COVERAGE,
    TOKENIZERS,
    Part,
    Settings,
    names_of,
    preprocess_options,
    subword_files,
    text_name,
)

_HEAD = """#!/bin/sh
# What fairseq-depthwise prepare did, by hand: makes the same data in a new folder "by-hand" beside this file.
set -e
PATH={programs}:$PATH
cd "$(dirname "$0")"
mkdir by-hand
cd by-hand

# Raw text, without byte order marks and carriage returns.
plain() {{ LC_ALL=C awk 'NR == 1 {{ sub("^\\357\\273\\277", "") }} {{ gsub("\\r", " ") }} 1'; }}
"""

_HOLD_OUT = """
# Pairs for validation are taken from the training text.
for language in {source} {target}; do
  awk '{condition}' train.$language > valid.$language
  awk '!({condition})' train.$language > rest.$language
  mv rest.$language train.$language
done
"""

_LEARN_PIECES = """
cat > learn.py <<'END'
from sentencepiece import SentencePieceTrainer

SentencePieceTrainer.train(
    input=["{source}", "{target}"],
    model_prefix="sentencepiece",
    model_type="bpe",
    vocab_size={size},
    character_coverage={coverage},
)
END

cat > split.py <<'END'
import sys
from sentencepiece import SentencePieceProcessor

pieces = SentencePieceProcessor(model_file="sentencepiece.model")
for line in sys.stdin:
    print(*pieces.encode(line.strip(), out_type=str))
END

python learn.py
"""

_CLEAN = """
# Training pairs are dropped if a side is empty{limits}.
LC_ALL=C awk '{{
  getline target < "{before_target}"
  n = NF
  m = split(target, words)
  if ({condition}) {{
    print > "{after_source}"
    print target > "{after_target}"
  }}
}}' {before_source}
"""

_READERS = {".gz": "gzip -dc", ".xz": "xz -dc"}


def commands_by_hand(settings: Settings, parts: Sequence[Part], every: int, count: int) -> str:
    """Return the script; without --valid every N-th pair was held out, ``count`` in all, or else ``every`` is 0."""
    source, target = settings.languages
    names = names_of(parts)
    lines = [_HEAD.format(programs=shlex.quote(os.path.dirname(sys.executable)))]
    for part in parts:
        for path, language in zip(part.paths, settings.languages, strict=True):
            reader = _READERS.get(os.path.splitext(path)[1], "cat")
            lines.append(f"{reader} {shlex.quote(os.path.abspath(path))} | plain > {part.name}.{language}\n")
    if every:
        condition = f"NR % {every} == 0 && NR <= {every * count}"
        lines.append(_HOLD_OUT.format(source=source, target=target, condition=condition))

    tokenizer = TOKENIZERS[settings.tokenizer]
    if tokenizer:
        dashes = "" if tokenizer["moses_no_dash_splits"] else " --aggressive-dash-splits"
        for language in settings.languages:
            command = f"sacremoses -q -l {language} tokenize{dashes}"
            lines += _for_parts(names, command, "", settings.words, language)
    if settings.subwords == "bpe":
        train = " ".join(text_name("train", settings.words, language) for language in settings.languages)
        lines.append(f"\ncat {train} | subword-nmt learn-bpe -s {settings.merges} > bpe.codes\n")
    elif settings.subwords == "sentencepiece":
        texts = {side: text_name("train", settings.words, language) for side, language in _sides(settings)}
        lines.append(_LEARN_PIECES.format(**texts, size=settings.merges, coverage=CHARACTER_COVERAGE))
    if settings.subwords != "none":
        command = "subword-nmt apply-bpe -c bpe.codes" if settings.subwords == "bpe" else "python split.py"
        for language in settings.languages:
            lines += _for_parts(names, command, settings.words, settings.tokens, language)
    lines.append(_clean(settings))
    binarize = ["fairseq-preprocess", *preprocess_options(settings, names, "", "data-bin", workers=1)]
    lines.append(f"\n{shlex.join(binarize)}\n")
    lines += [f"cp {name} data-bin/\n" for name in subword_files(settings)]
    return "".join(lines)


def _sides(settings: Settings) -> list[tuple[str, str]]:
    return list(zip(("source", "target"), settings.languages, strict=True))


def _for_parts(names: Sequence[str], command: str, before: str, after: str, language: str) -> list[str]:
    """Return a loop that runs a command on the text of each part."""
    source, result = text_name("$part", before, language), text_name("$part", after, language)
    return [f"\nfor part in {' '.join(names)}; do {command} < {source} > {result}; done\n"]


def _clean(settings: Settings) -> str:
    conditions, limits = ["n > 0 && m > 0"], ""
    if settings.longest:
        conditions.append(f"n <= {settings.longest} && m <= {settings.longest}")
        limits += f", or has more than {settings.longest} tokens"
    if settings.ratio:
        conditions.append(f"n <= {settings.ratio:g} * m && m <= {settings.ratio:g} * n")
        limits += f", or more than {settings.ratio:g} times as many as the other"
    names = {}
    for side, language in _sides(settings):
        names[f"before_{side}"] = text_name("train", settings.tokens, language)
        names[f"after_{side}"] = text_name("train", "clean", language)
    return _CLEAN.format(**names, limits=limits, condition=" && ".join(conditions))
