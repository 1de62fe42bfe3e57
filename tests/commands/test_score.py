"""``fairseq-depthwise score``: what it prints, where its text comes from, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from fairseq_depthwise import cli

REFERENCE = ["Das ist ein kleines Haus.", "Der Hund schläft.", "Wir gehen heute nach Hause."]
HYPOTHESIS = ["Das ist ein Haus.", "Der Hund schläft.", "Wir gehen nach Hause."]


def write(folder: Path, name: str, lines: list[str]) -> str:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def generated(hypotheses: list[str], targets: list[str], tokens: list[str] | None = None) -> list[str]:
    """fairseq-generate's lines, the last sentence first."""
    lines = []
    for number in reversed(range(len(hypotheses))):
        lines += [f"S-{number}\tsource", f"T-{number}\t{targets[number]}"]
        for kind, text in (("H", (tokens or hypotheses)[number]), ("D", hypotheses[number])):
            lines.append(f"{kind}-{number}\t-0.25\t{text}")
    return lines


@pytest.fixture
def ref(tmp_path: Path) -> str:
    return write(tmp_path, "ref.txt", REFERENCE)


@pytest.fixture
def hyp(tmp_path: Path) -> str:
    return write(tmp_path, "hyp.txt", HYPOTHESIS)


def score(*arguments: object) -> int:
    return cli.main(["score", *map(str, arguments)])


