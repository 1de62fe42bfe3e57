"""Cuts lines that are too long for a model into pieces."""

from __future__ import annotations

from collections.abc import Sequence

#: What ends a sentence if a word ends with it, and what ends one anywhere.
_ENDS = frozenset(".!?…।॥؟")
_WIDE_ENDS = frozenset("。\uff01\uff1f｡")  # full stops, exclamation and question mark of Chinese and Japanese

#: What may follow the last punctuation mark of a sentence.
_CLOSING = "\"'”\u2019»)]」』"
_ESCAPED_CLOSING = frozenset({"&quot;", "&apos;", "&#93;"})  # as Moses writes them

#: Languages that put no space between sentences.
_WITHOUT_SPACES = frozenset({"ja", "km", "lo", "my", "th", "zh"})


def cut(tokens: Sequence[str], longest: int) -> list[range]:
    """Return the ranges of pieces of at most ``longest`` tokens, in order.

    A piece ends with the last sentence that ends in its second half, or else with its last word, if a word ends in it.
    """
    # SentencePiece marks the tokens that begin a word; BPE appends "@@" to those that do not end one.
    marked = any(token.startswith("\u2581") for token in tokens)
    pieces, begin = [], 0
    while len(tokens) - begin > longest:
        ends = range(begin + longest, begin, -1)  # of pieces, the longest first
        # A cut within a sentence is better than a very short piece.
        half = begin + longest // 2
        end = next((place for place in ends if place > half and _ends_sentence(tokens, place, marked)), None)
        if end is None:
            end = next((place for place in ends if _ends_word(tokens, place, marked)), begin + longest)
        pieces.append(range(begin, end))
        begin = end
    pieces.append(range(begin, len(tokens)))
    return pieces


def joined(translations: Sequence[str], target_lang: str) -> str:
    """Join the translations of the pieces of a line."""
    # zh_CN, zh-Hans and zh are all Chinese.
    language = target_lang.replace("_", "-").split("-")[0].lower()
    return ("" if language in _WITHOUT_SPACES else " ").join(filter(None, translations))


def _ends_word(tokens: Sequence[str], place: int, marked: bool) -> bool:
    """Return whether a word ends before ``tokens[place]``; ``marked`` if SentencePiece marks beginnings of words."""
    return tokens[place].startswith("\u2581") if marked else not tokens[place - 1].endswith("@@")


def _ends_sentence(tokens: Sequence[str], place: int, marked: bool) -> bool:
    """Return whether a sentence ends before ``tokens[place]``, including closing quotes and brackets."""
    before = place - 1
    while before > max(0, place - 10) and _only_closes(tokens[before]):  # no sentence ends with more of them
        before -= 1
    last = tokens[before].rstrip(_CLOSING)[-1:]
    return last in _WIDE_ENDS or (last in _ENDS and _ends_word(tokens, place, marked))


def _only_closes(token: str) -> bool:
    return token in _ESCAPED_CLOSING or not token.removeprefix("\u2581").strip(_CLOSING)
