"""``fairseq-depthwise score``: what it prints, where its text comes from, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from fairseq_depthwise import cli
from fairseq_depthwise.evaluation.scores import METRICS, MetricSpec

REFERENCE = ["Das ist ein kleines Haus.", "Der Hund schläft.", "Wir gehen heute nach Hause."]
HYPOTHESIS = ["Das ist ein Haus.", "Der Hund schläft.", "Wir gehen nach Hause."]
TOKENS = [line.replace(".", " .") for line in REFERENCE]


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


# --- what is printed -------------------------------------------------------------------------------------------------


def test_lines_with_the_signature(ref: str, hyp: str, printed: Callable[..., str]) -> None:
    bleu = sacrebleu.corpus_bleu(HYPOTHESIS, [REFERENCE]).score
    signature = f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    line, chrf_line = printed("score", "--ref", ref, hyp).splitlines()
    assert line.startswith(f"BLEU = {bleu:.2f} ")
    assert line.endswith(f"  {signature}")
    assert chrf_line.startswith(f"chrF2 = {sacrebleu.corpus_chrf(HYPOTHESIS, [REFERENCE]).score:.2f} ")
    chrf = sacrebleu.corpus_chrf(HYPOTHESIS, [REFERENCE], word_order=2).score
    first, second = printed("score", "--ref", ref, "--metric", "chrf", "--chrf-word-order", 2, hyp, ref).splitlines()
    assert first.startswith(f"{hyp}: chrF2++ = {chrf:.2f} ")
    assert second.startswith(f"{ref}: chrF2++ = 100.00 ")


def test_json(tmp_path: Path, document: Callable[..., Any]) -> None:
    """Four of five words match; of the runs of 2, 3 and 4 words 3, 2 and 1."""
    hyp, ref = write(tmp_path, "hyp", ["a b c d x"]), write(tmp_path, "ref", ["a b c d e f"])
    bleu = 100 * 2.718281828459045 ** (1 - 6 / 5) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    score = {
        "score": pytest.approx(bleu),
        "interval": [pytest.approx(bleu)] * 2,  # there is one sentence
        "signature": f"nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:{sacrebleu.__version__}",
        "sentences": 1,
        "counts": [4, 3, 2, 1],
        "totals": [5, 4, 3, 2],
        "precisions": pytest.approx([80, 75, 200 / 3, 50]),
        "brevity_penalty": pytest.approx(0.8187307530779818),
        "hypothesis_length": 5,
        "reference_length": 6,
    }
    assert document("score", "--ref", ref, "--metric", "tokenized", hyp) == {
        "hypothesis": hyp,
        "lines": None,
        "references": [ref],
        "metric": "tokenized",
        **score,
        "scores": {"tokenized": score},
    }


def test_several_metrics(ref: str, hyp: str, document: Callable[..., Any], refusal: Callable[..., str]) -> None:
    found = document("score", "--ref", ref, hyp, "--metric", "ter", "--metric", "chrf")
    ter = sacrebleu.corpus_ter(HYPOTHESIS, [REFERENCE]).score
    assert (found["metric"], found["score"], list(found["scores"])) == ("ter", ter, ["ter", "chrf"])
    for scored in found["scores"].values():
        low, high = scored["interval"]
        assert low < scored["score"] < high
    assert "tokenized" in refusal("score", "--ref", ref, hyp, "--metric", "chrf", "--metric", "tokenized")


def test_the_tokenizer_is_passed_on(tmp_path: Path, document: Callable[..., Any]) -> None:
    hyp, ref = write(tmp_path, "hyp", ["我喜欢绿茶和水"]), write(tmp_path, "ref", ["我喜欢绿茶和酒"])
    assert document("score", "--ref", ref, hyp)["totals"][0] == 1
    found = document("score", "--ref", ref, "--tokenize", "zh", hyp)
    assert found["counts"] == [6, 5, 4, 3]
    assert "|tok:zh|" in found["signature"]


def test_a_metric_is_one_entry(
    ref: str, hyp: str, document: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METRICS, "edits", MetricSpec("translation edit rate", sacrebleu.metrics.TER, "detokenized"))
    found = document("score", "--ref", ref, "--metric", "edits", hyp)
    assert (found["metric"], found["score"]) == ("edits", sacrebleu.corpus_ter(HYPOTHESIS, [REFERENCE]).score)


# --- where the text comes from ---------------------------------------------------------------------------------------


def test_the_reference_within_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = [REFERENCE[0], "Der <<unk>> schläft.", "Wir <<unk>> <<unk>>"]
    output = write(tmp_path, "out", generated(HYPOTHESIS, targets))
    assert cli.main(["score", output, "--json"]) == 0
    captured = capsys.readouterr()
    assert f"warning: the reference is the T- lines of {output}, where 3 words are <<unk>>" in captured.err
    found = json.loads(captured.out)
    assert found["references"] == [f"T- lines of {output}"]
    assert found["score"] == sacrebleu.corpus_bleu(HYPOTHESIS, [targets]).score


# --- warnings and refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "named"), [("Das ist ein Ha@@ us.", "--post-process subword_nmt"), (TOKENS[0], "--detokenize")]
)
def test_warnings(first: str, named: str, ref: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hyp = write(tmp_path, "hyp", [first, *TOKENS[1:]])
    assert cli.main(["score", "--ref", ref, hyp]) == 0
    assert named in capsys.readouterr().err


def test_detokenization(ref: str, tmp_path: Path, document: Callable[..., Any]) -> None:
    hyp = write(tmp_path, "tok", TOKENS)
    assert document("score", "--ref", ref, "--detokenize", "de", "--metric", "chrf", hyp)["score"] == 100
