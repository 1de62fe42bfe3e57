"""Growing on several processes, from a configuration file, and what is refused before any training."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]

PLUGIN = Path(__file__).parents[2] / "fairseq_depthwise"
OPTIONS = [
    "--task", "translation_layer_growth", "--arch", "sdt_transformer", "--encoder-block-size", "1",
    *(f"--{side}-{size}" for side in ("encoder", "decoder")
      for size in ("embed-dim=32", "attention-heads=2", "ffn-embed-dim=64")),
    "--decoder-layers", "1", "--share-all-embeddings", "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler",
    "inverse_sqrt_restart", "--warmup-updates", "2", "--criterion", "label_smoothed_cross_entropy", "--dropout", "0",
    "--attention-dropout", "0", "--activation-dropout", "0", "--cpu", "--no-progress-bar", "--no-epoch-checkpoints",
]  # fmt: skip
STAGES = ["--growth-stages", "1:3u,2:3u,3:3u", "--growth-optimizer-state", "keep"]
TWO_PROCESSES = ["torchrun", "--standalone", "--nproc_per_node", 2, "-m", "fairseq_depthwise", "train"]
GLOO = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]


@pytest.mark.xdist_group("processes")
def test_two_processes_grow_like_one_also_after_a_resume(
    run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path
) -> None:
    """Two processes with one batch each are one with two, through two borders and a stop at the first.

    What is drawn anew is the same in both, and what is frozen is passed over by both.
    """
    batches = ["--batch-size", 20, *STAGES, "--growth-init", "random", "--growth-freeze", "copied"]
    run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *OPTIONS, *batches, "--update-freq", 2, "--save-dir",
        tmp_path / "one",
    )  # fmt: skip
    logs = [
        run_command(
            *TWO_PROCESSES, copy_reverse_data, *OPTIONS, *batches, *GLOO, "--max-update", end, "--save-dir",
            tmp_path / "two",
        ).stdout
        for end in (3, 9)
    ]  # fmt: skip
    assert "grew" not in logs[0]
    assert len(re.findall("grew the encoder from", logs[1])) >= 2
    one, two = (checkpoints.load_checkpoint(tmp_path / run / "checkpoint_last.pt")["model"] for run in ("one", "two"))
    assert one.keys() == two.keys()
    assert any(name.startswith("encoder.layers.2.") for name in one)
    for name, tensor in one.items():
        # Adam turns the sign of a gradient near 0 into a step of full size, so sums in another order may show.
        torch.testing.assert_close(
            two[name], tensor, rtol=1e-3, atol=3e-4, msg=lambda text, name=name: f"{name} {text}"
        )


@pytest.mark.xdist_group("processes")
def test_processes_that_differ_after_growth_are_found(
    run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path
) -> None:
    """A copy that goes wrong on one process must not go unnoticed."""
    program = tmp_path / "differing.py"
    program.write_text(
        textwrap.dedent("""
        import os
        import torch
        from fairseq_depthwise.growth import live_growth
        from fairseq_depthwise.cli import main

        original = live_growth.grow_model

        def grow_model(model, *args, **options):
            names = original(model, *args, **options)
            if os.environ["RANK"] == "1":
                with torch.no_grad():
                    next(model.parameters())[3, 5] += 1e-7
            return names

        live_growth.grow_model = grow_model
        raise SystemExit(main())
        """),
        encoding="utf-8",
    )
    result = run_command(
        "torchrun", "--standalone", "--nproc_per_node", 2, program, "train", copy_reverse_data, *OPTIONS, *STAGES,
        *GLOO, "--batch-size", 20, "--save-dir", tmp_path / "run", check=False,
    )  # fmt: skip
    assert result.returncode != 0
    assert "after growth process 1 has other parameters than process 0" in result.stderr


def test_hydra_train_grows(run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path) -> None:
    (tmp_path / "growing.yaml").write_text(
        textwrap.dedent(f"""
        common: {{user_dir: {PLUGIN}, cpu: true, log_format: simple}}
        task: {{_name: translation_layer_growth, data: {copy_reverse_data}, growth_stages: "2:2u,4:2u"}}
        model: {{_name: sdt_transformer, decoder_layers: 1, encoder_embed_dim: 16, decoder_embed_dim: 16,
                encoder_attention_heads: 2, decoder_attention_heads: 2, encoder_ffn_embed_dim: 32,
                decoder_ffn_embed_dim: 32, encoder_block_size: 2}}
        criterion: {{_name: label_smoothed_cross_entropy, label_smoothing: 0.1}}
        optimizer: {{_name: adam}}
        lr_scheduler: {{_name: inverse_sqrt_restart, warmup_updates: 1}}
        dataset: {{max_tokens: 1000}}
        optimization: {{lr: [0.001]}}
        checkpoint: {{save_dir: {tmp_path}/run, no_epoch_checkpoints: true}}
        """),
        encoding="utf-8",
    )
    for _ in range(2):  # the second goes on from the end, where nothing is left to train
        run_command("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "growing", cwd=tmp_path)
        saved = checkpoints.load_checkpoint(tmp_path / "run/checkpoint_last.pt")
        assert saved["cfg"]["model"]["encoder_layers"] == 4
        assert saved["optimizer_history"][-1]["num_updates"] == 4


# --- growing from a trained model ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def stock(run_command: RunCommand, copy_reverse_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of fairseq's own pre-norm transformer of 2 + 1 layers, after three updates."""
    folder = tmp_path_factory.mktemp("stock")
    run_command(
        "fairseq-train", copy_reverse_data, "--arch", "transformer", "--encoder-normalize-before",
        "--decoder-normalize-before", "--encoder-layers", 2, "--decoder-layers", 1,
        *(f"--{side}-{size}" for side in ("encoder", "decoder")
          for size in ("embed-dim=32", "attention-heads=2", "ffn-embed-dim=64")),
        "--share-all-embeddings", "--optimizer", "adam", "--lr", "5e-3", "--criterion", "label_smoothed_cross_entropy",
        "--max-tokens", 1000, "--max-update", 3, "--cpu", "--no-epoch-checkpoints", "--save-dir", folder,
    )  # fmt: skip
    return folder / "checkpoint_last.pt"


