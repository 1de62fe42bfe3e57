"""``benchmarks/dropout_noise.py``: the ratio it computes, where it sets dropout, and the program."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import bench
import dropout_noise
import pytest
import torch
from dropout_noise import noise_ratio, set_dropout
from fairseq.modules import FairseqDropout
from torch import nn

from fairseq_depthwise.modules.dropout import Dropout

RunBenchmark = Callable[..., subprocess.CompletedProcess[str]]


def test_the_ratio_is_that_of_the_variances() -> None:
    generator = torch.Generator().manual_seed(1)
    signal = 3 * torch.randn(50, 8, 16, generator=generator)
    outputs = [signal + 1.5 * torch.randn(50, 8, 16, generator=generator) for _ in range(8)]
    assert noise_ratio(outputs) == pytest.approx(0.25, rel=0.05)
    assert noise_ratio([signal, signal]) == 0


def test_dropout_is_set_where_there_is_some_and_at_the_site() -> None:
    model = nn.ModuleDict(
        {
            "dropout": Dropout(0.1),
            "layers": nn.ModuleList([FairseqDropout(0.1), Dropout(0.0), nn.ModuleDict({"net": Dropout(0.2)})]),
        }
    )

    def set_to(site: str) -> list[float]:
        set_dropout(model, 0.3, site)
        layers = model["layers"]
        probabilities = [model["dropout"].probability, layers[0].p, layers[1].probability, layers[2]["net"].probability]
        return [round(probability, 6) for probability in probabilities]

    assert set_to("all") == [0.3, 0.3, 0, 0.3]
    assert set_to("embeddings") == [0.3, 0, 0, 0]
    assert set_to("sub-layers") == [0, 0.3, 0, 0.3]
    assert set_to("all") == [0.3, 0.3, 0, 0.3]


@pytest.mark.parametrize("name", ["", "../other", "a/b", "."])
@pytest.mark.parametrize("parse", [dropout_noise.parse_options, bench.parse_options])
def test_a_record_has_a_name_in_its_folder(name: str, parse: Callable[[list[str]], object]) -> None:
    with pytest.raises(SystemExit):
        parse([f"--name={name}"])
    parse(["--name=other_record-2"])


@pytest.mark.slow
def test_more_dropout_is_more_noise_in_every_family(run_benchmark: RunBenchmark, tmp_path: Path) -> None:
    systems = ["transformer", "depthwise_lstm", "mute"]
    given = (f"--systems={','.join(systems)}", "--masks=3", "--sentences=4", "--seeds=1", f"--records={tmp_path}")
    done = run_benchmark("dropout_noise.py", *given)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "dropout_noise.json").read_text())["rows"]
    assert [(row["model"], row["dropout"]) for row in rows] == [(name, p) for name in systems for p in (0.1, 0.3)]
    for few, many in zip(rows[::2], rows[1::2], strict=True):
        for side in ("encoder", "decoder"):
            for site in ("embeddings", "sub-layers"):
                assert 0 < few[side][site] < few[side]["all"] < many[side]["all"]
    refused = run_benchmark("dropout_noise.py", "--checkpoints", "missing.pt", "--data", str(tmp_path))
    assert refused.returncode == 1
    assert "missing.pt" in refused.stderr
    assert refused.stderr.count("\n") == 1
