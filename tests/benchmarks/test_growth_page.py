"""What ``benchmarks/growth.py`` writes about numbers that it has measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from growth_page import page
from growth_schedules import DEEP, PAPER, SCHEDULES, time_saved

ROOT = Path(__file__).parents[2]

KNOWN: dict[str, Any] = {
    "settings": {
        "corpus": "made-up", "languages": "en -> de", "merges": 2000, "threads": 1, "device": "cpu", "width": 64,
        "decoder_layers": 3, "max_tokens": 2000, "probe_updates": 15, "probe_warm_up": 5, "learning_rate": 0.002,
        "base_width": 512, "base_decoder_layers": 6, "vocabulary": 34000, "steps": 2,
    },
    "about": {"machine": "one computer", "versions": "some versions"},
    "made_by": "python benchmarks/growth.py",
    "text": {"train": 1000, "valid": 10, "test": 10, "dictionary": 2184},
    "prepared": ["prepare text"],
    "commands": ["train a model"],
}  # fmt: skip


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of the first table under a title, without its head."""
    part = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", part, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[0].splitlines()[2:]]


class TestPage:
    def test_nothing_measured(self) -> None:
        assert "##" not in page({"saving": {}, "step": None})

    def test_saving(self) -> None:
        lengths = SCHEDULES[PAPER].lengths(210, 3)
        # A step takes 0.2 s, and 0.1 s for each layer: 2.6 s with 24.
        steps = {str(layers): 0.2 + 0.1 * layers for layers in lengths}
        saved = time_saved(lengths, {int(layers): seconds for layers, seconds in steps.items()})
        rounds = [
            {
                "deep": [1.0] * 210,
                "staged": [1 - saved + off] * 210,
                "steps": {layers: [one] for layers, one in steps.items()},
            }
            for off in (0.01, -0.03, 0.03)
        ]
        numbers = {**KNOWN, "lengths": {str(layers): one for layers, one in lengths.items()}, "rounds": rounds}
        text = page({"saving": numbers})
        assert [row[-1] for row in rows(text, "Time saved")] == ["-1.0", "+3.0", "-3.0", "-1.0"]
        assert (
            f"- Measured: {saved - 0.01:.1%} of the time saved, from {saved - 0.03:.1%} to {saved + 0.03:.1%};" in text
        )
        assert "the bar is 27%: met." in text
        assert "differ by 1.0 points; the bar\n  is 2: met." in text
        assert "The encoder takes 92% of the time" in text

    def test_saving_below_the_bar(self) -> None:
        lengths = {"3": 100, "24": 110}
        rounds = [{"deep": [1.0] * 210, "staged": [0.74] * 210, "steps": {"3": [0.2], "24": [0.4]}}]
        text = page({"saving": {**KNOWN, "lengths": lengths, "rounds": rounds}})
        assert "the bar is 27%: **not met**." in text
        assert "differ by 2.2 points; the bar\n  is 2: **not met**." in text

    def test_projection(self) -> None:
        depths = {
            str(layers): {"depth": [0.1 * layers, 0.2 * layers], "deepest": [4.8, 9.6]} for layers in range(6, 54, 6)
        }
        part = {name: value for name, value in KNOWN.items() if name not in ("text", "prepared", "commands")}
        text = page({"projection": {**part, "depths": depths, "tokens": [600, 590]}})
        assert rows(text, "Projection to the paper's width")[0] == ["6", "0.900", "0.125", "0.125 - 0.125"]
        # With nothing but encoder layers the projection is the limit; 19.58 h less 35.1 %.
        assert "| the paper's | 35.1% | 35.1% | 12.7 | 39.98% |" in text
        assert "no growth" not in text
        assert "```sh" not in text

    def test_half_a_projection_has_no_schedules(self) -> None:
        depths = {str(layers): {"depth": [0.1, 0.1], "deepest": [4.8, 4.8]} for layers in (6, 12)}
        text = page({"projection": {**KNOWN, "depths": depths, "tokens": [600]}})
        assert "| 12 | 0.100 |" in text
        assert "projected" not in text

    def test_step(self) -> None:
        cases = [
            {"before": 42, "after": 48, "state": "reset", "seconds": [0.3, 0.2, 1.2]},
            {"before": 24, "after": 48, "state": "keep", "seconds": [1.0, 2.0]},
        ]
        text = page({"step": {**KNOWN, "cases": cases, "parameters": 194000000}})
        assert rows(text, "The growth step") == [
            ["42 -> 48", "reset", "0.30", "1.20", "1", "met"],
            ["24 -> 48", "keep", "1.50", "2.00", "1", "**not met**"],
        ]
        assert "194,000,000 parameters" in text

    def test_time_to_loss(self) -> None:
        def curve(*losses: float, seconds: float) -> list[dict[str, float]]:
            return [
                {"updates": 10 * number, "seconds": seconds * number, "loss": loss}
                for number, loss in enumerate(losses, start=1)
            ]

        # With 24 layers a step took 1.2 s at first and 0.8 s later.
        runs = {
            DEEP: {"lengths": {"24": 40}, "curve": curve(9, 8, 7, 6, seconds=10), "steps": {"24": 1.2}},
            PAPER: {
                "lengths": {"3": 20, "24": 20},
                "curve": curve(9, 7, 6, 4, seconds=4),
                "steps": {"3": 0.2, "24": 0.8},
            },
            "late": {"lengths": {"3": 40}, "curve": curve(9, 6.5, 6.5, 6, seconds=7), "steps": {"3": 0.4}},
            "shallow": {"lengths": {"6": 40}, "curve": curve(9, 9, 8, 7, seconds=3), "steps": {"6": 0.3}},
        }
        text = page({"time-to-loss": {**KNOWN, "runs": runs}})
        assert [row[2:] for row in rows(text, "Time to a loss")] == [
            ["40", "6.000", "40", "1.00", "1.00"],
            ["16", "4.000", "12", "0.30", "0.40"],
            ["28", "6.000", "28", "0.70", "0.30"],
            ["12", "7.000", "not reached", "-", "-"],
        ]
        assert "0.30 of the deep model's time, at steady speed 0.40; the goal is 0.5: met." in text
        assert "| schedule | 10 | 20 | 30 | 40 |" in text

    def test_what_was_said_is_not_said_again(self) -> None:
        cases = [{"before": 42, "after": 48, "state": "reset", "seconds": [0.3]}]
        numbers = {**KNOWN, "cases": cases, "parameters": 1, "lengths": {"3": 1, "24": 1}}
        numbers["rounds"] = [{"deep": [2.0, 2.0], "staged": [1.0, 2.0], "steps": {"3": [1.0], "24": [2.0]}}]
        text = page({"saving": numbers, "step": numbers})
        for once in ("one computer", "some versions", "prepare text", "made-up"):
            assert text.count(once) == 1
