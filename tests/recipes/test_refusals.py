"""What the scripts of a recipe refuse, in one sentence that says what to do."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_runs import RECIPES, Work

pytestmark = pytest.mark.xdist_group("recipes")


def refusal(work: Work, script: str, *arguments: object, **environment: object) -> str:
    """What a script says before it ends with status 1, having printed nothing else on stderr."""
    result = work.run(script, *arguments, status=1, **environment)
    assert "Traceback" not in result.stderr
    return result.stderr.strip()


def test_other_settings(prepared: Callable[[str], Work]) -> None:
    work = prepared("multi30k")
    message = refusal(work, "prepare", MERGES=151)
    assert f"WORK={work.folder} was prepared with" in message
    assert "MERGES=150" in message
    assert "MERGES=151" in message
    assert message.endswith("give another WORK, or remove this one")
    assert "TARGET=de" in refusal(work, "prepare", TARGET="fr")


@pytest.mark.parametrize(
    ("recipe", "environment", "words"),
    [
        ("multi30k", {"SOURCE": "xx"}, "there is no xx in Multi30k; SOURCE and TARGET are en, de, fr or cs"),
        ("multi30k", {"TARGET": "en"}, "SOURCE and TARGET are both en"),
        ("opus100", {"LANGUAGES": "de xx"}, "LANGUAGES has xx, which is not in OPUS-100"),
        ("wmt14_en_de", {"SOURCE": "de", "TARGET": "en"}, "this recipe knows en to de only"),
        ("wmt14_en_de", {"JOBS": "0"}, "JOBS=0 is not a whole number of at least 1"),
        ("wmt14_en_de", {"JOBS": "two"}, "JOBS=two is not a whole number of at least 1"),
        ("nist_zh_en", {"LDC": ""}, "LDC= is not a folder"),
        ("nist_zh_en", {"LDC": "/bin"}, "LDC=/bin has no train.zh"),
        ("wmt14_en_de", {"PYTHON": "/bin/false"}, "PYTHON=/bin/false has no fairseq-depthwise; run make setup"),
    ],
)
def test_prepare(new_work: Callable[..., Work], recipe: str, environment: dict[str, str], words: str) -> None:
    assert words in refusal(new_work(recipe), "prepare", **environment)


@pytest.mark.parametrize("name", ["text", "data-bin"])
def test_a_folder_that_prepare_did_not_make(new_work: Callable[..., Work], name: str) -> None:
    work = new_work("multi30k")
    (work.folder / name).mkdir(parents=True)
    (work.folder / name / "train.en").write_text("mine\n")
    assert f"WORK={work.folder} has a folder" in refusal(work, "prepare")
    assert (work.folder / name / "train.en").read_text() == "mine\n"


def test_odd_names_of_folders(new_work: Callable[..., Work], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert "WORK=file" in refusal(new_work("multi30k"), "prepare", WORK="file").splitlines()[-1]
    # Neither may be taken for an option.
    refusal(new_work("multi30k"), "prepare", WORK="-w x", DOWNLOADS="-d x", DISK=10**7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["-d x", "-w x", "file"]


def test_too_little_space(new_work: Callable[..., Work], tmp_path: Path) -> None:
    """Before anything is fetched; a ``df`` that comes first in PATH says so."""
    df = tmp_path / "df"
    df.write_text("#!/bin/sh\necho Filesystem 1024-blocks Used Available Capacity Mounted\necho x 9 9 3000000 9% /\n")
    df.chmod(0o755)
    work = new_work("wmt14_en_de")
    message = refusal(work, "prepare", PATH=f"{tmp_path}:/usr/bin:/bin", DISK="")
    assert message.startswith(
        f"wmt14_en_de: error: about 15 GB are needed in {work.folder}, and 3 GB are free there; set"
    )
    assert not any((work.folder / "downloads").iterdir())


def test_an_archive_that_is_another(new_work: Callable[..., Work]) -> None:
    """Checksums are compared unless that is switched off."""
    message = refusal(new_work("multi30k"), "prepare", IGNORE_CHECKSUMS=0)
    assert "train.en.gz is not what it should be: it has the md5" in message
    assert "0065d13af80720a55ca8153d126e6627 was published" in message


def test_train_before_prepare(new_work: Callable[..., Work]) -> None:
    work = new_work("multi30k")
    assert f"{work.folder}/data-bin does not exist; run bash recipes/multi30k/prepare.sh" in refusal(
        work, "train", "transformer"
    )
    assert "has no transformer; train it first" in refusal(work, "evaluate", "transformer")


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["transformr"], {}, "multi30k has no system transformr; did you mean transformer or "),
        ([""], {}, "multi30k has no system ''. train.sh"),
        (["transformer"], {"GPUS": "400"}, "GPUS=400, and this machine has "),
        (["transformer"], {"SEED": "x"}, "SEED=x is not a whole number"),
        (["transformer"], {"BATCH_TOKENS": "500", "PROCESSES": "4"}, "use at most 1 processes"),
        (["transformer", "--no-such-option"], {}, "unrecognized arguments: --no-such-option"),
    ],
)
def test_train(prepared: Callable[[str], Work], arguments: list[str], environment: dict[str, str], words: str) -> None:
    work = prepared("multi30k")
    result = work.run("train", *arguments, status=None, **environment)
    assert result.returncode in (1, 2)
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_no_gpu_for_a_large_system(prepared: Callable[[str], Work]) -> None:
    """How long it would take, and what to do; without a GPU visible even where there is one."""
    work = prepared("wmt14_en_de")
    message = refusal(work, "train", "depthwise_lstm_base", CUDA_VISIBLE_DEVICES="")
    assert "this machine has no GPU that PyTorch can use" in message
    assert "days. CPU=1 starts it all the same" in message


def test_evaluate_before_anything_was_saved(prepared: Callable[[str], Work]) -> None:
    work = prepared("multi30k")
    (work.folder / "systems" / "deep" / "checkpoints").mkdir(parents=True)
    assert "has no checkpoint of an epoch or of a number of updates yet" in refusal(work, "evaluate", "deep")


def test_print_needs_nothing_and_leaves_nothing(new_work: Callable[..., Work], tmp_path: Path) -> None:
    """The command for eight GPUs that are not here, without data, without importing PyTorch, without any file."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    paths = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    work = new_work("wmt14_en_de", forked=False)
    environment = {"PYTHONPATH": paths, "GPUS": "8", "NNODES": "2", "MASTER_ADDR": "node0"}
    printed = work.run("train", "sdt_rpr_48l", "--print", "--fp16-no-flatten-grads", **environment).stdout
    words = shlex.split(printed)
    assert printed.count("\n") == 1
    assert words[1:3] == ["-m", "torch.distributed.run"]
    assert words[words.index("--nnodes") + 1] == "2"
    assert words[words.index("--dropout") + 1] == "0.1"
    assert words[-1] == "--fp16-no-flatten-grads"
    assert not work.folder.exists()
    assert work.run("train", "--commands", **environment).stdout.count("fairseq_depthwise train ") > 70
    assert not work.folder.exists()


