"""Raw text through the real commands: ``translate`` writes what ``interactive`` prints in its D- lines."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from sacremoses import MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe
from training_states import hypotheses

RunCommand = Callable[..., CompletedProcess[str]]

CORPUS = Path(__file__).parents[2] / "examples" / "quickstart" / "corpus"

SEARCH = ("--beam", 3, "--lenpen", 0.8, "--max-len-b", 40, "--cpu")

#: Quotes that Moses escapes, characters that Python takes for ends of lines, words that the subwords do not know.
ODD = ['Is it "good"? Yes & no.', "", "A dog\u2028and a\x85cat.", "   ", "the  old man's house", "Übermut 漢字", "I"]


def raw_text() -> list[str]:
    return ODD + (CORPUS / "test.en").read_text(encoding="utf-8").split("\n")[:20]


@pytest.fixture(scope="module")
def data(run_command: RunCommand, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Binarized subwords of a part of the quick start's corpus, and beside them their codes."""
    folder = tmp_path_factory.mktemp("subwords")
    tokens = {}
    for part, size in (("train", 300), ("valid", 20)):
        for language in ("en", "de"):
            moses = MosesTokenizer(language)
            lines = (CORPUS / f"{part}.{language}").read_text(encoding="utf-8").split("\n")[:size]
            tokens[part, language] = [moses.tokenize(line, return_str=True) for line in lines]
    codes = io.StringIO()
    learn_bpe(io.StringIO("\n".join(tokens["train", "en"] + tokens["train", "de"])), codes, num_symbols=200)
    (folder / "codes").write_text(codes.getvalue(), encoding="utf-8")
    subwords = BPE(io.StringIO(codes.getvalue()))
    for (part, language), lines in tokens.items():
        text = "".join(f"{subwords.process_line(line)}\n" for line in lines)
        (folder / f"{part}.{language}").write_text(text, encoding="utf-8")
    run_command(
        "fairseq-preprocess", "--source-lang", "en", "--target-lang", "de", "--joined-dictionary",
        "--trainpref", folder / "train", "--validpref", folder / "valid", "--destdir", folder / "data-bin",
    )  # fmt: skip
    return folder / "data-bin"


@pytest.fixture(scope="module")
def checkpoint(
    run_command: RunCommand, data: Path, tiny_model_options: Callable[[str], list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """A model that has learned a little, so that its translations differ and end; text options are recorded."""
    folder = tmp_path_factory.mktemp("trained")
    run_command(
        "fairseq-depthwise", "train", data, *tiny_model_options("depthwise_lstm_transformer"), "--cpu",
        "--share-all-embeddings", "--optimizer", "adam", "--lr", "0.005", "--max-tokens", 800, "--max-update", 80,
        "--save-dir", folder, "--no-epoch-checkpoints", "--tokenizer", "moses", "--bpe", "subword_nmt",
        "--bpe-codes", data.parent / "codes", "--source-lang", "en", "--target-lang", "de",
    )  # fmt: skip
    return folder / "checkpoint_best.pt"


def interactive(run_command: RunCommand, data: Path, checkpoint: Path, lines: list[str], *options: object) -> str:
    """Return what ``interactive`` prints."""
    codes = data.parent / "codes"
    result = run_command(
        "fairseq-depthwise", "interactive", data, "--path", checkpoint, "--tokenizer", "moses", "--bpe", "subword_nmt",
        "--bpe-codes", codes, "--source-lang", "en", "--target-lang", "de", *SEARCH, *options,
        stdin="".join(f"{line}\n" for line in lines),
    )  # fmt: skip
    return result.stdout


def test_translate_equals_interactive(run_command: RunCommand, data: Path, checkpoint: Path, tmp_path: Path) -> None:
    lines = raw_text()
    printed = hypotheses(interactive(run_command, data, checkpoint, lines), "D")
    assert sorted(printed) == list(range(len(lines)))
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    from_file = ["--input", tmp_path / "text", "--buffer-size", 8, "--max-tokens", 200]
    assert hypotheses(interactive(run_command, data, checkpoint, [], *from_file), "D") == printed
    expected = [printed[number] for number in range(len(lines))]
    assert [text == "" for text in expected] == [not line.strip() for line in lines]
    assert len(set(expected)) > 8
    assert not any("@@" in line or "&apos;" in line for line in expected)
    text = "".join(f"{line}\r\n" for line in lines)
    for size in ((), ("--max-tokens", 30, "--buffer-lines", 5)):
        result = run_command("fairseq-depthwise", "translate", checkpoint, *SEARCH, *size, stdin=text)
        assert result.stdout == "".join(f"{line}\n" for line in expected)
        assert "INFO" not in result.stdout + result.stderr


def test_no_locale_changes_text(run_command: RunCommand, checkpoint: Path) -> None:
    text = "Übermut der \u2028 Katze\n漢字\n"
    expected = run_command("fairseq-depthwise", "translate", checkpoint, *SEARCH, "--json", stdin=text).stdout
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}
    result = run_command("fairseq-depthwise", "translate", checkpoint, *SEARCH, "--json", stdin=text, env=env)
    assert result.stdout == expected
    assert "漢字" in result.stdout