@pytest.mark.xdist_group("stock")
def test_a_stock_transformer_is_grown_and_goes_on(
    run_command: RunCommand, copy_reverse_data: Path, stock: Path, tmp_path: Path
) -> None:
    command = [
        "fairseq-depthwise", "train", copy_reverse_data, *OPTIONS, "--growth-from", stock, "--growth-stages",
        "4:3u,6:2u", "--max-tokens", 1000, "--log-format", "json", "--log-interval", 1, "--save-dir", tmp_path,
    ]  # fmt: skip
    log = run_command(*command, "--max-update", 1).stdout
    assert f"started from {stock}, 3 updates, encoder of 2 layers; the names" in log
    assert re.search(r"unused second copies of encoder weights were left out", log)
    assert re.search(r"new, with first values as in any new model: .*encoder\.connection", log)
    # Three updates are more than the warm-up of two: the schedule begins at its peak.
    rates = [float(rate) for rate in re.findall(r'"lr": "([\d.e-]+)"', log)]
    assert rates[0] == pytest.approx(5e-3 * (2 / 3) ** 0.5, rel=1e-4)
    log = run_command(*command).stdout
    assert "started from" not in log  # it goes on from its own checkpoint
    assert "grew the encoder from 4 to 6 layers after 3 updates" in log


