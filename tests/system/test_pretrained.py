"""Trainings that begin with a pretrained model: mBART's task, whose sentences end with their language, and XLM's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from training_states import hypotheses

RunCommand = Callable[..., CompletedProcess[str]]

TRAINING = ("--cpu", "--optimizer", "adam", "--lr", 0.005, "--max-tokens", 500, "--no-epoch-checkpoints")
MBART = ("--task", "translation_from_pretrained_bart", "--langs", "src,tgt", "--prepend-bos")

#: Translates all lines of a text at once and one by one, after searches with other beams.
TRANSLATE = """
import sys
from fairseq.models.transformer import TransformerModel

folder, data, *lines = sys.argv[1:]
model = TransformerModel.from_pretrained(folder, "checkpoint_best.pt", data)
for beam in (5, 1):
    together = model.translate(lines, beam=beam, max_len_b=9)
    print(together == [model.translate(line, beam=beam, max_len_b=9) for line in lines], together)
"""


# mBART.


@pytest.fixture(scope="module")
def training(copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]]) -> list[object]:
    return ["fairseq-train", copy_reverse_data, *tiny_model_options("bart_base"), "--share-all-embeddings", *TRAINING]


@pytest.fixture(scope="module")
def mbart(
    run_command: RunCommand, training: list[object], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, float]:
    """A model's folder, and the BLEU of its validation."""
    folder = tmp_path_factory.mktemp("mbart")
    result = run_command(
        *training, *MBART, "--max-epoch", 1, "--eval-bleu", "--eval-bleu-args", '{"max_len_b": 9}',
        "--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric", "--save-dir", folder,
    )  # fmt: skip
    (bleu,) = re.findall(r"valid on 'valid' subset .*\| bleu ([\d.]+)", result.stdout + result.stderr)
    return folder, float(bleu)


@pytest.fixture(scope="module")
def translating(copy_reverse_data: Path, mbart: tuple[Path, float]) -> list[object]:
    return [copy_reverse_data, *MBART, "--path", mbart[0] / "checkpoint_best.pt", "--cpu", "--max-len-b", 9]


def test_a_language_is_no_word_of_bleu(
    run_command: RunCommand, translating: list[object], mbart: tuple[Path, float], copy_reverse_text: Path
) -> None:
    words = len((copy_reverse_text / "valid.tgt").read_text().split())
    generate = ["fairseq-generate", *translating, "--gen-subset", "valid"]
    found = re.search(r"BLEU = ([\d.]+) .*ref_len = (\d+)", run_command(*generate, "--sacrebleu").stdout)
    assert found is not None
    assert (float(found[1]), int(found[2])) == (mbart[1], words)
    assert f"reflen={words})" in run_command(*generate).stdout


def test_text_is_translated_as_data(
    run_command: RunCommand, translating: list[object], mbart: tuple[Path, float], copy_reverse_text: Path
) -> None:
    text = (copy_reverse_text / "test.src").read_text()
    generated = hypotheses(run_command("fairseq-generate", *translating, "--beam", 3).stdout)
    in_batches = ["--beam", 3, "--buffer-size", 40, "--batch-size", 8]
    assert hypotheses(run_command("fairseq-interactive", *translating, *in_batches, stdin=text).stdout) == generated
    ours = ["fairseq-depthwise", "translate", mbart[0] / "checkpoint_best.pt", "--data", translating[0], "--tokenized"]
    translated = run_command(*ours, "--cpu", "--beam", 3, "--max-len-b", 9, "--lenpen", 1, stdin=text).stdout
    assert translated.splitlines() == [generated[number] for number in range(40)]


def test_a_search_has_the_options_of_any(
    run_command: RunCommand, translating: list[object], copy_reverse_text: Path
) -> None:
    lines = (copy_reverse_text / "test.src").read_text().splitlines()[:10]
    text = "".join(f"{line}\tw{number}\n" for number, line in enumerate(lines))
    asked = [*translating, "--buffer-size", 10, "--batch-size", 5]
    constrained = hypotheses(run_command("fairseq-interactive", *asked, "--constraints", stdin=text).stdout)
    assert all(f"w{number}" in constrained[number].split() for number in range(10))
    sampled = run_command("fairseq-generate", *translating, "--sampling", "--nbest", 5).stdout
    assert len(set(re.findall(r"^H-0\t\S+\t(.*)$", sampled, re.MULTILINE))) > 1


