"""Training by the commands that users type: learning, resuming, several processes, hydra."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_python import ForkedPython
from training_states import assert_same_state, bleu4, hypotheses

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]
ModelOptions = Callable[[str], list[str]]

ARCH = "depthwise_lstm_transformer"
LEARNING = [
    "--share-all-embeddings", "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler", "inverse_sqrt",
    "--warmup-updates", "100", "--criterion", "cross_entropy", "--cpu", "--no-progress-bar",
]  # fmt: skip
GLOO = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]


@pytest.fixture(scope="session")
def train(run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions) -> Callable[..., str]:
    """``train(folder, *options)``: one call of the training command; returns its log."""

    def call(folder: Path, *options: Any, data: Path = copy_reverse_data, dropout: float = 0.0) -> str:
        result = run_command(
            "fairseq-depthwise", "train", data, *tiny_model_options(ARCH), *LEARNING,
            "--dropout", dropout, "--save-dir", folder, *options,
        )  # fmt: skip
        return result.stderr + result.stdout

    return call


# --- learning ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def memorized(train: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of checkpoints of a model that has learned the training sentences by heart."""
    folder = tmp_path_factory.mktemp("memorized")
    train(
        folder, "--max-tokens", 500, "--max-update", 360, "--lr-scheduler", "polynomial_decay", "--total-num-update",
        360, "--warmup-updates", 30, "--no-epoch-checkpoints", "--save-interval", 100, "--validate-interval", 100,
    )  # fmt: skip
    return folder


@pytest.mark.xdist_group("memorized")
def test_memorizes_copy_and_reverse(run_command: RunCommand, memorized: Path, copy_reverse_data: Path) -> None:
    result = run_command(
        "fairseq-depthwise", "generate", copy_reverse_data, "--path", memorized / "checkpoint_last.pt",
        "--gen-subset", "train", "--beam", 4, "--quiet", "--cpu",
    )  # fmt: skip
    assert bleu4(result.stdout) >= 99


@pytest.mark.xdist_group("memorized")
def test_interactive_with_subword_nmt_empty_and_long_lines(
    run_command: RunCommand, memorized: Path, copy_reverse_data: Path, copy_reverse_text: Path, tmp_path: Path
) -> None:
    codes = tmp_path / "codes"
    # Enough merges to keep each word of this corpus whole, so that the model knows the pieces.
    run_command("subword-nmt", "learn-bpe", "-s", 100, "-i", copy_reverse_text / "train.src", "-o", codes)
    source, target = ((copy_reverse_text / f"train.{side}").read_text().splitlines()[3] for side in ("src", "tgt"))
    lines = [source, "", " ".join(["w1"] * 200)]
    result = run_command(
        "fairseq-depthwise", "interactive", copy_reverse_data, "--path", memorized / "checkpoint_last.pt", "--beam", 4,
        "--bpe", "subword_nmt", "--bpe-codes", codes, "--cpu", stdin="\n".join(lines) + "\n",
    )  # fmt: skip
    translations = hypotheses(result.stdout, "D")
    assert sorted(translations) == [0, 1, 2]
    assert translations[0] == target


@pytest.mark.xdist_group("memorized")
def test_from_pretrained_translates(memorized: Path, copy_reverse_data: Path, copy_reverse_text: Path) -> None:
    from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformer

    sources, targets = ((copy_reverse_text / f"train.{side}").read_text().splitlines()[:8] for side in ("src", "tgt"))
    model = DepthwiseLSTMTransformer.from_pretrained(str(memorized), "checkpoint_last.pt", str(copy_reverse_data))
    translated = model.translate(sources, beam=4)
    assert sum(one == other for one, other in zip(translated, targets, strict=True)) >= 7


