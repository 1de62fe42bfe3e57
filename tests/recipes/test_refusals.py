"""What the scripts of a recipe refuse, in one sentence that says what to do."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_runs import SMALL_BATCH, Work, lines, times_of
from translated_sets import evaluation_sets

from fairseq_compat import UserError
from recipes import all_recipes

pytestmark = pytest.mark.xdist_group("recipes")


def refusal(work: Work, script: str, *arguments: object, **environment: object) -> str:
    """What a script says before it ends with status 1."""
    return work.run(script, *arguments, status=1, **environment).stderr


def test_other_settings(prepared: Callable[[str], Work]) -> None:
    work = prepared("multi30k")
    message = refusal(work, "prepare", MERGES=151)
    assert {f"WORK={work.folder}", "MERGES=150", "MERGES=151"} <= set(message.split())
    assert "TARGET=de" in refusal(work, "prepare", TARGET="fr")


def test_other_settings_without_new_downloads(prepared: Callable[[str], Work], tmp_path: Path) -> None:
    """What the refusal names is all that has to go, and what was fetched is not among it."""
    work = Work("multi30k", tmp_path / "work", prepared("multi30k").environment)
    shutil.copytree(prepared("multi30k").folder, work.folder)
    (work.folder / "systems").mkdir(exist_ok=True)
    words = refusal(work, "prepare", MERGES=151).split()
    named = [path for path in work.folder.iterdir() if str(path) in words]
    assert {path.name for path in named} == {"text", "data-bin", "systems"}
    for path in named:
        shutil.rmtree(path)
    downloads = times_of(work.folder / "downloads")
    work.run("prepare", MERGES=151, MIRROR="/none")
    assert times_of(work.folder / "downloads") == downloads
    assert len(lines(work.folder / "data-bin" / "bpe.codes")) == 152


@pytest.mark.parametrize(
    ("recipe", "environment", "words"),
    [
        ("multi30k", {"SOURCE": "xx"}, "xx"),
        ("opus100", {"LANGUAGES": "de xx"}, "LANGUAGES has xx"),
        ("wmt14_en_de", {"SOURCE": "de", "TARGET": "en"}, "SOURCE=de"),
        ("nist_zh_en", {"LDC": "/bin"}, "LDC=/bin"),
        ("wmt18_zh_en", {"VOCABULARY": "20"}, "VOCABULARY=20"),
    ],
)
def test_prepare(new_work: Callable[..., Work], recipe: str, environment: dict[str, str], words: str) -> None:
    assert words in refusal(new_work(recipe), "prepare", **environment)


@pytest.mark.parametrize(
    ("recipe", "name", "value"),
    [("tatoeba_de_en", "HELD_OUT", "-5"), ("iwslt14_de_en", "RATIO", "nan"), ("wmt14_en_de", "THRESHOLD", "$(x)")],
)
def test_settings_that_are_no_numbers(new_work: Callable[..., Work], recipe: str, name: str, value: str) -> None:
    """With -5 nearly all pairs would be held out, and nan would be no limit; a corrected one is another setting."""
    work = new_work(recipe)
    assert f"{name}={value}" in refusal(work, "prepare", **{name: value})
    assert not any((work.folder / "text").iterdir())


def test_folders_whose_names_divide_lists(new_work: Callable[..., Work], tmp_path: Path) -> None:
    work = Work("multi30k", tmp_path / "a,b", new_work("multi30k").environment)
    assert "a,b" in refusal(work, "prepare")
    assert not work.folder.exists()


@pytest.fixture
def copied(prepared: Callable[[str], Work], tmp_path: Path) -> Callable[[str], Work]:
    """``copied(recipe)``: a prepared recipe's folder that a test may change."""

    def copy(recipe: str) -> Work:
        work = Work(recipe, tmp_path / "work", prepared(recipe).environment)
        shutil.copytree(prepared(recipe).folder, work.folder)
        return work

    return copy


def test_texts_that_are_no_pairs(copied: Callable[[str], Work]) -> None:
    work = copied("multi30k")
    shutil.rmtree(work.folder / "data-bin")
    text = work.folder / "text" / "bpe.train.en"
    text.write_text("".join(f"{line}\n" for line in lines(text)[1:]))
    assert "bpe.train.en" in refusal(work, "prepare")
    assert not (work.folder / "data-bin").exists()


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../x"])
def test_trainings_stay_in_the_folder_of_systems(prepared: Callable[[str], Work], name: str) -> None:
    work = prepared("multi30k")
    assert f"RUN={name} " in refusal(work, "train", "transformer", RUN=name, **SMALL_BATCH)
    assert not (work.folder / "commands.sh").exists()


