"""The page of a report: figures, thinning, escaping, colors."""

from __future__ import annotations

import math
import re
from html import escape
from html.parser import HTMLParser
from typing import Any

import pytest

from fairseq_depthwise.reports.curves import POINTS, sections_of, thinned, unit_of_time
from fairseq_depthwise.reports.page import make_page
from fairseq_depthwise.reports.page_style import DARK, LIGHT
from fairseq_depthwise.reports.run_record import Process, Reading, RunRecord, joined
from fairseq_depthwise.reports.run_summary import differing_options, duration, summarize_run, table_of

BAD_NAME = "<script>document.title='taken'</script>&\"'"


def a_run(updates: int = 40, *, config: dict[str, Any] | None = None, **metrics: float) -> RunRecord:
    """A run with a reading at each update and a validation at every tenth."""
    process = Process(config=config or {}, parameters=1234)
    for update in range(1, updates + 1):
        values = {"loss": 8 / update, "lr": 0.1 / update, "wps": 100.0, "gnorm": 1.0, "wall": float(update), **metrics}
        process.readings.append(Reading("train_inner", update, float(update), values))
        if update % 10 == 0:
            valid = {"loss": 9 / update, "ppl": 2 ** (9 / update), "bleu": update / 2}
            process.readings.append(Reading("valid", update, float(update), valid))
    return joined([process], f"run of {updates}.log")


def titles(*runs: RunRecord) -> list[str]:
    return [chart.title for section in sections_of(runs) for chart in section.charts]


# --- figures ---------------------------------------------------------------------------------------------------------


def test_figures_follow_from_what_is_there() -> None:
    assert titles(a_run()) == [
        "Loss over updates", "Loss over time", "BLEU over updates", "BLEU over time", "Learning rate over updates",
        "Norm of the gradient over updates", "Speed over updates",
    ]  # fmt: skip
    more = titles(a_run(), a_run(depth=2.0, nll_loss=1.0, loss_scale=128.0))
    assert set(more) - set(titles(a_run())) == {
        "Depth over updates", "Loss without smoothing and penalties over updates",
        "Loss without smoothing and penalties over time", "Loss scale of half precision over updates",
    }  # fmt: skip


def test_gates_have_their_spread_and_their_layers() -> None:
    gates = {"encoder_forget_gate": 0.5, "encoder_forget_gate_deviation": 0.2, "decoder_cell_norm": 3.0}
    layers = {f"encoder_forget_gate_layer{n}": 0.4 + n / 10 for n in (1, 2, 10)}
    layers |= {f"encoder_forget_gate_deviation_layer{n}": 0.1 for n in (1, 2, 10)}
    (section,) = [one for one in sections_of([a_run(), a_run(**gates, **layers)]) if one.title.startswith("Gates")]
    by_title = {chart.title: chart.curves for chart in section.charts}
    assert list(by_title) == [
        "Forget gate of the encoder over updates", "Forget gate of the encoder by layer, at the end",
        "Cell norm of the decoder over updates",
    ]  # fmt: skip
    (curve,) = by_title["Forget gate of the encoder over updates"]
    assert (curve.run, curve.lows[0], curve.highs[0]) == (1, pytest.approx(0.3), pytest.approx(0.7))
    (curve,) = by_title["Forget gate of the encoder by layer, at the end"]
    assert curve.xs == [1, 2, 3]
    assert curve.ys == pytest.approx([0.5, 0.6, 1.4])
    assert curve.lows == pytest.approx([0.4, 0.5, 1.3])


def test_penalties_of_layers_are_one_figure() -> None:
    run = a_run(permutation_penalty_1=2.0, permutation_penalty_2=4.0, inter_similarity_penalty=0.5)
    (section,) = [one for one in sections_of([run]) if one.title == "Auxiliary losses"]
    assert [chart.title for chart in section.charts] == [
        "Permutation penalty over updates",
        "Inter similarity penalty over updates",
    ]
    (curve,) = section.charts[0].curves
    assert (curve.lows[0], curve.ys[0], curve.highs[0]) == (2, 3, 4)


def test_growth_is_a_border_in_updates_and_in_time() -> None:
    process = Process(grown={20: "encoder from 2 to 3 layers"}, readings=[])
    for update in (10, 20, 30):
        process.readings.append(Reading("train_inner", update, update * 60.0, {"loss": 1.0, "wall": update * 60.0}))
    charts = sections_of([joined([process], "x")])[0].charts
    assert [chart.x for chart in charts] == ["updates", "minutes of training"]
    assert [chart.boundaries for chart in charts] == [[(0, 20.0)], [(0, 20.0)]]


