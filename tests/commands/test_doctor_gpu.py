"""``fairseq-depthwise doctor --gpu``: its table and status, here on the CPU with small models."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_depthwise.commands import doctor
from fairseq_depthwise.evaluation import device_check
from fairseq_depthwise.evaluation.device_check import MODELS, Size, check_device

TINY = Size(width=16, layers=2, words=40, sentences=3, length=6, beam=2, seconds=0.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(refusal: Callable[..., str]) -> None:
    assert refusal("doctor", "--gpu").startswith("--gpu needs a GPU")


def test_table_of_all_models_and_precisions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that fails and one that differs are named, and end nothing."""
    build, gradients = device_check._build, device_check._gradients

    def failing(arch: str, *rest: Any) -> Any:
        if arch == "mute_transformer":
            raise RuntimeError("out of everything\nand much more")
        return build(arch, *rest)

    def wrong(model: torch.nn.Module, batch: dict[str, Any]) -> list[Tensor]:
        found = gradients(model, batch)
        is_sdt = type(model).__name__ == "SDTTransformer" and found[0].dtype == torch.bfloat16
        return [grad * 1.2 for grad in found] if is_sdt else found

    monkeypatch.setattr(device_check, "_build", failing)
    monkeypatch.setattr(device_check, "_gradients", wrong)
    assert doctor.check_gpu("cpu", as_json=False, size=TINY, isolated=False) == 1
    out = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("|")]
    rows = {(line[0], line[1]): line for line in lines[2:]}
    assert len(rows) == 3 * len(MODELS)
    for (model, precision), row in rows.items():
        expected = "failed" if "mute" in model else "differs" if (model, precision) == ("sdt", "bf16") else "ok"
        assert row[2] == expected, row
        assert ("**" in row[5]) == ("**" in row[6]) == (expected != "failed" and model != "stock")
    assert f"- torch: {torch.__version__}" in out
    assert "- mute, 4 units, fp32: RuntimeError: out of everything\n" in out
    assert "much more" not in out


def test_json_and_status_where_all_is_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_check, "MODELS", {"stock": MODELS["stock"], "depth-wise": MODELS["depth-wise"]})
    assert doctor.check_gpu("cpu", as_json=True, size=TINY, isolated=False) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in answer["rows"]] == ["ok"] * 6
    assert all(row["training"] > 0 and row["search"] > 0 for row in answer["rows"])
    assert answer["facts"]["fairseq"] == "0.12.2"


@pytest.mark.long
def test_a_process_that_dies_is_a_failed_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_check, "MODELS", {"stock": MODELS["stock"]})
    real = device_check._in_a_process
    for work, seconds, remark in (
        ((os._exit, 3), 60, "ended with status 3"),
        ((os.listdir, "no such folder"), 60, "FileNotFoundError"),
        ((time.sleep, 60), 1, "no result after 1 seconds"),
    ):
        monkeypatch.setattr(device_check, "_LONGEST", seconds)
        monkeypatch.setattr(device_check, "_in_a_process", lambda *_, work=work: real(*work))
        (row,) = check_device("cpu", TINY, precisions=("fp32",))
        assert row.status == "failed"
        assert remark in row.remark
    monkeypatch.setattr(device_check, "_LONGEST", 120)
    monkeypatch.setattr(device_check, "_in_a_process", real)
    assert next(check_device("cpu", TINY, precisions=("fp32",))).status == "ok"
