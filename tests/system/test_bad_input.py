"""Mistakes in paths, options, files and the environment, through the real commands: one sentence, no traceback."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch

import fairseq_depthwise
from fairseq_compat import checkpoints
from fairseq_compat.folder_lock import locked_folder

RunCommand = Callable[..., CompletedProcess[str]]

ARCH = "depthwise_lstm_transformer"
PLUGIN = Path(fairseq_depthwise.__file__).parent
TRAINING = ("--cpu", "--optimizer", "adam", "--lr", "0.005", "--max-tokens", "500", "--max-update", "2")


def sentence_of(result: CompletedProcess[str]) -> str:
    """The one line of stderr that says what is wrong."""
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    (line,) = [line for line in result.stderr.splitlines() if ": error: " in line]
    assert result.stderr.endswith(f"{line}\n")
    return line.partition(": error: ")[2]


@pytest.fixture(scope="session")
def trained(
    run_command: RunCommand,
    copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder of a run of two updates of our architecture; tests copy what they change."""
    folder = tmp_path_factory.mktemp("trained")
    run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(ARCH), *TRAINING, "--save-dir", folder
    )
    return folder


# Data folders.


@pytest.mark.parametrize("command", [["fairseq-depthwise", "train"], ["fairseq-train"]])
def test_missing_data_folder(command: list[str], run_command: RunCommand, tmp_path: Path) -> None:
    result = run_command(*command, tmp_path / "nowhere", "--arch", "transformer", *TRAINING, check=False)
    assert sentence_of(result) == f"{tmp_path}/nowhere does not exist; give the path of an existing file or folder"


