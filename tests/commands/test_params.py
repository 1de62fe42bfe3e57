"""``fairseq-depthwise params``: every published parameter count beside ours."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_depthwise import cli

#: Table, what its row says about the model, millions of parameters as printed in "Rewiring the Transformer with
#: Depth-Wise LSTMs"; written down here a second time, from the paper.
PUBLISHED = [
    (2, "RNN", "68.67"),
    (2, "LSTM", "70.25"),
    (3, "1-layer", "45.05"),
    (3, "2048", "70.25"),
    (3, "1586", "62.37"),
    (4, "concat", "78.90"),
    (4, "add", "70.25"),
    (4, "2 depth-wise", "100.18"),
    (5, "all", "44.00"),
    (5, "gate", "70.25"),
    (5, "none", "87.59"),
    (6, "3 layers", "46.63"),
    (6, "6 layers", "70.25"),
    (6, "12 layers", "122.23"),
    (6, "18 layers", "172.63"),
    (6, "24 layers", "223.02"),
    (6, "Big, 12 layers", "452.04"),
    (6, "Big, 12-6 layers", "338.75"),
    (6, "Big, 12-6 layers, 1-layer", "288.41"),
]

#: Counts that no reading of the text reaches, and what the shared gates of the text give.
INCONSISTENT = {"100.18": "89.16", "452.04": "452.03", "288.41": "187.65"}


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What the command prints, as a table and as JSON."""
    return {}


@pytest.fixture
def lines(printed: dict[str, str], capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The table's cells."""
    if "table" not in printed:
        assert cli.main(["params"]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        printed["table"] = captured.out
    table = printed["table"].partition("\n\n")[0]
    return [re.split(r" {2,}", line) for line in table.splitlines()]


@pytest.fixture
def document(printed: dict[str, str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    if "json" not in printed:
        assert cli.main(["params", "--json"]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        printed["json"] = captured.out
    return json.loads(printed["json"])


def test_every_published_row_is_there_once_and_in_order(lines: list[list[str]]) -> None:
    header, *rows = lines
    assert header[:2] == ["table", "row"]
    assert len(rows) == len(PUBLISHED)
    for row, (table, name, millions) in zip(rows, PUBLISHED, strict=True):
        assert row[0] == str(table)
        assert name in row[1]
        assert row[4] == millions


def test_every_count_is_the_published_one_but_three(lines: list[list[str]]) -> None:
    for row in lines[1:]:
        parameters, ours, published, difference = int(row[2].replace(",", "")), *row[3:6]
        assert f"{(parameters + 35_627) / 1e6:.2f}" == ours
        if published in INCONSISTENT:
            assert ours == INCONSISTENT[published]
            assert difference == f"{float(ours) - float(published):+.2f}"
            assert row[-1].startswith("no consistent reading: ")
        else:
            assert ours == published
            assert difference == "+0.00"
            assert "no consistent reading" not in row[-1]


def test_every_row_names_an_architecture_that_exists(lines: list[list[str]]) -> None:
    for row in lines[1:]:
        flag, name = row[6].split()
        assert flag == "--arch"
        assert name in ARCH_MODEL_REGISTRY


def test_the_bias_is_explained(lines: list[list[str]], printed: dict[str, str]) -> None:
    explanation = printed["table"].partition("\n\n")[2]
    assert explanation.startswith("With 35,627 words.")
    assert "bias" in explanation


def test_json_holds_the_same_with_numbers(document: dict[str, Any], lines: list[list[str]]) -> None:
    assert document["vocabulary"] == 35_627
    assert len(document["rows"]) == len(PUBLISHED)
    for entry, (table, name, millions), row in zip(document["rows"], PUBLISHED, lines[1:], strict=True):
        assert entry["table"] == table
        assert name in entry["row"]
        assert entry["published_in_millions"] == float(millions)
        assert type(entry["parameters"]) is int
        assert type(entry["difference_in_millions"]) is float
        assert entry["difference_in_millions"] == float(row[5])
        assert entry["consistent"] is (millions not in INCONSISTENT)
        assert entry["consistent"] is (entry["difference_in_millions"] == 0)
        assert entry["parameters_with_bias_in_millions"] == float(row[3])
        assert entry["flags"] == row[6]


def test_help_ends_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["params", "--help"])
    assert ended.value.code == 0
    assert "example:\n  fairseq-depthwise params" in capsys.readouterr().out


def test_there_is_nothing_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["params", "checkpoint.pt"])
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""
