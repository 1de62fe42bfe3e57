"""The data of ``prepare``: train records how their text was made, and others refuse what contradicts it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from fairseq_compat import UserError, checkpoints
from fairseq_compat.text_record import read_text_record

RunCommand = Callable[..., CompletedProcess[str]]

CORPUS = Path(__file__).parents[2] / "examples" / "quickstart" / "corpus"
UPDATE = "--optimizer adam --lr 0.005 --max-tokens 2000 --no-epoch-checkpoints --cpu --max-update 1"


@pytest.fixture(scope="module")
def data(run_command: RunCommand, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that was prepared with BPE, and the text of its test part beside it."""
    folder = tmp_path_factory.mktemp("prepared")
    for name, count in (("train", 200), ("test", 10)):
        for language in ("en", "de"):
            lines = (CORPUS / f"{name}.{language}").read_text(encoding="utf-8").split("\n")[:count]
            (folder / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ("--train", folder / "train", "--test", folder / "test", "--merges", 120, "--workers", 1)
    run_command("fairseq-depthwise", "prepare", "-s", "en", "-t", "de", *options, folder / "data-bin")
    return folder / "data-bin"


@pytest.fixture(scope="module")
def train(tiny_model_options: Callable[[str], list[str]]) -> list[str]:
    """The command, without data, of a training of one update."""
    return ["fairseq-depthwise", "train", *tiny_model_options("transformer"), *UPDATE.split()]


def test_commands_know_the_text_of_prepared_data(
    data: Path, train: list[str], run_command: RunCommand, refusal: Callable[..., str], tmp_path: Path
) -> None:
    """After the folder was moved, too."""
    moved, model = shutil.copytree(data, tmp_path / "first"), tmp_path / "model" / "checkpoint_last.pt"
    run_command(*train, moved, "--save-dir", model.parent)
    cfg = checkpoints.load_checkpoint(model)["cfg"]
    assert cfg["tokenizer"]["_name"] == "moses"
    assert cfg["tokenizer"]["moses_no_dash_splits"]
    assert (cfg["tokenizer"]["source_lang"], cfg["tokenizer"]["target_lang"]) == ("en", "de")
    assert cfg["bpe"]["bpe_codes"] == str(moved / "bpe.codes")
    moved = moved.rename(tmp_path / "second")
    scored = ("--eval-bleu", "--eval-bleu-print-samples", "--eval-bleu-args", '{"beam": 1, "max_len_b": 5}')
    log = run_command(*train, moved, "--max-update", 2, "--save-dir", model.parent, *scored).stdout  # resumes
    cfg = checkpoints.load_checkpoint(model)["cfg"]
    assert cfg["bpe"]["bpe_codes"] == str(moved / "bpe.codes")
    assert cfg["task"]["eval_bleu_detok"] == "moses"
    (reference, *_) = [line.partition("example reference: ")[2] for line in log.splitlines() if "reference:" in line]
    assert reference in (moved / "held_out.de").read_text(encoding="utf-8").splitlines()

    lines = "A well-known dog, isn't it?\n"
    options = ("--cpu", "--max-len-b", 5)
    translated = run_command("fairseq-depthwise", "translate", model, *options, stdin=lines).stdout
    answer = run_command("fairseq-depthwise", "interactive", moved, "--path", model, *options, stdin=lines).stdout
    fields = dict(line.split("\t", 1) for line in answer.splitlines() if line[1:2] == "-" and "\t" in line)
    assert fields["D-0"].split("\t")[1] + "\n" == translated
    assert fields["S-0"].replace("@@ ", "") == "A well-known dog , isn &apos;t it ?"
    printed = run_command("fairseq-depthwise", "generate", moved, "--path", model, *options).stdout
    assert "@@" not in "".join(line for line in printed.splitlines() if line.startswith("T-"))
    sentence = refusal("fairseq-depthwise", "generate", moved, "--path", model, "--cpu", "--tokenizer", "space")
    assert "--tokenizer space" in sentence


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tokenizer", "space"], "--tokenizer space"),
        (["-s", "en", "-t", "de", "--tokenizer", "moses", "--moses-no-escape"], "--moses-no-escape"),
        (["--bpe", "characters"], "--bpe characters"),
        (["--bpe", "subword_nmt", "--bpe-codes", "{other}"], "--bpe-codes"),
        (["--source-lang", "fr"], "--source-lang fr"),
        (["-s", "en", "-t", "de", "--tokenizer", "moses", "--bpe", "subword_nmt", "--bpe-codes", "{codes}"], ""),
    ],
)
def test_options_that_contradict_the_data(
    options: list[str],
    words: str,
    data: Path,
    train: list[str],
    run_command: RunCommand,
    refusal: Callable[..., str],
    tmp_path: Path,
) -> None:
    """Those that say the same are none."""
    other, codes = tmp_path / "other", tmp_path / "codes"
    other.write_text("#version: 0.2\nt h\n")
    shutil.copy(data / "bpe.codes", codes)
    given = [option.format(other=other, codes=codes) for option in options]
    command = [*train, data, *given, "--save-dir", tmp_path / "model"]
    if words:
        assert words in refusal(*command)
    else:
        run_command(*command, "--no-save")


@pytest.mark.parametrize("damage", ["cut", "format", "tokenizer", "elsewhere", "codes", "lost"])
def test_damaged_records_are_refused(damage: str, data: Path, tmp_path: Path) -> None:
    """Also one that names a file elsewhere, or a tokenizer that might read files of the network."""
    copy = shutil.copytree(data, tmp_path / "data-bin")
    record = copy / "text.json"
    document = json.loads(record.read_text())
    if damage == "format":
        document["format"] = 99
    elif damage == "tokenizer":
        document["tokenizer"]["name"] = "unheard_of"
    elif damage == "elsewhere":
        document["subwords"]["bpe_codes"]["file"] = "../data-bin/bpe.codes"
    record.write_text(json.dumps(document)[: -9 if damage == "cut" else None])
    if damage == "codes":
        (copy / "bpe.codes").write_text("#version: 0.2\nt h\n")
    elif damage == "lost":
        (copy / "bpe.codes").unlink()
    with pytest.raises(UserError, match=r"text\.json"):
        read_text_record(str(copy))
