"""Training with the criterion that adds a model's own losses, by the commands that users type."""

from __future__ import annotations

import json
import math
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]
ModelOptions = Callable[[str], list[str]]

ARCH, SDT = "depthwise_lstm_transformer", "sdt_transformer"
CRITERION = "label_smoothed_cross_entropy_with_auxiliary"
LEARNING = [
    "--share-all-embeddings", "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler", "inverse_sqrt",
    "--warmup-updates", "10", "--label-smoothing", "0.1", "--no-epoch-checkpoints", "--log-format", "json",
    "--log-interval", "1", "--cpu",
]  # fmt: skip


def logged(result: subprocess.CompletedProcess[str], tag: str) -> list[dict[str, float]]:
    """The numbers of the log lines with this tag; fairseq writes some as text."""
    lines = (result.stderr + result.stdout).splitlines()
    found = [json.loads(line.rpartition(" | ")[2]) for line in lines if f" | {tag} | " in line]
    return [{key: float(value) for key, value in one.items()} for one in found]


def test_without_auxiliary_losses_a_run_is_stocks(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions, tmp_path: Path
) -> None:
    values = []
    for criterion in ("label_smoothed_cross_entropy", CRITERION):
        result = run_command(
            "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(ARCH), *LEARNING,
            "--criterion", criterion, "--report-accuracy", "--dropout", 0.2, "--batch-size", 40, "--update-freq", 2,
            "--max-update", 5, "--save-dir", tmp_path / criterion,
        )  # fmt: skip
        (valid,) = logged(result, "valid")
        values.append({key: valid[key] for key in ("valid_loss", "valid_nll_loss", "valid_ppl", "valid_accuracy")})
    # The loss is computed otherwise, so all but its rounding is the same.
    assert values[0] == pytest.approx(values[1], rel=1e-3)


def test_the_penalty_of_the_shallow_to_deep_model(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions, tmp_path: Path
) -> None:
    """It is logged in training and validation, counts by its weight, and falls."""
    result = run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(SDT), *LEARNING, "--criterion", CRITERION,
        "--label-smoothing", 0, "--inter-similarity-weight", 0.5, "--batch-size", 40, "--update-freq", 2,
        "--max-update", 12, "--save-dir", tmp_path,
    )  # fmt: skip
    updates, valid = logged(result, "train_inner"), logged(result, "valid")[-1]
    assert len(updates) == 12
    assert updates[-1]["inter_similarity_penalty"] < 0.8 * updates[0]["inter_similarity_penalty"]
    assert 0 < valid["valid_inter_similarity_penalty"] < 1
    for log in (updates[0], {name.removeprefix("valid_"): value for name, value in valid.items()}):
        # Losses are logged in bits.
        added = 0.5 * log["inter_similarity_penalty"] / math.log(2)
        assert log["loss"] == pytest.approx(log["nll_loss"] + added, abs=2e-3)


def test_the_penalty_needs_its_criterion(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions, tmp_path: Path
) -> None:
    result = run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(SDT), *LEARNING, "--criterion",
        "label_smoothed_cross_entropy", "--inter-similarity-weight", 0.5, "--max-tokens", 1000, "--save-dir", tmp_path,
        check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "--inter-similarity-weight 0.5 would change nothing" in result.stderr
    assert "train with --criterion label_smoothed_cross_entropy_with_auxiliary" in result.stderr


#: ``fairseq-train`` with a model that offers two losses: one reads a parameter, one the encoder's layers.
PROGRAM = textwrap.dedent("""
    import torch
    from fairseq.models import register_model
    from fairseq_cli.train import cli_main

    import fairseq_depthwise
    from fairseq_depthwise.models.base.model import AuxiliaryLoss
    from fairseq_depthwise.models.depthwise_lstm.model import (
        DepthwiseLSTMTransformer,
        DepthwiseLSTMTransformerConfig,
    )
    from fairseq_depthwise.models.sdt.similarity import inter_similarity_penalty


    @register_model("penalised", dataclass=DepthwiseLSTMTransformerConfig)
    class Penalised(DepthwiseLSTMTransformer):
        reads_encoder_states = True

        @classmethod
        def build_model(cls, cfg, task):
            model = super().build_model(cfg, task)
            model.own = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
            return model

        def auxiliary_losses(self, encoder_out):
            layers, padding = encoder_out["encoder_states"][1:], encoder_out["encoder_padding_mask"][0]
            return {
                "size": AuxiliaryLoss(self.own.square().sum(), 0.1),
                "unlikeness": AuxiliaryLoss(inter_similarity_penalty(layers, padding), 0.5),
            }


    if __name__ == "__main__":
        cli_main()
""")


def test_two_processes_are_one(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions, tmp_path: Path
) -> None:
    """An epoch whose last update, and a validation whose last step, leave nothing for the second process."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    options = [
        copy_reverse_data, *tiny_model_options(ARCH), "--arch", "penalised", *LEARNING, "--criterion", CRITERION,
        "--dropout", 0, "--batch-size", 24, "--batch-size-valid", 16, "--max-epoch", 1,
    ]  # fmt: skip
    one = run_command("python", program, *options, "--update-freq", 2, "--save-dir", tmp_path / "one")
    two = run_command(
        "torchrun", "--standalone", "--nproc_per_node", 2, program, *options, "--save-dir", tmp_path / "two",
        "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp",
    )  # fmt: skip

    updates = [logged(result, "train_inner") for result in (one, two)]
    assert [len(run) for run in updates] == [13, 13]
    names = ["loss", "nll_loss", "size", "unlikeness"]
    for first, second in zip(*updates, strict=True):
        assert {name: first[name] for name in names} == pytest.approx({name: second[name] for name in names}, abs=2e-3)
    for name in ("size", "unlikeness"):
        assert updates[0][-1][name] < updates[0][0][name]
    (first,), (second,) = (logged(result, "valid") for result in (one, two))
    names = [f"valid_{name}" for name in names]
    assert {name: first[name] for name in names} == pytest.approx({name: second[name] for name in names}, abs=2e-3)

    models = [checkpoints.load_checkpoint(tmp_path / run / "checkpoint_last.pt")["model"] for run in ("one", "two")]
    assert models[0]["own"].abs().sum() < 3.5
    for key, tensor in models[0].items():
        torch.testing.assert_close(
            tensor, models[1][key], rtol=1e-4, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}"
        )
