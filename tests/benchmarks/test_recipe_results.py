"""The section that recipe_results.py writes: numbers from made-up trainings, beside the sections of others."""

from pathlib import Path
from typing import Any

import pytest
import recipe_results
from page_sections import write_section

from fairseq_compat import UserError


def _run(score: float, base: float | None = None, loss: float = 3.0) -> dict[str, Any]:
    scored: dict[str, Any] = {"score": score, "signature": "tok:13a"}
    if base is not None:
        scored |= {"baseline": "transformer", "baseline_score": base, "p": 0.25}
    return {
        **{"parameters": 1_234_567, "updates": 40, "nll_loss": loss, "test": "t16", "metrics": {"sacrebleu": scored}},
        **{"machine": "a processor", "versions": "Python 3"},
    }


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "train.report.txt").write_text("29 pairs read, 28 kept\n1 left out: one side is empty\n")
    return tmp_path


@pytest.fixture
def record(work: Path) -> dict[str, Any]:
    """Two seeds of one system, trained at different times, and one of another."""
    first = recipe_results.with_runs({}, "multi30k", {"transformer": {"1": _run(30.0)}}, work)
    later = {"transformer": {"2": _run(31.0, loss=3.5)}, "sdt": {"2": _run(30.25, 31.0)}}
    return recipe_results.with_runs(first, "multi30k", later, work)


@pytest.fixture
def section(record: dict[str, Any]) -> str:
    return recipe_results.section(record)


def test_runs_on_other_text_are_refused(record: dict[str, Any], work: Path) -> None:
    (work / "text" / "train.report.txt").write_text("7 pairs read, 7 kept\n")
    with pytest.raises(UserError, match="7 pairs read, 7 kept, and the record 29 pairs"):
        recipe_results.with_runs(record, "multi30k", {}, work)


def test_seeds_are_put_together(section: str) -> None:
    assert (
        "| `transformer` | 1,234,567 | 40 | 2 | 3.250 ± 0.354 (3.000, 3.500) | 30.50 ± 0.71 (30.00, 31.00) |" in section
    )
    assert "| `sdt` | 1,234,567 | 40 | 1 | 3.000 | 30.25 |" in section


def test_difference_is_from_the_same_seed(section: str) -> None:
    assert "| `sdt` | 2 | `transformer` | 31.00 | 30.25 | -0.75 | 0.250 |" in section


def test_says_what_it_was_made_from(section: str) -> None:
    assert "- Training text: 29 pairs read, 28 kept." in section
    assert "recipe_results.py multi30k --systems transformer sdt --seeds 1 2" in section


def test_other_sections_stay(section: str, tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    page.write_text("<!-- small-models -->\n\n# Results\n\nof others\n")
    for text in (section, section.replace("30.25", "30.75")):
        write_section(page, "recipe-multi30k", text)
    written = page.read_text()
    assert "of others" in written
    assert written.count("## Recipe: Multi30k") == 1
    assert "30.75" in written


def test_nothing_trained_is_one_sentence(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["multi30k", "--work", str(work), "--no-training", "--output", str(work / "page.md")]
    arguments += ["--records", str(work)]
    assert recipe_results.main(arguments) == 1
    assert "no trained system" in capsys.readouterr().err
    assert not (work / "page.md").exists()
