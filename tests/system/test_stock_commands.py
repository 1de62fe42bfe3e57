"""fairseq's own commands on its own models: unmodified fairseq works from preprocessing to scores on this stack."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from training_states import hypotheses

from fairseq_compat import checkpoints

RunCommand = Callable[..., CompletedProcess[str]]

TRAINING = (
    "--cpu", "--optimizer", "adam", "--lr", "0.005", "--max-tokens", "500", "--dropout", "0",
    "--share-all-embeddings", "--no-epoch-checkpoints", "--no-progress-bar", "--seed", "1",
)  # fmt: skip


def output_of(result: CompletedProcess[str]) -> str:
    """Everything that was printed; fairseq's log goes to either stream."""
    return result.stdout + result.stderr


def lines_of(result: CompletedProcess[str], kind: str) -> list[str]:
    """Lines such as ``H-12<tab>...`` of fairseq-generate and -interactive."""
    return [line for line in result.stdout.splitlines() if re.match(rf"{kind}-\d+\t", line)]


def updates(path: Path) -> int:
    return checkpoints.load_checkpoint(path)["optimizer_history"][-1]["num_updates"]


@pytest.fixture(scope="module")
def stock_run(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """The folder of a training run of the stock Transformer: two epochs in one go, then resumed for a third."""
    folder = tmp_path_factory.mktemp("stock_run")
    options = [*tiny_model_options("transformer"), *TRAINING, "--save-dir", folder]
    first = run_command("fairseq-train", copy_reverse_data, *options, "--max-epoch", 2)
    assert "done training" in output_of(first)
    after_two = updates(folder / "checkpoint_last.pt")
    second = run_command("fairseq-train", copy_reverse_data, *options, "--max-epoch", 3)
    assert re.search(rf"Loaded checkpoint \S+ \(epoch 3 @ {after_two} updates\)", output_of(second))
    assert updates(folder / "checkpoint_last.pt") == after_two * 3 // 2
    return folder


def test_generate_translates_every_sentence_and_interactive_every_line(
    run_command: RunCommand, copy_reverse_data: Path, stock_run: Path
) -> None:
    options = [copy_reverse_data, "--path", stock_run / "checkpoint_best.pt", "--cpu", "--beam", 3, "--max-len-b", 9]
    generated = run_command("fairseq-generate", *options, "--max-tokens", 500)
    for kind in "STHDP":
        assert len(lines_of(generated, kind)) == 40
    assert "Warning" not in generated.stderr
    sources = dict(line.split("\t") for line in lines_of(generated, "S"))
    lines = [*(sources[f"S-{number}"] for number in range(5)), "", "unknown w4"]
    result = run_command("fairseq-interactive", *options, stdin="".join(f"{line}\n" for line in lines))
    found, expected = hypotheses(result.stdout), hypotheses(generated.stdout)
    assert sorted(found) == list(range(7))
    assert [found[number] for number in range(5)] == [expected[number] for number in range(5)]
    assert "S-6\t<unk> w4\n" in result.stdout
    assert [lines_of(result, kind)[5] for kind in "HD"] == ["H-5\t0.0\t", "D-5\t0.0\t"]


def test_validate_repeats_the_loss_of_training(
    run_command: RunCommand, copy_reverse_data: Path, stock_run: Path
) -> None:
    path = stock_run / "checkpoint_last.pt"
    result = run_command("fairseq-validate", copy_reverse_data, "--path", path, "--cpu", "--max-tokens", 500)
    found = re.search(r"valid on 'valid' subset \| loss (\d+\.?\d*)", output_of(result))
    assert found is not None
    assert float(found[1]) == pytest.approx(checkpoints.load_checkpoint(path)["extra_state"]["val_loss"], abs=2e-3)


def test_language_model_is_trained_and_evaluated(
    run_command: RunCommand, copy_reverse_text: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data-bin"
    run_command(
        "fairseq-preprocess", "--only-source", "--trainpref", copy_reverse_text / "train.tgt", "--validpref",
        copy_reverse_text / "valid.tgt", "--testpref", copy_reverse_text / "test.tgt", "--destdir", data,
    )  # fmt: skip
    run_command(
        "fairseq-train", data, "--task", "language_modeling", "--arch", "transformer_lm", "--decoder-layers", 1,
        "--decoder-embed-dim", 32, "--decoder-ffn-embed-dim", 64, "--decoder-attention-heads", 2, "--cpu",
        "--optimizer", "adam", "--lr", "0.005", "--tokens-per-sample", 32, "--max-tokens", 512, "--max-update", 20,
        "--save-dir", tmp_path, "--no-epoch-checkpoints",
    )  # fmt: skip
    evaluation = ["fairseq-eval-lm", data, "--path", tmp_path / "checkpoint_last.pt", "--cpu", "--tokens-per-sample"]
    result = run_command(*evaluation, 32, "--max-tokens", 512)
    found = re.search(r"Perplexity: (\d+\.?\d*)", output_of(result))
    assert found is not None
    assert 1 < float(found[1]) < 24  # fewer than the symbols there are


def test_embeddings_are_read_at_the_beginning_of_a_training(
    run_command: RunCommand, refusal: Callable[..., str], copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]], tmp_path: Path,
) -> None:  # fmt: skip
    path = tmp_path / "embeddings.txt"
    path.write_text(f"w3 {'0.5 ' * 64}\n", encoding="utf-8")
    options = [*tiny_model_options("transformer"), *TRAINING, "--encoder-embed-path", path, "--max-tokens", 500]
    run_command("fairseq-train", copy_reverse_data, *options, "--max-update", 1, "--save-dir", tmp_path / "run")
    path.unlink()
    run_command("fairseq-train", copy_reverse_data, *options, "--max-update", 2, "--save-dir", tmp_path / "run")
    assert updates(tmp_path / "run/checkpoint_last.pt") == 2
    sentence = refusal("fairseq-train", copy_reverse_data, *options, "--max-update", 1, "--save-dir", tmp_path / "new")
    assert str(path) in sentence