def test_data_folder_without_a_dictionary(run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "data-bin"
    shutil.copytree(copy_reverse_data, data, ignore=shutil.ignore_patterns("dict.*"))
    result = run_command("fairseq-depthwise", "train", data, "--arch", ARCH, *TRAINING, check=False)
    assert sentence_of(result).startswith(f"{data}/dict.src.txt does not exist; give a data folder that ")


def test_folder_that_holds_no_data(run_command: RunCommand, tmp_path: Path) -> None:
    result = run_command("fairseq-depthwise", "generate", tmp_path, "--path", "best.pt", check=False)
    assert sentence_of(result).startswith("the data folder holds no binarised data")


# Option values.


def test_no_architecture(run_command: RunCommand, copy_reverse_data: Path) -> None:
    result = run_command("fairseq-train", copy_reverse_data, *TRAINING, check=False)
    assert sentence_of(result) == "no architecture is given; name one with --arch, such as --arch transformer"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--dropout", "1.5"], "--dropout 1.5 is out of range; it must be at least 0 and below 1"),
        (["--encoder-attention-heads", "3"], "--encoder-attention-heads 3 does not divide --encoder-embed-dim 64"),
        (["--depthwise-hidden-dim", "127"], "--depthwise-hidden-dim 127 is odd"),
        (
            ["--depthwise-gate-scope", "model", "--decoder-merge", "concat"],
            "--depthwise-gate-scope model is impossible with --decoder-merge concat: the encoder's gates read 128 ",
        ),
    ],
)
def test_option_out_of_range(
    given: list[str],
    said: str,
    run_command: RunCommand,
    copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    options = [*tiny_model_options(ARCH), *TRAINING, "--save-dir", tmp_path / "checkpoints", *given]
    result = run_command("fairseq-depthwise", "train", copy_reverse_data, *options, check=False)
    assert sentence_of(result).startswith(said)
    assert not (tmp_path / "checkpoints").is_dir() or os.listdir(tmp_path / "checkpoints") == []


def test_option_out_of_range_in_a_hydra_file(run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(
        f"common: {{user_dir: {PLUGIN}, cpu: true}}\n"
        f"task: {{_name: translation, data: {copy_reverse_data}}}\n"
        f"model: {{_name: {ARCH}, dropout: 1.5}}\n"
        "criterion: {_name: cross_entropy}\noptimizer: {_name: adam}\nlr_scheduler: {_name: fixed}\n"
        "dataset: {max_tokens: 500}\noptimization: {lr: [0.001], max_update: 1}\n",
        encoding="utf-8",
    )
    options = ["--config-dir", tmp_path, "--config-name", "wrong"]
    result = run_command("fairseq-hydra-train", *options, check=False, cwd=tmp_path)
    assert sentence_of(result) == "--dropout 1.5 is out of range; it must be at least 0 and below 1"


def test_missing_batch_size(run_command: RunCommand, copy_reverse_data: Path) -> None:
    options = ["--arch", ARCH, "--cpu", "--optimizer", "adam"]
    result = run_command("fairseq-depthwise", "train", copy_reverse_data, *options, check=False)
    assert sentence_of(result) == "Must specify batch size either with --max-tokens or --batch-size"


# Checkpoints.


def damaged(folder: Path, kind: str, whole: Path) -> Path:
    path = folder / "checkpoint_last.pt"
    if kind == "truncated":
        path.write_bytes(whole.read_bytes()[:-4000])
    elif kind == "empty":
        path.touch()
    elif kind == "foreign":
        torch.save({"state_dict": {}}, path)
    else:
        torch.save({**torch.load(whole, weights_only=False), "payload": os.getcwd}, path)
    return path


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("truncated", "is truncated or damaged"),
        ("empty", "is empty; "),
        ("foreign", "is not a fairseq checkpoint"),
        ("hostile", f"is refused: its pickle names {os.getcwd.__module__}.getcwd"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "train"])
def test_checkpoint_that_is_none(
    command: str,
    kind: str,
    said: str,
    trained: Path,
    run_command: RunCommand,
    copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    path = damaged(tmp_path, kind, trained / "checkpoint_last.pt")
    before = path.read_bytes()
    if command == "generate":
        options = ["--path", path, "--cpu"]
    else:
        options = [*tiny_model_options(ARCH), *TRAINING, "--save-dir", tmp_path]
    result = run_command("fairseq-depthwise", command, copy_reverse_data, *options, check=False)
    assert sentence_of(result).startswith(f"{path} {said}")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_missing_checkpoint(run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "nowhere.pt"
    result = run_command("fairseq-depthwise", "generate", copy_reverse_data, "--path", path, check=False)
    assert sentence_of(result).startswith(f"Model file not found: {path}; ")


@pytest.mark.parametrize("command", [["fairseq-depthwise", "train"], ["fairseq-train", "--user-dir", PLUGIN]])
def test_folder_of_another_training(
    command: list[object],
    run_command: RunCommand,
    copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    options = [*tiny_model_options(ARCH), *TRAINING, "--save-dir", tmp_path]
    with locked_folder(str(tmp_path), "--save-dir"):
        before = os.listdir(tmp_path)
        result = run_command(*command, copy_reverse_data, *options, check=False)
        assert os.listdir(tmp_path) == before
    assert sentence_of(result).startswith(f"--save-dir {tmp_path} is in use: process {os.getpid()} on ")


@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model"])
def test_folder_to_go_on_from(
    option: str,
    run_command: RunCommand,
    copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    options = [*tiny_model_options(ARCH), *TRAINING, "--save-dir", tmp_path / "run", option, tmp_path]
    result = run_command("fairseq-depthwise", "train", copy_reverse_data, *options, check=False)
    assert sentence_of(result).startswith(f"{option} {tmp_path} is a folder; give a checkpoint")
    assert os.listdir(tmp_path / "run") == []


def test_resuming_with_another_model(
    trained: Path,
    run_command: RunCommand,
    copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    shutil.copy(trained / "checkpoint_last.pt", tmp_path)
    options = [*tiny_model_options(ARCH), *TRAINING, "--save-dir", tmp_path, "--encoder-layers", 3]
    result = run_command("fairseq-depthwise", "train", copy_reverse_data, *options, check=False)
    said = sentence_of(result)
    assert said.startswith(f"Cannot load model parameters from checkpoint {tmp_path}/checkpoint_last.pt; ")
    assert "encoder.layers.2." in said


def test_decoding_without_the_plugin(trained: Path, run_command: RunCommand, copy_reverse_data: Path) -> None:
    options = ["--path", trained / "checkpoint_last.pt", "--cpu"]
    result = run_command("fairseq-generate", copy_reverse_data, *options, check=False)
    assert "--user-dir" in sentence_of(result)


# The environment.


@pytest.mark.parametrize("command", ["train", "generate", "interactive"])
def test_another_release_of_fairseq(command: str, run_command: RunCommand, tmp_path: Path) -> None:
    information = tmp_path / "fairseq-0.12.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fairseq\nVersion: 0.12.1\n")
    result = run_command("fairseq-depthwise", command, "data-bin", env={"PYTHONPATH": str(tmp_path)}, check=False)
    assert result.stderr.count("\n") == 1
    assert sentence_of(result) == (
        "fairseq 0.12.1 is installed, and this plugin works with fairseq 0.12.2: pip install --no-deps fairseq==0.12.2"
    )


# The plugin a second time.


@pytest.fixture
def copied_plugin(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere" / "fairseq_depthwise"
    shutil.copytree(PLUGIN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_copy_given_to_our_command(copied_plugin: Path, run_command: RunCommand, copy_reverse_data: Path) -> None:
    options = ["--user-dir", copied_plugin, "--arch", ARCH, *TRAINING]
    result = run_command("fairseq-depthwise", "train", copy_reverse_data, *options, check=False)
    assert sentence_of(result).startswith(f"--user-dir {copied_plugin} is another folder than the installed plugin in ")


def test_copy_given_after_the_installed_one_was_imported(
    copied_plugin: Path, run_command: RunCommand, copy_reverse_data: Path
) -> None:
    code = "import fairseq_depthwise, sys; from fairseq_cli.train import cli_main; sys.exit(cli_main())"
    options = ["--user-dir", copied_plugin, "--arch", ARCH, *TRAINING]
    result = run_command("python", "-c", code, copy_reverse_data, *options, check=False)
    assert sentence_of(result).startswith(f"--user-dir {copied_plugin}: a module of the same name is already loaded")


def test_copy_alone_is_as_good_as_the_installed_one(
    copied_plugin: Path,
    run_command: RunCommand,
    copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    options = ["--user-dir", copied_plugin, *tiny_model_options(ARCH), *TRAINING, "--save-dir", tmp_path / "run"]
    result = run_command("fairseq-train", copy_reverse_data, *options)
    assert "done training" in result.stdout + result.stderr


def test_renamed_copy(copied_plugin: Path, run_command: RunCommand, copy_reverse_data: Path) -> None:
    renamed = copied_plugin.rename(copied_plugin.parent / "my_plugin")
    options = ["--user-dir", renamed, "--arch", ARCH, *TRAINING]
    result = run_command("fairseq-train", copy_reverse_data, *options, check=False)
    assert "imported as 'my_plugin'" in sentence_of(result)


def test_missing_user_dir(run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path) -> None:
    options = ["--user-dir", tmp_path / "nowhere", "--arch", "transformer", *TRAINING]
    result = run_command("fairseq-train", copy_reverse_data, *options, check=False)
    assert sentence_of(result).startswith(f"--user-dir {tmp_path}/nowhere does not exist")


# A full disk while training.

LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.argv[0] = "fairseq-train"
from fairseq_cli.train import cli_main
sys.exit(cli_main())
"""

FULL = """
import errno, os, sys
real = os.fsync
def fsync(descriptor):
    if "checkpoint_last" in os.readlink(f"/proc/self/fd/{descriptor}"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    real(descriptor)
os.fsync = fsync
sys.argv[0] = "fairseq-train"
from fairseq_cli.train import cli_main
sys.exit(cli_main())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="the system knows no limit of file sizes")
def test_full_disk_while_training_keeps_the_last_checkpoint(
    trained: Path,
    run_command: RunCommand,
    copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    last = shutil.copy(trained / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")
    before = last.read_bytes()
    options = ["--user-dir", PLUGIN, *tiny_model_options(ARCH), *TRAINING, "--max-update", 3, "--save-dir", tmp_path]
    result = run_command("python", "-c", LIMITED, len(before) // 2, copy_reverse_data, *options, check=False)
    said = sentence_of(result)
    assert said.startswith(f"cannot write {tmp_path}/checkpoint")
    assert "the file would be larger than the limit" in said
    assert os.listdir(tmp_path) == [last.name]
    assert last.read_bytes() == before
    assert checkpoints.load_checkpoint(last)["optimizer_history"][-1]["num_updates"] == 2


@pytest.mark.skipif(sys.platform != "linux", reason="the failing disk is recognised by a name in /proc")
def test_disk_that_fills_up_between_two_copies_of_a_save(
    trained: Path,
    run_command: RunCommand,
    copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    last = shutil.copy(trained / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")
    before = last.read_bytes()
    options = ["--user-dir", PLUGIN, *tiny_model_options(ARCH), *TRAINING, "--max-update", 3, "--save-dir", tmp_path]
    options += ["--save-interval-updates", 3]
    result = run_command("python", "-c", FULL, copy_reverse_data, *options, check=False)
    assert sentence_of(result) == (
        f"cannot write {last}: no space is left on the disk; the file that was there before is unchanged"
    )
    assert last.read_bytes() == before
    assert not list(tmp_path.glob("*.fairseq-unfinished"))
    # The file that was written first is there, and whole.
    assert checkpoints.load_checkpoint(tmp_path / "checkpoint_1_3.pt")["optimizer_history"][-1]["num_updates"] == 3
