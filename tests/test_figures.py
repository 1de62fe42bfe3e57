"""Figures: colors that are seen on every page, and titles of models."""

from __future__ import annotations

import pytest

from fairseq_depthwise.figures import COLORS, make_titles


def luminance(color: str) -> float:
    """The relative luminance of WCAG 2."""
    weighted = 0.0
    for place, weight in ((1, 0.2126), (3, 0.7152), (5, 0.0722)):
        value = int(color[place : place + 2], 16) / 255
        weighted += weight * (value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4)
    return weighted


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
def test_colors_are_seen_on_light_and_dark_pages(page: str) -> None:
    for color in COLORS:
        if color == "#000000":  # SVG has the page's text color in its place
            continue
        dark, light = sorted((luminance(color), luminance(page)))
        assert (light + 0.05) / (dark + 0.05) >= 3, f"{color}: the least contrast of graphics in WCAG 2"


@pytest.mark.parametrize(
    ("paths", "titles"),
    [
        (["a/checkpoint_best.pt", "b/checkpoint_best.pt"], ["a", "b"]),
        (["a/checkpoint3.pt", "6l.pt", "b/train.log"], ["a", "6l", "train.log"]),
        (["a/checkpoint1.pt", "a/checkpoint2.pt"], ["checkpoint1.pt", "checkpoint2.pt"]),
        (["a/x/averaged.pt", "b/x/averaged.pt"], ["a/x/averaged.pt", "b/x/averaged.pt"]),
    ],
)
def test_titles_are_the_names_of_models(paths: list[str], titles: list[str]) -> None:
    assert make_titles(paths) == titles