def test_long_curves_are_means_and_gaps_stay() -> None:
    assert thinned([1.0, 2.0, 3.0]) == [1, 2, 3]
    assert thinned([]) == []
    long = thinned([float(number) for number in range(100_000)])
    assert len(long) <= POINTS
    assert long[0] == pytest.approx(99.5)
    assert thinned([1.0, 3.0, 5.0, 7.0, 9.0], points=3) == [2, 6, 9]
    assert thinned([1.0, 3.0, 5.0, 7.0], points=2, last=True) == [3, 7]
    gap = thinned([1.0, math.inf, 5.0, 7.0, math.nan, 1.0], points=3)
    assert [math.isfinite(value) for value in gap] == [False, True, False]


def test_pages_of_long_runs_stay_small() -> None:
    assert len(make_page(["one"], [a_run(5_000)])) < 350_000


def test_units() -> None:
    assert [unit_of_time(seconds)[0] for seconds in (90, 5000, 20000)] == ["seconds", "minutes", "hours"]
    assert [duration(seconds) for seconds in (5.4, 200, 18_420)] == ["5 s", "3 min 20 s", "5 h 07 min"]


def test_training_that_diverged() -> None:
    run = a_run(3)
    for series in run.series["train_inner"].values():
        series.values[1:] = [math.nan, math.inf]
    assert summarize_run(run).not_finite == {"loss": 2, "gnorm": 2}
    assert ("not finite", ["loss 2 x, gnorm 2 x"]) in table_of([summarize_run(run)])
    page = make_page(["bad"], [run])
    assert "not finite" in page
    assert "Loss over updates" in page


def test_metrics_that_are_never_finite_have_no_figure() -> None:
    nothing = dict.fromkeys(
        ("encoder_input_gate", "encoder_input_gate_layer1", "permutation_penalty_1", "gnorm"), math.nan
    )
    assert titles(a_run(**nothing)) == [title for title in titles(a_run()) if "gradient" not in title]
    assert "nan" not in re.sub(r"<style>.*</style>", "", make_page(["bad"], [a_run(**nothing)]))


def test_options_that_differ() -> None:
    configs = [{"model": {"_name": "a", "encoder_layers": depth, "dropout": 0.1}} for depth in (6, 12)]
    assert differing_options([a_run(config=one) for one in configs]) == [("--encoder-layers", ["6", "12"])]
    assert differing_options([a_run(), a_run()]) == []


# --- the page --------------------------------------------------------------------------------------------------------


class _Reader(HTMLParser):
    """Elements that are open, ids, and whatever would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)
        self._look_at(attributes)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._look_at(attributes)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _look_at(self, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href"):
                self.links.append(str(value))


def read_page(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_a_page_is_whole_and_needs_nothing_else() -> None:
    page = make_page(["one", "two"], [a_run(), a_run(depth=2.0)])
    reader = read_page(page)
    assert len(reader.ids) == len(set(reader.ids))
    assert all(link.startswith("#") and link[1:] in reader.ids for link in reader.links)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(reader.ids)
    assert reader.tags.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert "@import" not in page
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {"http://www.w3.org/2000/svg"}


def test_what_logs_say_is_text() -> None:
    run = a_run(config={"model": {"_name": BAD_NAME}})
    run.source, run.notes, run.versions = BAD_NAME, [BAD_NAME], {BAD_NAME: BAD_NAME}
    run.series["train_inner"]["<b>_penalty"] = run.series["train_inner"]["loss"]
    page = make_page([BAD_NAME, "other"], [run, a_run()])
    assert {"script", "b"}.isdisjoint(read_page(page).tags)
    assert escape(BAD_NAME) in page


def luminance(color: str) -> float:
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_contrast(colors: dict[str, str]) -> None:
    assert colors.keys() == LIGHT.keys()
    for background in ("page", "card"):
        for name, color in colors.items():
            if name.startswith("run"):
                assert contrast(color, colors[background]) >= 3, name
        assert contrast(colors["text"], colors[background]) >= 7
        assert contrast(colors["soft"], colors[background]) >= 4.5