def test_a_model_does_not_remember_the_beam_of_another_search(
    run_command: RunCommand, mbart: tuple[Path, float], copy_reverse_data: Path, copy_reverse_text: Path
) -> None:
    lines = (copy_reverse_text / "test.src").read_text().splitlines()[:10]
    output = run_command("python", "-c", TRANSLATE, mbart[0], copy_reverse_data, *lines).stdout
    assert re.findall(r"^(True|False) ", output, re.MULTILINE) == ["True", "True"]
    assert "[tgt]" not in output


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", "--langs"),
        ("--langs src,de_DE", "--target-lang tgt"),
        ("--langs src,tgt --truncate-source", "--truncate-source"),
        ("--langs src,tgt,zz --finetune-from-model {model}", "{model}"),
    ],
)
def test_other_languages_are_refused(
    words: str, named: str, refusal: Callable[..., str], training: list[object], mbart: tuple[Path, float],
    tmp_path: Path,
) -> None:  # fmt: skip
    model = str(mbart[0] / "checkpoint_best.pt")
    asked = [word.format(model=model) for word in words.split()]
    sentence = refusal(*training, *MBART[:2], *asked, "--max-epoch", 1, "--save-dir", tmp_path)
    assert named.format(model=model) in sentence


# XLM.


@pytest.mark.long
def test_a_translation_model_begins_with_xlm(
    run_command: RunCommand, refusal: Callable[..., str], copy_reverse_text: Path,
    tiny_model_options: Callable[[str], list[str]], tmp_path: Path,
) -> None:  # fmt: skip
    text, single, pairs, path = copy_reverse_text, tmp_path / "single", tmp_path / "pairs", tmp_path / "xlm.pt"
    run_command(
        "fairseq-preprocess", "--task", "cross_lingual_lm", "--only-source", "--trainpref", text / "train.src",
        "--validpref", text / "valid.src", "--destdir", single,
    )  # fmt: skip
    dictionary = single / "dict.txt"
    run_command(
        "fairseq-preprocess", "--task", "translation_from_pretrained_xlm", "--source-lang", "src", "--target-lang",
        "tgt", "--srcdict", dictionary, "--tgtdict", dictionary, "--trainpref", text / "train", "--validpref",
        text / "valid", "--testpref", text / "test", "--destdir", pairs,
    )  # fmt: skip
    for part in ("train", "valid"):
        for ending in ("bin", "idx"):
            (single / f"{part}.{ending}").rename(single / f"{part}.en.{ending}")
    run_command(
        "fairseq-train", single, "--task", "cross_lingual_lm", "--monolingual-langs", "en", "--num-segment", 2,
        "--arch", "xlm_base",
        "--encoder-layers", 2, "--encoder-embed-dim", 64, "--encoder-ffn-embed-dim", 128, "--encoder-attention-heads",
        2, "--criterion", "legacy_masked_lm_loss", "--masked-lm-only", "--tokens-per-sample", 32, "--num-workers", 0,
        *TRAINING, "--max-update", 1, "--save-dir", tmp_path / "xlm",
    )  # fmt: skip
    (tmp_path / "xlm" / "checkpoint_last.pt").rename(path)
    training: list[object] = [
        "fairseq-train", pairs, *tiny_model_options("transformer_from_pretrained_xlm"), *TRAINING, "--task",
        "translation_from_pretrained_xlm", "--save-dir", tmp_path / "run",
    ]  # fmt: skip
    assert "--pretrained-xlm-checkpoint" in refusal(*training, "--max-update", 1)
    training += ["--pretrained-xlm-checkpoint", path]
    assert "--encoder-learned-pos" in refusal(*training, "--max-update", 1)
    training += ["--encoder-learned-pos", "--decoder-learned-pos", "--max-source-positions", 32]
    training += ["--max-target-positions", 32]
    run_command(*training, "--max-update", 1)
    path.unlink()  # its values are in the checkpoint
    run_command(*training, "--max-update", 2)
    generate = ["fairseq-generate", pairs, "--task", "translation_from_pretrained_xlm", "--max-len-b", 4, "--cpu"]
    result = run_command(*generate, "--path", tmp_path / "run" / "checkpoint_last.pt")
    assert len(hypotheses(result.stdout)) == 40
