"""``benchmarks/speed.py`` as a program, with tiny models. How fast they are is not asked here."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from typing import Any

import pytest
import speed
from speed import CHOICES, ROWS

import fairseq_depthwise  # noqa: F401  # registers the models

#: Of models that are built in this process.
OPTIONS = argparse.Namespace(
    size="tiny", device="cpu", train_tokens=100, model_overrides=["--encoder-layers=1", "--decoder-layers=1"]
)

#: With three layers there are no blocks of six: sdt cannot be built.
TINY = [
    "--size=tiny", "--rows", "mute 4", "sdt 6", "--rounds=2", "--train-tokens=100", "--decode-batches", "1", "2",
    "--model-overrides=--encoder-layers 3 --decoder-layers 1",
]  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    """A record, and what the program printed."""
    folder = tmp_path_factory.mktemp("speed") / "records"
    printed, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["speed.py", *TINY, f"--records={folder}"])
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(printed):
            speed.main()
    record = json.loads((folder / "bench_cpu_tiny.json").read_text(encoding="utf-8"))
    return record, printed.getvalue(), errors.getvalue()


@pytest.mark.long
def test_stock_is_added_and_a_row_that_cannot_be_built_is_left_out(measured: tuple[dict[str, Any], str, str]) -> None:
    record, printed, errors = measured
    assert list(record["rows"]) == ["stock 6 pre-norm", "mute 4"]
    assert "sdt 6 is left out of training" in errors
    assert "--encoder-layers 3" in errors
    assert "| mute 4 | stock 6 pre-norm |" in printed


@pytest.mark.long
def test_all_rows_do_the_same_work_in_every_case(measured: tuple[dict[str, Any], str, str]) -> None:
    meetings = measured[0]["meetings"]
    assert [tuple(meeting["case"].values()) for meeting in meetings] == [
        ("training", 0, 0), ("decoding", 4, 1), ("decoding", 4, 2), ("decoding", 1, 1), ("decoding", 1, 2),
    ]  # fmt: skip
    for meeting in meetings:
        stock, mute = (meeting["rows"][name] for name in ("stock 6 pre-norm", "mute 4"))
        assert stock["amount"] == mute["amount"]
        assert min(*stock["seconds"], *mute["seconds"]) > 0
    assert [meeting["rows"]["mute 4"]["amount"] for meeting in meetings[1:3]] == [[2, 2], [4, 4]]


def test_each_row_is_compared_with_one_of_as_many_layers() -> None:
    for row in ROWS.values():
        other = ROWS[row.base]
        assert (other.layers, other.base) == (row.layers, other.name)
    assert {name for names in CHOICES.values() for name in names} <= set(ROWS)


@pytest.mark.parametrize("row", ["stock 6", "mute 2", pytest.param("depth-wise, onnx", marks=pytest.mark.long)])
def test_every_sentence_is_as_long_as_the_sources_of_its_batch(row: str) -> None:
    work = speed.build_work(ROWS[row], speed.DECODING, ROWS[row].precision or "fp32", OPTIONS)
    batch = speed.build_batches(OPTIONS, 3)[0]
    for beam in speed.BEAMS:
        found = [[one["tokens"] if isinstance(one, dict) else one.tokens for one in many] for many in work(batch, beam)]
        assert [len(many) for many in found] == [beam] * 3
        length = batch["net_input"]["src_tokens"].size(1) + 1  # with its end
        assert {len(tokens) for many in found for tokens in many} == {length}