@pytest.mark.xdist_group("stock")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--growth-stages", "1:2u,2:2u"], r"has 2 encoder layers and the first of --growth-stages 1; begin with 2"),
        (["--growth-stages", "5:2u,6:2u"], r"a stack of 2 layers cannot be grown to 5"),
        (["--encoder-embed-dim", 64, "--decoder-embed-dim", 64], r"--encoder-embed-dim is 32 there and 64 here"),
        (["--encoder-attention-heads", 4], r"--encoder-attention-heads is 2 there and 4 here"),
        (["--decoder-layers", 2], r"--decoder-layers is 1 there and 2 here"),
        (
            ["--arch", "depthwise_lstm_transformer"],
            r"holds a sdt_transformer, and --arch is of the family depthwise_lstm_transformer",
        ),
    ],
    ids=["deeper", "too shallow", "width", "heads", "decoder", "family"],
)
def test_what_a_trained_model_contradicts_is_refused(
    run_command: RunCommand, copy_reverse_data: Path, stock: Path, tmp_path: Path, options: list[object], sentence: str
) -> None:
    given = OPTIONS
    if "depthwise_lstm_transformer" in options:
        given = [option for option in OPTIONS if "ffn" not in option and option not in ("--encoder-block-size", "1")]
        given = [*given, "1"] if given[-1] == "--decoder-layers" else given
        given = [option for option in given if option != "--decoder-layers"]
    result = run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *given, "--growth-from", stock, "--growth-stages", "2:2u,4:2u",
        "--max-tokens", 1000, "--save-dir", tmp_path / "run", *options, check=False,
    )  # fmt: skip
    assert result.returncode != 0
    assert re.search(sentence, result.stderr.splitlines()[-1])
    assert "Traceback" not in result.stderr
    assert not list((tmp_path / "run").glob("*.pt"))


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--growth-stages", "4:1,2:1"], r"--growth-stages 4:1,2:1: .*must become deeper"),
        (["--growth-stages", "1:1,3:1"], r"--growth-stages 1:1,3:1: .*at most 2"),
        (["--growth-stages", "1:1,2:"], r"the last stage has no end; give it a length, or --max-epoch"),
        ([], r"needs --growth-stages, such as 6:2,12:2,18:"),
        (["--growth-stages", "1:1,2:1", "--encoder-layers", 5], r"--encoder-layers 5 contradicts --growth-stages"),
        (["--growth-stages", "1:1,2:1", "--growth-from", "nowhere.pt"], r"--growth-from nowhere.pt: there is no such"),
        (["--growth-stages", "1:1,2:1", "--restore-file", "nowhere.pt"], r"--restore-file nowhere.pt: there is no"),
        (["--growth-stages", "1:1,2:1", "--growth-side", "top"], r"--growth-side top is not a choice"),
        (["--growth-stages", "1:1,2:1", "--arch", "transformer"], r"--arch transformer cannot be grown"),
        (
            ["--growth-stages", "1:1,2:1", "--use-bmuf"],
            r"--use-bmuf cannot be used with",
        ),
    ],
    ids=lambda value: " ".join(map(str, value))[-30:] if isinstance(value, list) else "",
)
def test_bad_input_is_refused_before_training(
    run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path, options: list[object], sentence: str
) -> None:
    given: list[object] = list(OPTIONS)
    if "transformer" in options:
        given = [option for option in OPTIONS if option not in ("--encoder-block-size", "1")]
        given[given.index("--decoder-layers")] = "--decoder-layers=1"
    result = run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *given, "--max-tokens", 1000, "--save-dir", tmp_path / "run",
        *options, check=False,
    )  # fmt: skip
    assert result.returncode != 0
    assert re.search(sentence, result.stderr.splitlines()[-1]), result.stderr[-1500:]
    assert not list((tmp_path / "run").glob("*.pt"))


def test_a_truncated_checkpoint_and_other_stages_are_refused(
    run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path
) -> None:
    command = [
        "fairseq-depthwise", "train", copy_reverse_data, *OPTIONS, "--max-tokens", 1000, "--save-dir", tmp_path,
    ]  # fmt: skip
    run_command(*command, "--growth-stages", "1:2u,2:2u")
    last = tmp_path / "checkpoint_last.pt"
    content = last.read_bytes()
    other = run_command(*command, "--growth-stages", "1:6u,2:2u", check=False)
    assert re.search(
        r"checkpoint_last.pt has 2 encoder layers after 4 updates, and --growth-stages 1:6u,2:2u has 1 there; it was "
        r"trained with --growth-stages 1:2u,2:2u",
        other.stderr,
    )
    assert last.read_bytes() == content
    last.write_bytes(content[: len(content) // 2])
    truncated = run_command(*command, "--growth-stages", "1:2u,2:4u", check=False)
    assert re.search(r"checkpoint_last.pt is truncated or damaged", truncated.stderr.splitlines()[-1])
    assert last.read_bytes() == content[: len(content) // 2]
