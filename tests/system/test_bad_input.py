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
from filelock import FileLock

import fairseq_depthwise
from fairseq_compat import checkpoints
from fairseq_compat.patches.training import LOCK

RunCommand = Callable[..., CompletedProcess[str]]

ARCH = "depthwise_lstm_transformer"
PLUGIN = Path(fairseq_depthwise.__file__).parent
TRAINING = ["--cpu", "--optimizer", "adam", "--lr", "0.005", "--max-tokens", "500", "--max-update", "3"]


@pytest.fixture
def training(copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]], tmp_path: Path) -> list[object]:
    """A command that trains our architecture in the folder ``run``."""
    sizes = tiny_model_options(ARCH)
    return ["fairseq-depthwise", "train", copy_reverse_data, *sizes, *TRAINING, "--save-dir", tmp_path / "run"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("fairseq-depthwise train {folder}/nowhere --arch transformer TRAINING", "{folder}/nowhere"),
        ("fairseq-train {folder}/nowhere --arch transformer TRAINING", "{folder}/nowhere"),
        ("fairseq-depthwise train {folder}/bare --arch transformer TRAINING", "{folder}/bare/dict.src.txt"),
        ("fairseq-depthwise generate {folder} --path best.pt", "Could not infer language pair"),
        ("fairseq-train {data} TRAINING", "RuntimeError: in parse_args_and_arch"),
        ("fairseq-depthwise train {data} --arch ARCH --cpu --optimizer adam", "Must specify batch size"),
        ("fairseq-depthwise generate {data} --path {folder}/nowhere.pt", "Model file not found: {folder}/nowhere.pt"),
        ("fairseq-generate {data} --path {trained} --cpu", "KeyError"),
        ("fairseq-train {data} --user-dir {folder}/nowhere TRAINING", "{folder}/nowhere"),
        ("OURS --dropout 1.5", "--dropout 1.5"),
        ("OURS --lr -1", "--lr -1.0 is out of range"),
        ("OURS --encoder-layers 1000000000", "--encoder-layers 1000000000 is out of range"),
        ("fairseq-generate {data} --path {trained} --cpu --beam 0", "--beam 0 is out of range"),
        ("fairseq-depthwise translate {trained} --data {data} --lenpen nan", "--lenpen nan is out of range"),
        ("OURS --encoder-attention-heads 3", "--encoder-attention-heads 3"),
        ("OURS --depthwise-gate-scope model --decoder-merge concat", "--depthwise-gate-scope model"),
        ("OURS --tokenizer moses", "source_lang"),
        ("OURS --restore-file {folder}", "--restore-file {folder} is no file"),
        ("OURS --finetune-from-model {folder}", "--finetune-from-model {folder} is no file"),
    ],
)
def test_refused_before_training(
    words: str, named: str, refusal: Callable[..., str], training: list[object], trained: Callable[[str], Path],
    copy_reverse_data: Path, tmp_path: Path,
) -> None:  # fmt: skip
    shutil.copytree(copy_reverse_data, tmp_path / "bare", ignore=shutil.ignore_patterns("dict.*"))
    known = {"folder": tmp_path, "data": copy_reverse_data, "trained": trained(ARCH)}
    lists = {"TRAINING": TRAINING, "OURS": training, "ARCH": [ARCH]}
    given = [part for word in words.format(**known).split() for part in lists.get(word, [word])]
    assert named.format(**known) in refusal(*given)
    assert not list((tmp_path / "run").glob("*"))


def test_option_out_of_range_in_a_hydra_file(
    refusal: Callable[..., str], copy_reverse_data: Path, tmp_path: Path
) -> None:
    (tmp_path / "wrong.yaml").write_text(
        f"common: {{user_dir: {PLUGIN}, cpu: true}}\n"
        f"task: {{_name: translation, data: {copy_reverse_data}}}\n"
        f"model: {{_name: {ARCH}, dropout: 1.5}}\n"
        "criterion: {_name: cross_entropy}\noptimizer: {_name: adam}\nlr_scheduler: {_name: fixed}\n"
        "dataset: {max_tokens: 500}\noptimization: {lr: [0.001], max_update: 1}\n",
        encoding="utf-8",
    )
    options = ["--config-dir", tmp_path, "--config-name", "wrong"]
    assert refusal("fairseq-hydra-train", *options, cwd=tmp_path).startswith("--dropout 1.5")


# Checkpoints.


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("truncated", "is truncated or damaged"),
        ("empty", "is empty"),
        ("foreign", "is not a fairseq checkpoint"),
        ("hostile", f"is refused: its pickle names {os.getcwd.__module__}.getcwd"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "train", "grow"])
