"""``fairseq-depthwise score``: what it prints, where its text comes from, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu

from fairseq_depthwise import cli

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
    (line,) = printed("score", "--ref", ref, hyp).splitlines()
    assert line.startswith(f"BLEU = {bleu:.2f} ")
    assert line.endswith(f"  {signature}")
    chrf = sacrebleu.corpus_chrf(HYPOTHESIS, [REFERENCE], word_order=2).score
    first, second = printed("score", "--ref", ref, "--metric", "chrf", "--chrf-word-order", 2, hyp, ref).splitlines()
    assert first.startswith(f"{hyp}: chrF2++ = {chrf:.2f}  nrefs:1|")
    assert second.startswith(f"{ref}: chrF2++ = 100.00  nrefs:1|")


def test_json(tmp_path: Path, document: Callable[..., Any]) -> None:
    """Four of five words match; of the runs of 2, 3 and 4 words 3, 2 and 1."""
    hyp, ref = write(tmp_path, "hyp", ["a b c d x"]), write(tmp_path, "ref", ["a b c d e f"])
    bleu = 100 * 2.718281828459045 ** (1 - 6 / 5) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert document("score", "--ref", ref, "--metric", "tokenized", hyp) == {
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


def test_json_of_chrf_and_of_several_systems(ref: str, hyp: str, document: Callable[..., Any]) -> None:
    one, two = document("score", "--ref", ref, "--metric", "chrf", hyp, ref)
    assert (one["hypothesis"], two["hypothesis"], two["score"]) == (hyp, ref, 100)
    assert one["score"] == sacrebleu.corpus_chrf(HYPOTHESIS, [REFERENCE]).score
    assert set(one) == {"hypothesis", "lines", "references", "metric", "score", "signature", "sentences"}


def test_several_references(ref: str, hyp: str, tmp_path: Path, document: Callable[..., Any]) -> None:
    second = write(tmp_path, "second", [HYPOTHESIS[0], "", HYPOTHESIS[2]])
    found = document("score", "--ref", ref, "--ref", second, hyp)
    assert (found["score"], found["references"]) == (pytest.approx(100), [ref, second])
    assert found["signature"].startswith("nrefs:2|")


def test_the_tokenizer_is_passed_on(tmp_path: Path, document: Callable[..., Any]) -> None:
    hyp, ref = write(tmp_path, "hyp", ["我喜欢绿茶和水"]), write(tmp_path, "ref", ["我喜欢绿茶和酒"])
    assert document("score", "--ref", ref, hyp)["totals"][0] == 1
    found = document("score", "--ref", ref, "--tokenize", "zh", hyp)
    assert found["counts"] == [6, 5, 4, 3]
    assert "|tok:zh|" in found["signature"]


# --- where the text comes from ---------------------------------------------------------------------------------------


def test_output_of_generate(ref: str, hyp: str, tmp_path: Path, document: Callable[..., Any]) -> None:
    output = write(tmp_path, "generate-test.txt", generated(HYPOTHESIS, REFERENCE))
    found, plain = document("score", "--ref", ref, output, hyp)
    assert found["score"] == plain["score"]
    assert (found["lines"], plain["lines"]) == ("D-", None)


def test_the_reference_within_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = [REFERENCE[0], "Der <<unk>> schläft.", "Wir <<unk>> <<unk>>"]
    output = write(tmp_path, "out", generated(HYPOTHESIS, targets))
    assert cli.main(["score", output, "--json"]) == 0
    captured = capsys.readouterr()
    assert f"warning: the reference is the T- lines of {output}, where 3 words are <<unk>>" in captured.err
    found = json.loads(captured.out)
    assert found["references"] == [f"T- lines of {output}"]
    assert found["score"] == sacrebleu.corpus_bleu(HYPOTHESIS, [targets]).score


def test_tokens_of_a_tokenizer(tmp_path: Path, document: Callable[..., Any], refusal: Callable[..., str]) -> None:
    """With --tokenizer the D- lines are detokenized; tokenized metrics take the H- lines, and no T- lines fit those."""
    output = write(tmp_path, "out", generated(["ein Haus, ein Baum."], ["-"], ["ein Haus , ein Baum ."]))
    tokens = write(tmp_path, "tok", ["ein Haus , ein Baum ."])
    found = document("score", "--ref", tokens, "--metric", "tokenized", output)
    assert (found["lines"], found["score"]) == ("H-", pytest.approx(100))
    assert "--ref is missing" in refusal("score", "--metric", "tokenized", output)
    without = write(tmp_path, "plain", generated(["ein Haus und ein Baum ."], ["ein Haus und ein Baum ."]))
    assert document("score", "--metric", "tokenized", without)["score"] == pytest.approx(100)


def test_detokenization(ref: str, tmp_path: Path, document: Callable[..., Any]) -> None:
    hyp, plain = write(tmp_path, "tok", TOKENS), ["--tokenize", "none"]
    assert document("score", "--ref", ref, "--detokenize", "de", "--metric", "chrf", hyp)["score"] == 100
    # 13a splits off the full stop again: compare the words alone.
    assert document("score", "--ref", ref, *plain, "--detokenize", "de", hyp)["counts"][0] == 13
    assert document("score", "--ref", ref, *plain, hyp)["counts"][0] == 10
    own = write(tmp_path, "out", generated(TOKENS, TOKENS))
    assert document("score", *plain, "--detokenize", "de", own)["totals"][0] == 13


# --- warnings and refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "metric", "named"),
    [
        ("Das ist ein Ha@@ us.", "sacrebleu", "--post-process subword_nmt"),
        ("Das ist ein Ha@@ us .", "tokenized", "--post-process subword_nmt"),
        ("\u2581Das \u2581ist \u2581ein Ha us.", "sacrebleu", "--post-process sentencepiece"),
        (TOKENS[0], "sacrebleu", "--detokenize"),
        (TOKENS[0], "chrf", "--detokenize"),
        (TOKENS[0], "tokenized", None),
    ],
)
def test_warnings(
    first: str, metric: str, named: str | None, ref: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hyp = write(tmp_path, "hyp", [first, *TOKENS[1:]])
    assert cli.main(["score", "--ref", ref, "--metric", metric, hyp]) == 0
    messages = capsys.readouterr().err
    if named is None:
        assert messages == ""
    else:
        assert f"warning: {hyp} " in messages
        assert named in messages


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--ref {ref} {folder}/none", "{folder}/none"),
        ("--ref {folder}/none {hyp}", "{folder}/none"),
        ("--ref {ref} {folder}", "{folder} is a folder"),
        ("--ref {ref} {empty}", "{empty} is empty"),
        ("--ref {blank} {hyp}", "--ref {blank} has only blank lines"),
        ("--ref {latin} {hyp}", "{latin} is not UTF-8: line 2 has the byte 0xe4"),
        ("--ref {ref} {short}", "{short} has 2 sentences and the reference {ref} 3"),
        ("--ref {ref} --ref {short} {hyp}", "{hyp} has 3 sentences and the reference {short} 2"),
        ("{hyp}", "--ref is missing, and {hyp} has no T- lines"),
        ("--ref {part} {hyp}", "--ref {part} is the output of fairseq-generate"),
        ("--ref {ref} {part}", "{part} has no D- line for sentence 0"),
        ("--ref - -", "stdin (-) is given 2 times"),
        ("--ref {ref} --tokenize 14a {hyp}", "--tokenize 14a"),
        ("--ref {ref} --metric chrf --tokenize zh {hyp}", "--tokenize zh is for --metric"),
        ("--ref {ref} --chrf-word-order 2 {hyp}", "--chrf-word-order 2 is for --metric chrf"),
        ("--ref {ref} --compound-split-all {hyp}", "--compound-split-all is for --metric compound-split"),
        ("--ref {ref} --detokenize German {hyp}", "--detokenize German"),
        ("--ref {ref} --metric compound-split --detokenize de {hyp}", "--detokenize de"),
    ],
)
def test_refused(words: str, named: str, ref: str, hyp: str, tmp_path: Path, refusal: Callable[..., str]) -> None:
    known = {"ref": ref, "hyp": hyp, "folder": tmp_path, "latin": tmp_path / "latin"}
    known["empty"] = write(tmp_path, "empty", [])
    known["blank"] = write(tmp_path, "blank", ["", " ", ""])
    known["short"] = write(tmp_path, "short", HYPOTHESIS[:2])
    known["part"] = write(tmp_path, "part", ["D-1\t-0.5\ta"])
    (tmp_path / "latin").write_bytes("a\nschläft\nc\n".encode("latin-1"))
    assert refusal("score", *words.format(**known).split()).startswith(named.format(**known))


@pytest.mark.parametrize("words", ["", "--metric bleu a", "--chrf-word-order 3 a"])
def test_wrong_options(words: str, assert_usage_error: Callable[..., None]) -> None:
    assert_usage_error("score", *words.split())


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


# --- COMET -----------------------------------------------------------------------------------------------------------


class Judge:
    """A model with the interface of unbabel-comet's: a translation's score is its share of the source's length."""

    def __init__(self, needs_reference: bool) -> None:
        self.requires_references = lambda: needs_reference
        self.samples: list[dict[str, str]] = []

    def predict(self, samples: list[dict[str, str]], batch_size: int, gpus: int, progress_bar: bool) -> Any:
        self.samples += samples
        scores = [len(sample["mt"].split()) / len(sample["src"].split()) for sample in samples]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