@pytest.mark.parametrize("recipe", ["multi30", "lib", "../recipes/multi30k", "", "--list"])
@pytest.mark.parametrize("script", ["train", "evaluate"])
def test_unknown_recipe(script: str, recipe: str, tmp_path: Path) -> None:
    message = refusal(Work(recipe, tmp_path), script, "transformer")
    assert recipe in message
    assert "iwslt14_de_en mixed_de_en multi30k nist_zh_en" in message


def test_list_of_systems(prepared: Callable[[str], Work]) -> None:
    listed = prepared("wmt14_en_de").run("train", "--list").stdout
    assert "  depthwise_lstm_base " in listed
    assert "depth-wise LSTM, tokenized 28.53 (Table 1)" in listed
    assert "mute_sequential" in listed


@pytest.mark.parametrize(
    "words",
    [
        "clean_corpus --languages en de --pair a b",
        "pieces learn text --size 100",
        "pieces apply model --input a --languages en de",
        "split_pairs --languages en de --pair a b --held-out 1",
    ],
)
def test_empty_output(words: str, tmp_path: Path) -> None:
    program, *options = words.split()
    command = [sys.executable, RECIPES / "lib" / f"{program}.py", *options, "--output", ""]
    result = subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 2
    assert "--output" in result.stderr
    assert not list(tmp_path.iterdir())