def test_sentencepiece(
    run_command: RunCommand, train: Callable[..., str], copy_reverse_text: Path, tmp_path: Path
) -> None:
    """Pieces in, pieces out, text at both ends."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        input=str(copy_reverse_text / "train.src"), model_prefix=str(tmp_path / "pieces"), vocab_size=26,
        model_type="bpe", minloglevel=2,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "pieces.model"))
    for part in ("train", "valid"):
        for side in ("src", "tgt"):
            lines = (copy_reverse_text / f"{part}.{side}").read_text().splitlines()
            encoded = "".join(" ".join(pieces.encode(line, out_type=str)) + "\n" for line in lines)
            (tmp_path / f"{part}.{side}").write_text(encoded, encoding="utf-8")
    run_command(
        "fairseq-preprocess", "-s", "src", "-t", "tgt", "--joined-dictionary", "--trainpref", tmp_path / "train",
        "--validpref", tmp_path / "valid", "--destdir", tmp_path / "data-bin",
    )  # fmt: skip
    train(
        tmp_path / "run", "--max-tokens", 2000, "--max-epoch", 3, "--no-epoch-checkpoints", data=tmp_path / "data-bin"
    )
    result = run_command(
        "fairseq-depthwise", "interactive", tmp_path / "data-bin", "--path", tmp_path / "run/checkpoint_last.pt",
        "--bpe", "sentencepiece", "--sentencepiece-model", tmp_path / "pieces.model", "--cpu", stdin="w1 w12 w3\n",
    )  # fmt: skip
    assert f"S-0\t{' '.join(pieces.encode('w1 w12 w3', out_type=str))}\n" in result.stdout
    assert re.fullmatch(r"(w\d* ?)+", hypotheses(result.stdout, "D")[0])


# --- resuming ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [("--max-epoch", 1), ("--max-update", 7)], ids=["epoch end", "mid-epoch"])
def test_stopped_and_resumed_is_never_stopped(train: Callable[..., str], tmp_path: Path, stop: tuple[str, int]) -> None:
    end = ["--max-tokens", 700, "--no-epoch-checkpoints", stop[0], 2 * stop[1]]
    train(tmp_path / "whole", *end, dropout=0.2)
    train(tmp_path / "parts", *end[:3], *stop, dropout=0.2)
    log = train(tmp_path / "parts", *end, dropout=0.2)
    assert "Loaded checkpoint" in log
    assert_same_state(tmp_path / "whole/checkpoint_last.pt", tmp_path / "parts/checkpoint_last.pt")


def newest_update(folder: Path) -> int:
    """The highest update of which there is a checkpoint; 0 where there is none."""
    return max((int(path.stem.rpartition("_")[2]) for path in folder.glob("checkpoint_*_*.pt")), default=0)


def test_killed_at_any_moment_and_resumed_is_never_stopped(
    train: Callable[..., str], copy_reverse_data: Path, tiny_model_options: ModelOptions, forked_python: ForkedPython,
    tmp_path: Path,
) -> None:  # fmt: skip
    """SIGKILL while checkpoints are being written every update; whatever is left must be a good starting point."""
    options = ["--max-tokens", "700", "--max-update", "20", "--save-interval-updates", "1"]
    options += ["--keep-interval-updates", "2"]
    train(tmp_path / "whole", *options, dropout=0.2)
    command = [
        str(forked_python.python), "-m", "fairseq_depthwise", "train", str(copy_reverse_data),
        *tiny_model_options(ARCH), *LEARNING, "--dropout", "0.2", "--save-dir", str(tmp_path / "killed"), *options,
    ]  # fmt: skip
    for updates in (4, 11):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while newest_update(tmp_path / "killed") < updates:
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline, "the run wrote no checkpoint"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    train(tmp_path / "killed", *options, dropout=0.2)
    assert_same_state(tmp_path / "whole/checkpoint_last.pt", tmp_path / "killed/checkpoint_last.pt")
    assert list((tmp_path / "killed").glob("*.fairseq-unfinished")) == []


def test_a_model_that_was_trained_is_finetuned_with_fresh_state(train: Callable[..., str], tmp_path: Path) -> None:
    train(tmp_path / "first", "--max-tokens", 1000, "--max-update", 3, "--no-epoch-checkpoints")
    log = train(
        tmp_path / "second", "--max-tokens", 1000, "--max-update", 2, "--finetune-from-model",
        tmp_path / "first/checkpoint_last.pt",
    )  # fmt: skip
    assert "loading pretrained model" in log
    history = checkpoints.load_checkpoint(tmp_path / "second/checkpoint_last.pt")["optimizer_history"]
    assert history[-1]["num_updates"] == 2


def test_best_checkpoints_by_bleu_are_kept_resumed_and_averaged(
    run_command: RunCommand, train: Callable[..., str], tmp_path: Path
) -> None:
    """What most IWSLT recipes do; the score goes through sacreBLEU into the checkpoint and its name."""
    options = [
        "--max-tokens", 1000, "--eval-bleu", "--eval-bleu-args", '{"beam": 2}', "--eval-bleu-detok", "space",
        "--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric", "--keep-best-checkpoints", 2,
        "--no-epoch-checkpoints",
    ]  # fmt: skip
    train(tmp_path, *options, "--max-epoch", 2)
    log = train(tmp_path, *options, "--max-epoch", 4)
    assert "Loaded checkpoint" in log
    kept = sorted(tmp_path.glob("checkpoint.best_bleu_*.pt"))
    assert len(kept) == 2
    result = run_command("fairseq-depthwise", "average", "--output", tmp_path / "mean.pt", "--best", 2, tmp_path)
    assert all(path.name in result.stdout for path in kept)


# --- several processes -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_process(train: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six updates, each of two batches that one process computes one after the other."""
    folder = tmp_path_factory.mktemp("one")
    train(folder, "--batch-size", 20, "--update-freq", 2, "--max-update", 6, "--no-epoch-checkpoints")
    return folder