@pytest.fixture
def comet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Judge]:
    """``comet(needs_reference)`` puts a library with one model in the place of unbabel-comet."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "0")
    (tmp_path / "judge" / "checkpoints").mkdir(parents=True)
    for name in ("hparams.yaml", "checkpoints/model.ckpt"):
        (tmp_path / "judge" / name).write_text("", encoding="utf-8")

    def put(needs_reference: bool = True) -> Judge:
        judge = Judge(needs_reference)

        def load_from_checkpoint(checkpoint_path: str, *, local_files_only: bool) -> Judge:
            assert local_files_only
            assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"
            if Path(checkpoint_path) != tmp_path / "judge" / "checkpoints" / "model.ckpt":
                raise RuntimeError("unknown weights\nand more")
            return judge

        library = SimpleNamespace(load_from_checkpoint=load_from_checkpoint, __version__="2.2.7")
        monkeypatch.setitem(sys.modules, "comet", library)
        return judge

    return put


def test_comet(
    ref: str, hyp: str, tmp_path: Path, comet: Callable[..., Judge], capsys: pytest.CaptureFixture[str]
) -> None:
    judge = comet()
    sources = ["This is a small house.", "The dog sleeps.", "We go home today."]
    source = write(tmp_path, "src", sources)
    command = ["score", "--metric", "comet", "--source", source, "--ref", ref]
    assert cli.main([*command, "--comet-model", str(tmp_path / "judge"), hyp, "--json"]) == 0
    captured = capsys.readouterr()
    assert "can run code" in captured.err
    assert json.loads(captured.out) == {
        "hypothesis": hyp,
        "lines": None,
        "source": source,
        "references": [ref],
        "metric": "comet",
        "score": pytest.approx((4 / 5 + 3 / 3 + 4 / 4) / 3),
        "signature": "comet:2.2.7|model:judge",
        "sentences": 3,
        "sentence_scores": [0.8, 1, 1],
    }
    assert judge.samples == [
        {"src": source, "mt": text, "ref": reference}
        for source, text, reference in zip(sources, HYPOTHESIS, REFERENCE, strict=True)
    ]
    checkpoint = tmp_path / "judge" / "checkpoints" / "model.ckpt"
    assert cli.main([*command, "--comet-model", str(checkpoint), hyp, ref]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        f"{hyp}: COMET = 0.9333  comet:2.2.7|model:judge",
        f"{ref}: COMET = 1.0833  comet:2.2.7|model:judge",
    ]


def test_comet_without_reference(
    hyp: str, tmp_path: Path, comet: Callable[..., Judge], document: Callable[..., Any]
) -> None:
    judge = comet(needs_reference=False)
    command = ["score", "--metric", "comet", "--comet-model", tmp_path / "judge", "--source", hyp]
    assert document(*command, hyp)["references"] == []
    assert [set(sample) for sample in judge.samples] == [{"src", "mt"}] * 3
    output = write(tmp_path, "generated", generated(HYPOTHESIS, REFERENCE))
    found = document(*command, output)
    assert (found["lines"], found["references"]) == ("D-", [f"T- lines of {output}"])
    assert [sample["ref"] for sample in judge.samples[3:]] == REFERENCE


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--metric comet --source {ref} --ref {ref} {hyp}", "--comet-model is missing"),
        ("--metric comet --comet-model {folder}/judge --ref {ref} {hyp}", "--source is missing"),
        ("--metric comet --comet-model {folder}/judge --source {ref} {hyp}", "--ref is missing"),
        (
            "--metric comet --comet-model {folder}/judge --source {ref} --ref {ref} --ref {ref} {hyp}",
            "--ref is given 2",
        ),
        ("--metric comet --comet-model Some/model --source {ref} --ref {ref} {hyp}", "--comet-model Some/model"),
        ("--metric comet --comet-model {folder} --source {ref} --ref {ref} {hyp}", "--comet-model {folder} has no"),
        ("--metric comet --comet-model {hyp} --source {ref} --ref {ref} {hyp}", "--comet-model {hyp}: "),
        (
            "--metric comet --comet-model {folder}/judge/checkpoints/other.ckpt --source {ref} --ref {ref} {hyp}",
            "--comet",
        ),
        ("--metric comet --comet-model {folder}/judge --source {short} --ref {ref} {hyp}", "{hyp} has 3 sentences"),
        ("--metric comet --comet-model {folder}/judge --source {ref} --ref {short} {hyp}", "{hyp} has 3 sentences"),
        ("--metric comet --comet-model {folder}/judge --source - --ref - {hyp}", "stdin (-) is given 2 times"),
        ("--metric comet --comet-model {folder}/judge --source {latin} --ref {ref} {hyp}", "{latin} is not UTF-8"),
        ("--metric comet --tokenize zh --comet-model {folder}/judge --source {ref} --ref {ref} {hyp}", "--tokenize zh"),
        ("--source {ref} --ref {ref} {hyp}", "--source {ref} is for --metric comet"),
        ("--comet-model {folder}/judge --ref {ref} {hyp}", "--comet-model {folder}/judge is for --metric comet"),
    ],
)
def test_comet_refused(
    words: str, named: str, ref: str, hyp: str, tmp_path: Path, comet: Callable[..., Judge],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    comet()
    (tmp_path / "judge" / "checkpoints" / "other.ckpt").write_text("", encoding="utf-8")
    (tmp_path / "latin").write_bytes("a\nschläft\nc\n".encode("latin-1"))
    known = {"ref": ref, "hyp": hyp, "folder": tmp_path, "latin": tmp_path / "latin"}
    known["short"] = write(tmp_path, "short", HYPOTHESIS[:2])
    assert cli.main(["score", *words.format(**known).split()]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("fairseq-depthwise: error: " + named.format(**known))


def test_comet_is_not_installed(
    ref: str, hyp: str, tmp_path: Path, comet: Callable[..., Judge], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "comet", None)
    command = ["score", "--metric", "comet", "--comet-model", str(tmp_path / "judge"), "--source", ref, "--ref", ref]
    assert cli.main([*command, hyp]) == 1
    assert "fairseq-depthwise[comet]" in capsys.readouterr().err.splitlines()[-1]
