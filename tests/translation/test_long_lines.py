"""Where lines are cut, and how their translations are joined."""

from __future__ import annotations

import pytest

from fairseq_depthwise.translation.long_lines import cut, joined


def pieces(text: str, longest: int) -> list[str]:
    tokens = text.split()
    return [" ".join(tokens[place.start : place.stop]) for place in cut(tokens, longest)]


@pytest.mark.parametrize(
    ("text", "longest", "expected"),
    [
        ("a b c", 3, ["a b c"]),
        ("a b . c d", 4, ["a b .", "c d"]),
        # The last end of a sentence that is in reach, but none that would leave a short piece.
        ("a . b . c d", 5, ["a . b .", "c d"]),
        ("a b . c ? d e f", 6, ["a b . c ?", "d e f"]),
        # Quotes and brackets stay with the sentence that they close, as Moses writes them, too.
        ('a b . " c d', 5, ['a b . "', "c d"]),
        ("a b . &quot; ) c d", 6, ["a b . &quot; )", "c d"]),
        # Words stay whole, and a number has no end of a sentence in it.
        ("a b c@@ d e", 3, ["a b", "c@@ d e"]),
        ("a b 3.@@ 14 c d", 4, ["a b 3.@@ 14", "c d"]),
        ("\u2581a \u2581b c \u2581d", 3, ["\u2581a \u2581b c", "\u2581d"]),
        ("\u2581a \u25813 . 14 \u2581b", 4, ["\u2581a \u25813 . 14", "\u2581b"]),
        # Scripts without spaces.
        ("\u2581\u6211 \u4eec \u3002 \u4f60 \u4eec \u3002", 5, ["\u2581\u6211 \u4eec \u3002", "\u4f60 \u4eec \u3002"]),
        # No place at all.
        ("a@@ b@@ c@@ d@@ e", 2, ["a@@ b@@", "c@@ d@@", "e"]),
    ],
)
def test_places(text: str, longest: int, expected: list[str]) -> None:
    assert pieces(text, longest) == expected


@pytest.mark.parametrize("longest", [1, 2, 5, 9])
def test_all_tokens_in_order_and_none_too_long(longest: int) -> None:
    tokens = ("w1 w2@@ w3 . w4 &quot; ? w5@@ w6@@ w7 " * 7).split()
    places = cut(tokens, longest)
    assert [number for place in places for number in place] == list(range(len(tokens)))
    assert all(0 < len(place) <= longest for place in places)


def test_what_may_close_sentences_takes_little() -> None:
    assert len(cut(['"'] * 100_000, 1000)) == 100


@pytest.mark.parametrize(("language", "text"), [("de", "a b"), ("zh", "ab"), ("zh_CN", "ab"), ("ja-JP", "ab")])
def test_joined_as_the_language_is_written(language: str, text: str) -> None:
    assert joined(["a", "", "b"], language) == text