def test_checkpoint_that_is_none_stays_as_it_is(
    command: str, kind: str, named: str, trained: Callable[[str], Path], refusal: Callable[..., str],
    training: list[object], copy_reverse_data: Path, tmp_path: Path,
) -> None:  # fmt: skip
    path, whole = tmp_path / "run/checkpoint_last.pt", trained(ARCH)
    path.parent.mkdir()
    if kind == "truncated":
        path.write_bytes(whole.read_bytes()[:-4000])
    elif kind == "empty":
        path.touch()
    elif kind == "foreign":
        torch.save({"state_dict": {}}, path)
    else:
        torch.save({**torch.load(whole, weights_only=False), "payload": os.getcwd}, path)
    before = path.read_bytes()
    commands = {
        "generate": ["fairseq-depthwise", "generate", copy_reverse_data, "--path", path, "--cpu"],
        "train": training,
        "grow": [*training, "--task", "translation_layer_growth", "--growth-stages", "2:2u,3:2u"],
    }
    assert refusal(*commands[command]).startswith(f"{path} {named}")
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("command", [["fairseq-depthwise", "train"], ["fairseq-train", "--user-dir", PLUGIN]])
def test_folder_of_another_training(
    command: list[object], refusal: Callable[..., str], training: list[object], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run" / LOCK):
        sentence = refusal(*command, *training[2:])
        assert os.listdir(tmp_path / "run") == [LOCK]
    assert sentence.startswith(f"--save-dir {tmp_path}/run is in use")


def test_resuming_with_another_model(
    trained: Callable[[str], Path], refusal: Callable[..., str], training: list[object], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(trained(ARCH), tmp_path / "run")
    sentence = refusal(*training, "--encoder-layers", 3)
    assert f"{tmp_path}/run/checkpoint_last.pt" in sentence
    assert "encoder.layers.2." in sentence


# The environment, and the plugin a second time.


@pytest.mark.parametrize("command", ["train", "generate", "interactive"])
def test_another_release_of_fairseq(command: str, refusal: Callable[..., str], tmp_path: Path) -> None:
    information = tmp_path / "fairseq-0.12.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fairseq\nVersion: 0.12.1\n")
    sentence = refusal("fairseq-depthwise", command, "data-bin", env={"PYTHONPATH": str(tmp_path)})
    assert sentence.startswith("fairseq 0.12.1 ")
    assert "fairseq==0.12.2" in sentence


@pytest.fixture
def copied_plugin(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere" / "fairseq_depthwise"
    shutil.copytree(PLUGIN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_copy_beside_the_installed_plugin(
    copied_plugin: Path, refusal: Callable[..., str], training: list[object]
) -> None:
    given = ["--user-dir", copied_plugin, *training[2:]]
    assert refusal("fairseq-depthwise", "train", *given).startswith(f"--user-dir {copied_plugin} ")
    code = "import fairseq_depthwise, sys; from fairseq_cli.train import cli_main; sys.exit(cli_main())"
    assert f"--user-dir={copied_plugin} " in refusal("python", "-c", code, *given)


def test_copy_alone_is_as_good_as_the_installed_one_under_its_name_only(
    copied_plugin: Path, run_command: RunCommand, refusal: Callable[..., str], training: list[object]
) -> None:
    result = run_command("fairseq-train", "--user-dir", copied_plugin, *training[2:])
    assert "done training" in result.stdout + result.stderr
    renamed = copied_plugin.rename(copied_plugin.parent / "my_plugin")
    assert "'my_plugin'" in refusal("fairseq-train", "--user-dir", renamed, *training[2:])


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


@pytest.fixture
def last(trained: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of the checkpoint of two updates, from which the training goes on to a third."""
    (tmp_path / "run").mkdir()
    return Path(shutil.copy(trained(ARCH), tmp_path / "run"))


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="the system knows no limit of file sizes")
def test_full_disk_while_training_keeps_the_last_checkpoint(
    last: Path, refusal: Callable[..., str], training: list[object]
) -> None:
    before = last.read_bytes()
    sentence = refusal("python", "-c", LIMITED, len(before) // 2, "--user-dir", PLUGIN, *training[2:])
    assert sentence.startswith(f"cannot write {last.parent}/checkpoint")
    assert os.listdir(last.parent) == [last.name]
    assert last.read_bytes() == before


@pytest.mark.skipif(sys.platform != "linux", reason="the failing disk is recognized by a name in /proc")
def test_disk_that_fills_up_between_two_copies_of_a_save(
    last: Path, refusal: Callable[..., str], training: list[object]
) -> None:
    before = last.read_bytes()
    options = ["--user-dir", PLUGIN, *training[2:], "--save-interval-updates", 3]
    sentence = refusal("python", "-c", FULL, *options)
    assert sentence.startswith(f"cannot write {last}: ")
    assert last.read_bytes() == before
    assert not list(last.parent.glob("*.fairseq-unfinished"))
    # The file that was written first is there, and whole.
    written = checkpoints.load_checkpoint(last.parent / "checkpoint_1_3.pt")
    assert written["optimizer_history"][-1]["num_updates"] == 3
