"""``fairseq-depthwise params``: every published parameter count beside ours."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from fairseq_depthwise import cli
from fairseq_depthwise.evaluation import published_counts

LSTM, DEEP, UNITS = "depth-wise LSTM", "shallow-to-deep", "multi-unit"

#: Some rows of each paper, read a second time: the paper, its table, what the row says about the model, millions of
#: parameters as printed.
PUBLISHED = [
    (LSTM, 2, "RNN", "68.67"),
    (LSTM, 3, "1-layer", "45.05"),
    (LSTM, 4, "2 depth-wise", "100.18"),
    (LSTM, 5, "none", "87.59"),
    (LSTM, 6, "24 layers", "223.02"),
    (LSTM, 6, "Transformer, 3 layers", "40.33"),
    (LSTM, 6, "Transformer, 18 layers", "150.57"),
    (LSTM, 6, "Big, 12-6 layers, 1-layer", "288.41"),
    (DEEP, 1, "En-De, 48 layers", "194"),
    (DEEP, 1, "En-Fr, Big, 6 layers", "222"),
    (UNITS, 1, "NIST Zh-En, Big + Relative", "277"),
    (UNITS, 2, "En-De, MUTE, 4 units", "130"),
    (UNITS, 2, "En-De, Base", "81"),
    (UNITS, 3, "WMT18 Zh-En, + Bias + Seq.", "130"),
]

#: Counts that no reading of the texts reaches, and what the texts give.
INCONSISTENT = {"100.18": "89.16", "452.04": "452.03", "288.41": "187.65", "63": "61", "130": "138"}


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    """What the command prints, as a table and as JSON."""
    found = {}
    for form in ("", "--json"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert cli.main(["params", *form.split()]) == 0
        found[form] = out.getvalue()
    return found


@pytest.fixture(scope="module")
def lines(outputs: dict[str, str]) -> list[list[str]]:
    """The table's cells."""
    table = outputs[""].partition("\n\n")[0]
    return [re.split(r" {2,}| (?=\*)", line.strip()) for line in table.splitlines()]


def test_published_rows_are_there(lines: list[list[str]], outputs: dict[str, str]) -> None:
    header, *rows = lines
    assert header[:4] == ["paper", "table", "row", "words"]
    assert max(map(len, outputs[""].splitlines())) <= 100
    assert len(rows) == len(published_counts.ROWS)
    for paper, table, name, millions in PUBLISHED:
        assert any(row[:2] == [paper, str(table)] and name in row[2] and row[6] == millions for row in rows), name


def test_every_count_is_the_published_one_but_few(lines: list[list[str]]) -> None:
    for row in lines[1:]:
        parameters, ours, published, difference = int(row[4].replace(",", "")), *row[5:8]
        # Two digits and a bias in one paper, millions without one in the next, millions and a bias in the third.
        bias = 0 if row[0] == DEEP else int(row[3].replace(",", ""))
        if row[2].startswith("Transformer"):
            # Four projections of an attention and the end of a feed-forward net: 5 biases of 512, and 9 in the decoder.
            bias -= 14 * 512 * int([*re.findall(r"\d+", row[2]), "6"][0])
        assert ours == f"{(parameters + bias) / 1e6:.{2 if row[0] == LSTM else 0}f}"
        if published in INCONSISTENT:
            assert ours == INCONSISTENT[published]
            assert float(difference) == pytest.approx(float(ours) - float(published))
            assert difference.startswith("+" if row[0] == UNITS else "-")
            assert row[-1] == "*"
        else:
            assert ours == published
            assert difference == ("+0.00" if row[0] == LSTM else "+0")
            assert row[-1] != "*"


def with_relative_positions(row: published_counts.PublishedRow) -> published_counts.PublishedRow:
    return row._replace(arch=row.arch.removesuffix("_absolute"))


@pytest.mark.parametrize(
    ("paper", "pair"),
    [(DEEP, "En-De"), (DEEP, "En-Fr"), (UNITS, "NIST Zh-En"), (UNITS, "En-De"), (UNITS, "WMT18 Zh-En")],
)
def test_vocabularies_that_fit_are_all_those(paper: str, pair: str) -> None:
    """Every row that has a consistent reading rounds to the printed count, and no vocabulary outside does that."""
    interval = published_counts.VOCABULARIES[paper][pair]
    rows = {row for row in published_counts.ROWS if row.paper == paper and row.row.startswith(pair) and row.consistent}
    rows |= set(map(with_relative_positions, rows))

    def fits(words: int) -> bool:
        return all(published_counts.count(row._replace(vocabulary=words)).compared == row.published for row in rows)

    assert fits(interval.lowest)
    assert fits(interval.highest)
    assert not fits(interval.lowest - 1)
    assert not fits(interval.highest + 1)
    assert interval.lowest <= interval.ours <= interval.highest


def test_rows_that_hold_with_relative_positions_say_so() -> None:
    for row in published_counts.ROWS:
        if row.arch.endswith("_absolute"):
            assert "with them" in row.reading
            counts = [published_counts.count(one) for one in (row, with_relative_positions(row))]
            assert counts[0].parameters < counts[1].parameters
            assert counts[0].compared == counts[1].compared == row.published


def test_json_holds_the_same_with_numbers(outputs: dict[str, str], lines: list[list[str]]) -> None:
    document = json.loads(outputs["--json"])
    assert document["vocabulary"] == 35_627
    for entry, row in zip(document["rows"], lines[1:], strict=True):
        assert [entry["paper"], str(entry["table"]), entry["row"]] == row[:3]
        assert entry["parameters"] == int(row[4].replace(",", ""))
        assert entry["flags"].startswith("--arch ")
        numbers = [entry[f"{name}_in_millions"] for name in ("compared", "published", "difference")]
        assert numbers == [float(cell) for cell in row[5:8]]
        assert entry["consistent"] is (entry["difference_in_millions"] == 0)


# --- a model of one's own ---------------------------------------------------------------------------------------------


def test_a_model_of_ones_own(document: Callable[..., Any]) -> None:
    """Twice as many layers of the encoder: the count and the operations grow by what a layer has and does."""
    command = ["params", "--arch", "sdt_transformer", "--encoder-block-size", 0, "--max-relative-positions", 0]
    command += ["--encoder-embed-dim", 32, "--decoder-embed-dim", 32, "--share-all-embeddings", "--lr", 5e-4]
    command += ["--encoder-ffn-embed-dim", 64, "--words", 100]
    shallow, deep = (document(*command, "--encoder-layers", layers) for layers in (1, 2))
    assert (shallow["words"], shallow["embeddings"]) == ([100, 100], 32 * 100)
    attention, feed_forward, norms = 4 * (32 * 32 + 32), 2 * 32 * 64 + 32 + 64, 2 * 2 * 32
    assert deep["parameters"] - shallow["parameters"] == attention + feed_forward + norms
    # A multiplication and an addition for each weight; with scores and means of attention over 32 positions.
    products = 4 * 32 * 32 + 2 * 32 * 64 + 2 * 32 * 32
    assert deep["operations"] - shallow["operations"] == 2 * products


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--arch sdt_transformer --encoder-layer 3", "--encoder-layers"),
        ("--arch sdt_transformers", "--arch sdt_transformers"),
        ("--encoder-layers 3", "--arch"),
        ("--words 3", "--words"),
    ],
)
def test_wrong_options_of_a_model(words: str, named: str, refusal: Callable[..., str]) -> None:
    assert named in refusal("params", *words.split())
