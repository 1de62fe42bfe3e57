"""What generation takes and writes: options, shards, unknown words and results of fairseq's commands."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import sentencepiece
from training_states import hypotheses

RunCommand = Callable[..., CompletedProcess[str]]

UNKNOWN = ("--unkpen", -100, "--max-len-b", 4, "--beam", 2)


@pytest.fixture(scope="module")
def options(copy_reverse_data: Path, trained: Callable[[str], Path]) -> list[object]:
    """Data and model of a command that translates."""
    return [copy_reverse_data, "--path", trained("transformer"), "--cpu"]


@pytest.fixture(scope="module")
def generate(options: list[object]) -> list[object]:
    return ["fairseq-generate", *options, "--beam", 3, "--max-len-b", 12]


@pytest.fixture(scope="module")
def generated(run_command: RunCommand, generate: list[object]) -> str:
    return run_command(*generate).stdout


# fairseq-generate.


def test_shards_are_the_whole(run_command: RunCommand, generate: list[object], generated: str) -> None:
    first, second = (
        hypotheses(run_command(*generate, "--num-shards", 2, "--shard-id", shard).stdout) for shard in range(2)
    )
    assert min(len(first), len(second)) > 10  # all 40 fit into one batch
    assert len(first) + len(second) == 40
    assert first | second == hypotheses(generated)


def test_sacrebleu_is_that_of_the_command(
    run_command: RunCommand, generate: list[object], generated: str, tmp_path: Path
) -> None:
    for kind, name in (("T", "reference"), ("D", "hypothesis")):
        texts = re.findall(rf"^{kind}-(\d+)\t(?:\S+\t)?(.*)$", generated, re.MULTILINE)
        lines = [f"{text}\n" for _, text in sorted(texts, key=lambda pair: int(pair[0]))]
        (tmp_path / name).write_text("".join(lines))
    scored = ["fairseq-score", "--sys", tmp_path / "hypothesis", "--ref", tmp_path / "reference"]
    of_words = run_command(*generate, "--sacrebleu").stdout.splitlines()[-1].partition(": ")[2]
    assert of_words.startswith("BLEU = ")
    assert of_words in run_command(*scored, "--sacrebleu").stdout
    assert generated.splitlines()[-1].partition(": ")[2] in run_command(*scored).stdout


@pytest.mark.parametrize(
    "words",
    [
        "--constraints", "--replace-unk", "--shard-id 1", "--print-step", "--retain-iter-history", "--temperature 0",
        "--min-len 99", "--min-len 99 --max-len-a 0.1", "--post-process words", "--model-overrides {", "--nbest 4",
        "--model-overrides {'beem':4}", "--eos-token w1", "--retain-dropout-modules decoders --retain-dropout",
        "--scoring chrf --sacrebleu", "--shard-id 40 --num-shards 41", "--task translation_lev",
    ],
)  # fmt: skip
def test_what_has_no_effect_is_refused(words: str, refusal: Callable[..., str], generate: list[object]) -> None:
    assert words.split()[0] in refusal(*generate, *words.split())


def test_results_stay_until_there_are_new_ones(
    run_command: RunCommand, refusal: Callable[..., str], generate: list[object], generated: str, tmp_path: Path
) -> None:
    target, results = tmp_path / "target", tmp_path / "results" / "generate-test.txt"
    results.parent.mkdir()
    target.write_text("mine")
    results.symlink_to(target)
    refusal(*generate, "--results-path", results.parent, "--max-source-positions", 3)
    assert results.read_text() == "mine"
    run_command(*generate, "--results-path", results.parent)
    assert target.read_text() == "mine"
    assert not results.is_symlink()
    assert hypotheses(results.read_text()) == hypotheses(generated)
    assert list(results.parent.iterdir()) == [results]


def test_an_unknown_word_of_a_reference_is_one_word(
    run_command: RunCommand, options: list[object], copy_reverse_text: Path, tmp_path: Path
) -> None:
    data, dictionary = tmp_path / "data-bin", tmp_path / "dict.txt"
    (tmp_path / "test.src").write_text("w1 w2\nw3\n")
    (tmp_path / "test.tgt").write_text("w1 new w2\nnew\n")
    dictionary.write_bytes((Path(str(options[0])) / "dict.tgt.txt").read_bytes())
    run_command(
        "fairseq-preprocess", "--source-lang", "src", "--target-lang", "tgt", "--srcdict", dictionary, "--tgtdict",
        dictionary, "--testpref", tmp_path / "test", "--destdir", data,
    )  # fmt: skip
    output = run_command("fairseq-generate", data, *options[1:], "--max-len-b", 5, "--sacrebleu").stdout
    assert "T-0\tw1 <<unk>> w2\n" in output
    assert "ref_len = 4)" in output


def test_subwords_are_joined_once(
    run_command: RunCommand, copy_reverse_text: Path, tiny_model_options: Callable[[str], list[str]], tmp_path: Path
) -> None:
    text = (copy_reverse_text / "valid.src").read_text().splitlines()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=str(tmp_path / "spm"), vocab_size=20, model_type="bpe",
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    model, data = tmp_path / "spm.model", tmp_path / "data-bin"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    lines = "".join(" ".join(processor.encode(line, out_type=str)) + "\n" for line in text)
    for language in ("src", "tgt"):
        (tmp_path / f"text.{language}").write_text(lines, encoding="utf-8")
    prefixes = [part for name in ("train", "valid", "test") for part in (f"--{name}pref", str(tmp_path / "text"))]
    run_command("fairseq-preprocess", "--source-lang", "src", "--target-lang", "tgt", *prefixes, "--destdir", data)
    subwords = ["--bpe", "sentencepiece", "--sentencepiece-model", model]
    run_command(
        "fairseq-train", data, *tiny_model_options("transformer"), "--cpu", "--optimizer", "adam", "--max-tokens", 500,
        "--max-update", 1, "--save-dir", tmp_path, "--disable-validation", "--no-epoch-checkpoints", *subwords,
    )  # fmt: skip
    generate = ["fairseq-generate", data, "--path", tmp_path / "checkpoint_last.pt", "--cpu", "--max-len-b", 9]
    output = run_command(*generate, *subwords, "--post-process", "sentencepiece").stdout
    references = dict(re.findall(r"^T-(\d+)\t(.*)$", output, re.MULTILINE))
    assert [references[str(number)] for number in range(len(text))] == text
    assert hypotheses(output, "D") == hypotheses(output)


# fairseq-interactive.


def test_lines_are_truncated_as_data_is(run_command: RunCommand, options: list[object]) -> None:
    asked = [*options, "--max-source-positions", 4, "--truncate-source", "--max-len-b", 4, "--buffer-size", 2]
    output = run_command("fairseq-interactive", *asked, "--batch-size", 2, stdin="w1 w2 w3 w4 w5\nw6\n").stdout
    assert re.findall(r"^S-\d\t(.*)$", output, re.MULTILINE) == ["w1 w2 w3", "w6"]


def test_constraints_longer_than_a_translation_are_refused(refusal: Callable[..., str], options: list[object]) -> None:
    asked = [*options, "--max-len-b", 2, "--constraints"]
    assert "have 3 tokens" in refusal("fairseq-interactive", *asked, stdin="w1\tw1 w2\tw3\n")


def test_alignments_are_those_of_generate(run_command: RunCommand, generate: list[object], generated: str) -> None:
    source = re.search(r"^S-0\t(.*)$", generated, re.MULTILINE)
    assert source is not None
    shown = [*generate[1:], "--print-alignment", "soft"]
    (expected,) = re.findall(r"^A-0\t(.*)$", run_command("fairseq-generate", *shown).stdout, re.MULTILINE)
    assert len(expected.split()[0].split(",")) == len(source[1].split()) + 1
    result = run_command("fairseq-interactive", *shown, stdin=f"{source[1]}\n")
    (interactive,) = re.findall(r"^A-0\t(.*)$", result.stdout, re.MULTILINE)
    # A sentence in a batch and one by itself are rounded differently on some processors.
    for row, expected_row in zip(interactive.split(), expected.split(), strict=True):
        assert list(map(float, row.split(","))) == pytest.approx(list(map(float, expected_row.split(","))), abs=1e-4)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--replace-unk", "new"),
        ("--print-alignment --replace-unk table", "NEW"),
        ("--print-alignment soft --post-process subword_nmt --replace-unk table", "NEW"),
    ],
)
def test_unknown_words_are_replaced(
    words: str, expected: str, run_command: RunCommand, options: list[object], tmp_path: Path
) -> None:
    (tmp_path / "table").write_text("new NEW\n")
    given = ["fairseq-interactive", *options, *UNKNOWN, *words.split()]
    lines = hypotheses(run_command(*given, stdin="new\n\nnew new\n", cwd=tmp_path).stdout)
    assert lines[1] == ""
    assert {*lines[0].split(), *lines[2].split()} == {expected}


@pytest.mark.parametrize("words", ["--results-path results", "--prefix-size 1", "--num-shards 2", "--batch-size 2"])
def test_what_interactive_ignores_is_refused(words: str, refusal: Callable[..., str], options: list[object]) -> None:
    assert words in refusal("fairseq-interactive", *options, *words.split())


# fairseq-score.


def test_scores_of_lines(run_command: RunCommand, refusal: Callable[..., str], tmp_path: Path) -> None:
    hypothesis, reference = tmp_path / "hypothesis", tmp_path / "reference"
    hypothesis.write_text("a b c d\re f\nx\n")
    reference.write_text("A b c d\re f\nx\n")
    given = ["fairseq-score", "--sys", hypothesis, "--ref", reference]
    assert "BLEU4 = 100.00" in run_command(*given, "--ignore-case").stdout
    assert "BLEU = 100.00" in run_command(*given, "--ignore-case", "--sacrebleu").stdout
    each = run_command(*given, "--sentence-bleu", "--order", 1).stdout.splitlines()[1:]
    assert [line.split(",")[0] for line in each] == ["0 BLEU1 = 83.33", "1 BLEU1 = 100.00"]
    hypothesis.write_text("x\n")
    assert "1 lines" in refusal(*given)
    assert "--ref -" in refusal("fairseq-score", "--sys", "-", "--ref", "-")


# Models that refine whole translations, and language models.


@pytest.mark.parametrize("arch", ["levenshtein_transformer", "nacrf_transformer"])
def test_models_that_refine_are_trained_and_translate(
    arch: str, run_command: RunCommand, refusal: Callable[..., str], copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]], tmp_path: Path,
) -> None:  # fmt: skip
    noise = {"levenshtein_transformer": "random_delete", "nacrf_transformer": "full_mask"}[arch]
    run_command(
        "fairseq-train", copy_reverse_data, *tiny_model_options(arch), "--task", "translation_lev", "--criterion",
        "nat_loss", "--noise", noise, "--share-all-embeddings", "--optimizer", "adam", "--lr", 0.01, "--batch-size", 32,
        "--cpu", "--max-update", 8, "--save-dir", tmp_path, "--no-epoch-checkpoints",
    )  # fmt: skip
    path = tmp_path / "checkpoint_last.pt"
    generated = run_command(
        "fairseq-generate", copy_reverse_data, "--task", "translation_lev", "--path", path, "--cpu", "--print-step",
        "--retain-iter-history",
    ).stdout  # fmt: skip
    expected = hypotheses(generated)
    assert len(expected) == len(re.findall(r"^I-\d+\t\d+$", generated, re.MULTILINE)) == 40
    assert re.search(r"^E-0_1\t", generated, re.MULTILINE)
    sources = dict(re.findall(r"^S-(\d+)\t(.*)$", generated, re.MULTILINE))
    text = "".join(f"{sources[str(number)]}\n" for number in range(40))
    translate = ["fairseq-depthwise", "translate", path, "--tokenized", "--cpu"]
    assert run_command(*translate, stdin=text).stdout.splitlines() == [expected[number] for number in range(40)]
    for option in ("--sampling", "--constraints", "--print-alignment"):
        assert option in refusal(*translate, option, stdin=text)


@pytest.mark.long
def test_a_context_leaves_tokens_to_evaluate(
    run_command: RunCommand, refusal: Callable[..., str], copy_reverse_text: Path, tmp_path: Path
) -> None:
    data, text = tmp_path / "data-bin", copy_reverse_text / "valid.tgt"
    run_command("fairseq-preprocess", "--only-source", "--trainpref", text, "--testpref", text, "--destdir", data)
    run_command(
        "fairseq-train", data, "--task", "language_modeling", "--arch", "transformer_lm", "--decoder-layers", 1,
        "--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 16, "--decoder-attention-heads", 2, "--cpu",
        "--optimizer", "adam", "--lr", 0.005, "--tokens-per-sample", 32, "--max-tokens", 512, "--max-update", 2,
        "--valid-subset", "test", "--disable-validation", "--save-dir", tmp_path, "--no-epoch-checkpoints",
    )  # fmt: skip
    evaluate = ["fairseq-eval-lm", data, "--path", tmp_path / "checkpoint_last.pt", "--cpu", "--tokens-per-sample", 32]
    assert "--context-window 32" in refusal(*evaluate, "--context-window", 32)
    assert "--num-shards" in refusal(*evaluate, "--context-window", 8, "--num-shards", 2)
    # The last block, of what is left of the text, would be short enough for the model.
    assert "--tokens-per-sample" in refusal(*evaluate[:-1], 57)
    run_command(*evaluate[:-1], 57, "--skip-invalid-size-inputs-valid-test")
    losses = set()
    for workers in (0, 3):
        result = run_command(*evaluate, "--context-window", 8, "--batch-size", 1, "--num-workers", workers)
        losses |= set(re.findall(r"Loss \(base 2\): ([\d.]+)", result.stdout + result.stderr))
    assert len(losses) == 1


@pytest.mark.long
def test_a_language_model_has_the_dictionary_of_the_translations(
    run_command: RunCommand,
    refusal: Callable[..., str],
    generate: list[object],
    copy_reverse_text: Path,
    tmp_path: Path,
) -> None:
    command, data, *others = generate
    text, translating = copy_reverse_text / "valid.tgt", tmp_path / "translating"
    shutil.copytree(str(data), translating)
    dictionary = translating / "dict.txt"
    lines = (translating / "dict.tgt.txt").read_text().splitlines(keepends=True)
    paths = []
    for name, symbols in (("other", lines[::-1]), ("same", lines)):
        dictionary.write_text("".join(symbols))
        folder = tmp_path / name
        run_command(
            "fairseq-preprocess",
            "--only-source",
            "--srcdict",
            dictionary,
            "--trainpref",
            text,
            "--validpref",
            text,
            "--destdir",
            folder,
        )
        run_command(
            "fairseq-train", folder, "--task", "language_modeling", "--arch", "transformer_lm", "--decoder-layers", 1,
            "--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 16, "--decoder-attention-heads", 2, "--cpu",
            "--optimizer", "adam", "--tokens-per-sample", 32, "--max-tokens", 512, "--max-update", 1, "--save-dir",
            folder, "--disable-validation", "--no-epoch-checkpoints",
        )  # fmt: skip
        paths.append(folder / "checkpoint_last.pt")
    other, same = paths
    translate = [command, translating, *others, "--lm-weight", 0.5, "--lm-path"]
    assert len(hypotheses(run_command(*translate, same).stdout)) == 40
    assert "the translations" not in refusal(*translate, other)  # the folder's dictionary is not the model's
    dictionary.write_text("".join(lines[::-1]))
    assert "the translations" in refusal(*translate, other)
    assert "--path" in refusal(*translate, others[1])
    assert "--lm-path" in refusal(command, translating, "--path", f"{others[1]}:{same}", "--cpu")