def test_a_run_has_one_seed(copied: Callable[[str], Work]) -> None:
    """Otherwise the training of the other seed would be resumed."""
    work = copied("multi30k")
    folder = work.folder / "systems" / "mine"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "checkpoint_last.pt").touch()
    commands = "# it's the first\npython train --seed 1\n# the second\npython train --seed 1 --lr 1 --seed=3\n"
    (folder / "commands.sh").write_text(commands)
    message = refusal(work, "train", "transformer", RUN="mine", SEED=2, **SMALL_BATCH)
    assert {"3,", "2;"} <= set(message.split())
    assert (folder / "commands.sh").read_text() == commands


@pytest.mark.parametrize("order", [[0], [1, 2], [1, 0, 2], [0, 1, 1], [0, 1, 2, 2]])
def test_names_of_test_sets_that_belong_to_others(copied: Callable[[str], Work], order: list[int]) -> None:
    """Translations would be scored with the references of another test set."""
    work = copied("multi30k")
    path = work.folder / "data-bin" / "tests.txt"
    names = lines(path)
    assert [test.name for test in evaluation_sets(all_recipes()["multi30k"], work.folder)] == names
    path.write_text("".join(f"{names[place]}\n" for place in order))
    with pytest.raises(UserError, match=r"tests\.txt"):
        evaluation_sets(all_recipes()["multi30k"], work.folder)


def test_back_translation_without_subwords(copied: Callable[[str], Work], tmp_path: Path) -> None:
    """Before anything is translated: a file that is no model would be refused otherwise."""
    work = copied("multi30k")
    (work.folder / "text" / "bpe.codes").unlink()
    text = work.folder / "text" / "train.de"
    assert "bpe.codes" in refusal(work, "back_translate", text, text, MIXED=tmp_path / "mixed")


def test_a_seed_counts_once(prepared: Callable[[str], Work]) -> None:
    assert "SEEDS=2 02" in refusal(prepared("multi30k"), "evaluate", "transformer", SEEDS="2 02")


def test_a_folder_that_prepare_did_not_make(new_work: Callable[..., Work]) -> None:
    work, name = new_work("multi30k"), "data-bin"
    (work.folder / name).mkdir(parents=True)
    (work.folder / name / "train.en").write_text("mine\n")
    assert f"WORK={work.folder} has a folder" in refusal(work, "prepare")
    assert (work.folder / name / "train.en").read_text() == "mine\n"


def test_too_little_space(new_work: Callable[..., Work], tmp_path: Path) -> None:
    """Before anything is fetched; a ``df`` that comes first in PATH says so."""
    df = tmp_path / "df"
    df.write_text("#!/bin/sh\necho Filesystem 1024-blocks Used Available Capacity Mounted\necho x 9 9 3000000 9% /\n")
    df.chmod(0o755)
    work = new_work("wmt14_en_de")
    message = refusal(work, "prepare", PATH=f"{tmp_path}:/usr/bin:/bin", DISK="")
    assert "15 GB" in message
    assert "3 GB" in message
    assert not any((work.folder / "downloads").iterdir())


def test_train_before_prepare(new_work: Callable[..., Work]) -> None:
    work = new_work("multi30k")
    assert "bash recipes/multi30k/prepare.sh" in refusal(work, "train", "transformer")
    assert "transformer" in refusal(work, "evaluate", "transformer")


@pytest.mark.parametrize(
    ("recipe", "system", "environment", "words"),
    [
        ("multi30k", "transformr", {}, "no system 'transformr'"),
        ("multi30k", "transformer", {"GPUS": "400"}, "GPUS=400"),
        ("multi30k", "transformer", {"BATCH_TOKENS": "500", "PROCESSES": "4"}, "at most 1 processes"),
        ("wmt14_en_de", "depthwise_lstm_base", {"CUDA_VISIBLE_DEVICES": ""}, "CPU=1"),
    ],
)
def test_train(
    prepared: Callable[[str], Work], recipe: str, system: str, environment: dict[str, str], words: str
) -> None:
    assert words in refusal(prepared(recipe), "train", system, **environment)


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