def score_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert score(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


# --- what is printed -------------------------------------------------------------------------------------------------


def test_one_line_with_the_signature(ref: str, hyp: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert score("--ref", ref, hyp) == 0
    expected = sacrebleu.corpus_bleu(HYPOTHESIS, [REFERENCE])
    captured = capsys.readouterr()
    assert captured.out == (
        f"BLEU = {expected.score:.2f} {expected._verbose}  "
        f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}\n"
    )
    assert captured.err == ""


def test_several_systems_are_named(ref: str, hyp: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert score("--ref", ref, "--metric", "chrf", "--chrf-word-order", 2, hyp, ref) == 0
    first, second = capsys.readouterr().out.splitlines()
    expected = sacrebleu.corpus_chrf(HYPOTHESIS, [REFERENCE], word_order=2).score
    assert first.startswith(f"{hyp}: chrF2++ = {expected:.2f}  nrefs:1|")
    assert second.startswith(f"{ref}: chrF2++ = 100.00  nrefs:1|")


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four of five words match; of the runs of 2, 3 and 4 words 3, 2 and 1."""
    hyp, ref = write(tmp_path, "hyp", ["a b c d x"]), write(tmp_path, "ref", ["a b c d e f"])
    found = score_json(capsys, "--ref", ref, "--metric", "tokenized", hyp)
    bleu = 100 * 2.718281828459045 ** (1 - 6 / 5) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert found == {
        "hypothesis": hyp,
        "lines": None,
        "references": [ref],
        "metric": "tokenized",
        "score": pytest.approx(bleu),
        "signature": f"nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:{sacrebleu.__version__}",
        "sentences": 1,
        "counts": [4, 3, 2, 1],
        "totals": [5, 4, 3, 2],
        "precisions": pytest.approx([80, 75, 200 / 3, 50]),
        "brevity_penalty": pytest.approx(0.8187307530779818),
        "hypothesis_length": 5,
        "reference_length": 6,
    }


def test_json_of_chrf_and_of_several_systems(ref: str, hyp: str, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = score_json(capsys, "--ref", ref, "--metric", "chrf", hyp, ref)
    assert (one["hypothesis"], two["hypothesis"], two["score"]) == (hyp, ref, 100)
    assert one["score"] == sacrebleu.corpus_chrf(HYPOTHESIS, [REFERENCE]).score
    assert set(one) == {"hypothesis", "lines", "references", "metric", "score", "signature", "sentences"}


def test_several_references(ref: str, hyp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = write(tmp_path, "second", [HYPOTHESIS[0], "", HYPOTHESIS[2]])
    found = score_json(capsys, "--ref", ref, "--ref", second, hyp)
    assert found["score"] == pytest.approx(100)
    assert found["references"] == [ref, second]
    assert found["signature"].startswith("nrefs:2|")


def test_the_tokenizer_is_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hyp, ref = write(tmp_path, "hyp", ["我喜欢绿茶和水"]), write(tmp_path, "ref", ["我喜欢绿茶和酒"])
    assert score_json(capsys, "--ref", ref, hyp)["totals"][0] == 1
    found = score_json(capsys, "--ref", ref, "--tokenize", "zh", hyp)
    assert found["counts"] == [6, 5, 4, 3]
    assert "|tok:zh|" in found["signature"]


def test_empty_translations(ref: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score("--ref", ref, write(tmp_path, "hyp", ["", "", ""])) == 0
    assert capsys.readouterr().out.startswith("BLEU = 0.00 0.0/0.0/0.0/0.0 (BP = 0.000 ratio = 0.000 hyp_len = 0 ")


# --- where the text comes from ---------------------------------------------------------------------------------------


def test_output_of_generate(ref: str, hyp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = write(tmp_path, "generate-test.txt", generated(HYPOTHESIS, REFERENCE))
    found, plain = score_json(capsys, "--ref", ref, output, hyp)
    assert found["score"] == plain["score"]
    assert (found["lines"], plain["lines"]) == ("D-", None)


def test_stdin(ref: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(REFERENCE).encode())))
    assert score_json(capsys, "--ref", ref, "-")["score"] == pytest.approx(100)


def test_the_reference_within_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = [REFERENCE[0], "Der <<unk>> schläft.", "Wir <<unk>> <<unk>>"]
    output = write(tmp_path, "out", generated(HYPOTHESIS, targets))
    assert score(output, "--json") == 0
    captured = capsys.readouterr()
    assert captured.err == (
        f"fairseq-depthwise: warning: the reference is the T- lines of {output}, where 3 words are <<unk>>; "
        "for a score that can be compared with others give the original text with --ref\n"
    )
    found = json.loads(captured.out)
    assert found["references"] == [f"T- lines of {output}"]
    assert found["score"] == sacrebleu.corpus_bleu(HYPOTHESIS, [targets]).score


def test_the_reference_within_the_output_is_tokenised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = write(tmp_path, "out", generated(["ein Haus und ein Baum ."], ["ein Haus und ein Baum ."]))
    assert score("--metric", "tokenized", output) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("BLEU = 100.00 ")
    assert captured.err == f"fairseq-depthwise: warning: the reference is the T- lines of {output}\n"
    subwords = write(tmp_path, "bpe", generated(["ein Ha@@ us", "zwei"], ["ein Ha@@ us", "zwei"]))
    assert score("--metric", "tokenized", subwords) == 0
    assert f"warning: {subwords} is in subwords; add --post-process subword_nmt" in capsys.readouterr().err


def test_tokens_of_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --tokenizer the D- lines are detokenised; tokenised metrics take the H- lines."""
    output = write(tmp_path, "out", generated(["ein Haus, ein Baum."], ["-"], ["ein Haus , ein Baum ."]))
    tokens = write(tmp_path, "tok", ["ein Haus , ein Baum ."])
    found = score_json(capsys, "--ref", tokens, "--metric", "tokenized", output)
    assert (found["lines"], found["score"]) == ("H-", pytest.approx(100))
    assert score("--metric", "tokenized", output) == 1
    assert "--ref is missing, and" in capsys.readouterr().err


def test_detokenisation(ref: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = [line.replace(".", " .") for line in REFERENCE]
    hyp = write(tmp_path, "tok", tokens)
    assert score_json(capsys, "--ref", ref, "--detokenize", "de", "--metric", "chrf", hyp)["score"] == 100
    # 13a splits off the full stop again: compare the words alone.
    assert score_json(capsys, "--ref", ref, "--tokenize", "none", "--detokenize", "de", hyp)["counts"][0] == 13
    assert score_json(capsys, "--ref", ref, "--tokenize", "none", hyp)["counts"][0] == 10
    own = write(tmp_path, "out", generated(tokens, tokens))
    assert score_json(capsys, "--tokenize", "none", "--detokenize", "de", own)["totals"][0] == 13


# --- warnings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind"),
    [("Das ist ein Ha@@ us.", "subword_nmt"), ("\u2581Das \u2581ist \u2581ein Ha us.", "sentencepiece")],
)
def test_subwords_are_said(line: str, kind: str, ref: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hyp = write(tmp_path, "bpe", [line, *HYPOTHESIS[1:]])
    assert score("--ref", ref, hyp) == 0
    assert capsys.readouterr().err == (
        f"fairseq-depthwise: warning: {hyp} is in subwords; add --post-process {kind} (or --remove-bpe {kind}) to "
        "fairseq-generate\n"
    )


@pytest.mark.parametrize(("metric", "warned"), [("sacrebleu", True), ("chrf", True), ("tokenized", False)])
def test_tokenised_text_is_said(
    metric: str, warned: bool, ref: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hyp = write(tmp_path, "tok", [line.replace(".", " .") for line in HYPOTHESIS])
    assert score("--ref", ref, "--metric", metric, hyp) == 0
    said = f"warning: {hyp} looks tokenised; add --detokenize LANG, or choose --metric tokenized\n"
    assert (said in capsys.readouterr().err) is warned


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ref", "{ref}", "{folder}/none"], "{folder}/none does not exist"),
        (["--ref", "{folder}/none", "{hyp}"], "{folder}/none does not exist"),
        (["--ref", "{ref}", "{folder}"], "{folder} is a folder; give a text file"),
        (["--ref", "{ref}", "{empty}"], "{empty} is empty; it must have one line for each sentence"),
        (["--ref", "{latin}", "{hyp}"], "{latin} is not UTF-8: line 2 has the byte 0xe4"),
        (["--ref", "{ref}", "{short}"], "{short} has 2 sentences and the reference {ref} 3; give the whole"),
        (["--ref", "{ref}", "--ref", "{short}", "{hyp}"], "{hyp} has 3 sentences and the reference {short} 2"),
        (["{hyp}"], "--ref is missing, and {hyp} has no T- lines in the form of its translations"),
        (["--ref", "{part}", "{hyp}"], "--ref {part} is the output of fairseq-generate; give the reference as plain"),
        (["--ref", "{ref}", "{part}"], "{part} has no D- line for sentence 0 of 0 to 1"),
        (["--ref", "-", "-"], "stdin (-) is given 2 times; it can be read once"),
        (["--ref", "{ref}", "--tokenize", "14a", "{hyp}"], "--tokenize 14a is no tokenizer of sacreBLEU; it must be"),
        (["--ref", "{ref}", "--metric", "chrf", "--tokenize", "zh", "{hyp}"], "--tokenize zh is for --metric sacre"),
        (["--ref", "{ref}", "--chrf-word-order", "2", "{hyp}"], "--chrf-word-order 2 is for --metric chrf, and the"),
        (["--ref", "{ref}", "--compound-split-all", "{hyp}"], "--compound-split-all is for --metric compound-split"),
        (["--ref", "{ref}", "--detokenize", "German", "{hyp}"], "--detokenize German is no code of a language"),
        (
            ["--ref", "{ref}", "--metric", "compound-split", "--detokenize", "de", "{hyp}"],
            "--detokenize de is for detokenised metrics, and compound-split needs tokenised text",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(
    arguments: list[str], said: str, ref: str, hyp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"ref": ref, "hyp": hyp, "folder": str(tmp_path)}
    known["empty"] = write(tmp_path, "empty", [])
    known["short"] = write(tmp_path, "short", HYPOTHESIS[:2])
    known["part"] = write(tmp_path, "part", ["D-1\t-0.5\ta"])
    known["latin"] = str(tmp_path / "latin")
    Path(known["latin"]).write_bytes("a\nschläft\nc\n".encode("latin-1"))
    assert score(*(argument.format(**known) for argument in arguments)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"fairseq-depthwise: error: {said.format(**known)}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("given", [[], ["--metric", "bleu", "a"], ["--chrf-word-order", "3", "a"]])
def test_wrong_options(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        score(*given)
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


def test_the_console_command(ref: str) -> None:
    """The real command on stdin, in a shell whose encoding is not UTF-8."""
    ended = subprocess.run(
        [Path(sys.executable).with_name("fairseq-depthwise"), "score", "--ref", ref, "--json", "-"],
        input="\n".join(generated(HYPOTHESIS, REFERENCE)).encode(),
        capture_output=True,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"},
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert json.loads(ended.stdout)["score"] == sacrebleu.corpus_bleu(HYPOTHESIS, [REFERENCE]).score