def assert_near(one: Path, other: Path) -> None:
    first, second = (checkpoints.load_checkpoint(path)["model"] for path in (one, other))
    for key, tensor in first.items():
        torch.testing.assert_close(
            tensor, second[key], rtol=1e-4, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.xdist_group("processes")
def test_two_processes_are_one_also_after_a_resume(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions, one_process: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    for updates in (3, 6):
        run_command(
            "torchrun", "--standalone", "--nproc_per_node", 2, "-m", "fairseq_depthwise", "train", copy_reverse_data,
            *tiny_model_options(ARCH), *LEARNING, "--dropout", 0, "--batch-size", 20, "--max-update", updates,
            "--no-epoch-checkpoints", *GLOO, "--save-dir", tmp_path,
        )  # fmt: skip
    assert_near(one_process / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")


@pytest.mark.xdist_group("processes")
@pytest.mark.long
def test_spawned_processes_import_the_plugin_afresh(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions, one_process: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    """fairseq spawns one process per GPU; here its own entry point is spawned twice on the CPU."""
    program = tmp_path / "spawn.py"
    program.write_text(
        textwrap.dedent("""
        import sys
        import torch
        from fairseq import options
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq.distributed import utils as distributed_utils
        from fairseq_cli.train import main

        if __name__ == "__main__":
            args = options.parse_args_and_arch(options.get_training_parser())
            cfg = convert_namespace_to_omegaconf(args)
            cfg.distributed_training.distributed_rank = None  # each process has its own; call_main does the same
            torch.multiprocessing.spawn(
                distributed_utils.distributed_main, args=(main, cfg, {"start_rank": 0}), nprocs=2, join=True
            )
        """),
        encoding="utf-8",
    )
    plugin = Path(__file__).parents[2] / "fairseq_depthwise"
    run_command(
        sys.executable, program, copy_reverse_data, "--user-dir", plugin, *tiny_model_options(ARCH), *LEARNING,
        "--dropout", 0, "--batch-size", 20, "--max-update", 6, "--no-epoch-checkpoints",
        "--save-dir", tmp_path / "run",
        "--distributed-world-size", 2, "--distributed-init-method", f"file://{tmp_path}/rendezvous", *GLOO,
    )  # fmt: skip
    assert_near(one_process / "checkpoint_last.pt", tmp_path / "run/checkpoint_last.pt")


# --- other ways to drive it ------------------------------------------------------------------------------------------


def test_hydra_train(run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path) -> None:
    """The same configuration from a file; the model's fields are the options with underscores."""
    plugin = Path(__file__).parents[2] / "fairseq_depthwise"
    (tmp_path / "small.yaml").write_text(
        textwrap.dedent(f"""
        common: {{user_dir: {plugin}, cpu: true, log_format: simple}}
        task: {{_name: translation, data: {copy_reverse_data}}}
        model: {{_name: {ARCH}, encoder_layers: 1, decoder_layers: 1, encoder_embed_dim: 16, decoder_embed_dim: 16,
                encoder_attention_heads: 2, decoder_attention_heads: 2, depthwise_hidden_dim: 32}}
        criterion: {{_name: label_smoothed_cross_entropy, label_smoothing: 0.1}}
        optimizer: {{_name: adam}}
        lr_scheduler: {{_name: inverse_sqrt_restart, warmup_updates: 1, restart_updates: "2"}}
        dataset: {{max_tokens: 1000}}
        optimization: {{max_update: 3, lr: [0.001]}}
        checkpoint: {{save_dir: {tmp_path}/run, no_epoch_checkpoints: true}}
        """),
        encoding="utf-8",
    )
    run_command("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "small", cwd=tmp_path)
    state = checkpoints.load_checkpoint(tmp_path / "run/checkpoint_last.pt")
    assert state["optimizer_history"][-1]["lr_scheduler_state"]["restarts"] == [2]
    saved = state["cfg"]["model"]
    assert (saved["_name"], saved["depthwise_hidden_dim"], saved["dropout"]) == (ARCH, 32, 0.1)
    result = run_command(
        "fairseq-depthwise", "generate", copy_reverse_data, "--path", tmp_path / "run/checkpoint_last.pt", "--cpu",
        "--quiet", "--beam", 2, "--max-len-b", 8,
    )  # fmt: skip
    assert "BLEU4" in result.stdout


def test_a_preset_is_saved_and_overridden(run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path) -> None:
    run_command(
        "fairseq-depthwise", "train", copy_reverse_data, "--arch", f"{ARCH}_iwslt_de_en", "--encoder-layers", 1,
        "--decoder-layers", 1, "--encoder-embed-dim", 32, "--decoder-embed-dim", 32, *LEARNING, "--max-update", 1,
        "--max-tokens", 500, "--save-dir", tmp_path, "--no-epoch-checkpoints",
    )  # fmt: skip
    saved = checkpoints.load_checkpoint(tmp_path / "checkpoint_last.pt")["cfg"]["model"]
    assert saved["depthwise_hidden_dim"] == 1024
    assert (saved["encoder_attention_heads"], saved["encoder_embed_dim"]) == (4, 32)
    result = run_command(
        "fairseq-generate", copy_reverse_data, "--user-dir", Path(__file__).parents[2] / "fairseq_depthwise", "--path",
        tmp_path / "checkpoint_last.pt", "--cpu", "--quiet", "--beam", 2, "--max-len-b", 8,
    )  # fmt: skip
    assert "BLEU4" in result.stdout


@pytest.mark.corpora
@pytest.mark.long
def test_real_text_is_learned(run_command: RunCommand, train: Callable[..., str], tmp_path: Path) -> None:
    """Some updates on real sentences: the validation loss falls well below that of guessing by frequency.

    In bf16 where the processor has instructions for it; elsewhere that takes several minutes.
    """
    import gzip

    corpora = os.environ.get("CORPORA")
    if not corpora or not (Path(corpora) / "tatoeba-deen").is_dir():
        pytest.skip("CORPORA names no folder with the real corpus tatoeba-deen")
    processor = Path("/proc/cpuinfo")
    precision = ["--bf16"] if processor.exists() and "_bf16" in processor.read_text() else []
    for part, size in (("train", 6_000), ("valid", 200)):
        for language in ("de", "en"):
            with gzip.open(Path(corpora) / "tatoeba-deen" / f"{part}.{language}.gz", "rt", encoding="utf-8") as packed:
                # Split at \\n only: real text holds other line separators.
                lines = packed.read().split("\n")[:size]
            (tmp_path / f"{part}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    run_command(
        "fairseq-preprocess", "-s", "de", "-t", "en", "--joined-dictionary", "--thresholdsrc", 5, "--thresholdtgt", 5,
        "--trainpref", tmp_path / "train", "--validpref", tmp_path / "valid", "--destdir", tmp_path / "data-bin",
    )  # fmt: skip
    log = train(
        tmp_path / "run", "--max-tokens", 1200, "--max-update", 120, "--no-epoch-checkpoints", *precision,
        data=tmp_path / "data-bin", dropout=0.1,
    )  # fmt: skip
    losses = [float(loss) for loss in re.findall(r"'valid' subset \| loss ([\d.]+)", log)]
    assert losses
    assert losses[-1] < 6.5
