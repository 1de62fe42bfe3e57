"""Tokenized BLEU against multi-bleu.perl and against a reading of its definition; sacreBLEU's metrics as they are."""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import Any

import pytest
import sacrebleu

from fairseq_compat import UserError
from fairseq_depthwise.evaluation.scores import METRICS, TranslationMetric, looks_tokenized
from fairseq_depthwise.evaluation.significance import paired_test

HYPOTHESES = [
    "der Öffner lag in der Küche , nicht im Keller-Regal .",
    "am 3-4-5 . Mai kam DIE E-Mail-Adresse .",
    "zehn\u00a0000 Euro\u3000sind\u2028viel Geld\u0085für ein Rad",
    "",
    "sie sagte nichts\tund  ging nach Hause",
    "ein kurzer Satz über Äpfel , ÄPFEL und a-b-c",
]
REFERENCE = [
    "der Öffner lag in der Küche , nicht im Keller-Schrank .",
    "am 3-4-5 . mai kam die E-Mail-adresse an .",
    "zehn\u00a0000 Euro\u3000sind\u2028viel Geld\u0085für ein altes Rad",
    "Stille .",
    "sie sagte nichts und ging nach Haus",
    "ein kurzer Satz über äpfel , äpfel und a-b-c",
]
SECOND_REFERENCE = [
    "der öffner war in der Küche , nicht im Keller .",
    "am 3-4-5 . Mai kam die E-Mail .",
    "zehn 000 Euro sind viel Geld für ein Rad",
    "",
    "sie sagte nichts , sie ging nach Hause",
    "ein Satz über Äpfel",
]

#: What multi-bleu.perl of Moses (perl 5.36) printed for these sentences: BLEU, precisions, BP, hyp_len, ref_len.
PRINTED = {
    ("tokenized", 1): ("53.44", "82.5/62.9/53.3/44.0", "0.905", 40, 44),
    ("tokenized", 2): ("68.31", "90.0/77.1/66.7/52.0", "0.975", 40, 41),
    ("tokenized-lc", 1): ("65.07", "90.0/74.3/66.7/60.0", "0.905", 40, 44),
    ("tokenized-lc", 2): ("74.82", "95.0/82.9/73.3/60.0", "0.975", 40, 41),
}


@pytest.mark.parametrize(("metric", "references"), PRINTED)
def test_the_same_as_multi_bleu(metric: str, references: int) -> None:
    score = TranslationMetric(metric).score(HYPOTHESES, [REFERENCE, SECOND_REFERENCE][:references])
    ngrams = score.ngrams
    assert (
        f"{score.score:.2f}",
        "/".join(f"{one:.1f}" for one in ngrams["precisions"]),
        f"{ngrams['brevity_penalty']:.3f}",
        ngrams["hypothesis_length"],
        ngrams["reference_length"],
    ) == PRINTED[metric, references]
    assert score.sentences == 6


#: Sentence -> what the papers' substitution makes of it; @ is short for ##AT##-##AT##.
SPLIT = {
    "a-b-c": "a @ b-c",
    "E-Mail-Adresse , 3-4": "E @ Mail @ Adresse , 3 @ 4",
    "3-4-5-6-7": "3 @ 4-5 @ 6-7",
    "ö-ä": "ö @ ä",
    "a-ö-c": "a @ ö @ c",  # one character, but two bytes
    "- a - -b b- \t-": "- a - -b b- \t-",
    "a--b": "a @ -b",
    "a---b": "a @ --b",
    "\u00a0-b": "\U000f00a0 @ b",  # white space for Python only
    "a-\x1c-b": "a @ \U000f001c-b",
    "a\u2010b": "a\u2010b",
}


@pytest.mark.parametrize("sentence", SPLIT)
def test_where_compounds_are_split(sentence: str) -> None:
    assert TranslationMetric("compound-split").prepare([sentence]) == [SPLIT[sentence].replace("@", "##AT##-##AT##")]


@pytest.mark.skipif(shutil.which("perl") is None, reason="perl is not installed")
def test_compounds_are_split_as_perl_does() -> None:
    chance, program = random.Random(5), r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"
    lines = [*SPLIT, *("".join(chance.choices("ab-- öÄ\u00a0\u0085\u3000\t\x1c", k=12)) for _ in range(2000))]
    text = "".join(f"{line}\n" for line in lines).encode()
    output = subprocess.run(["perl", "-ple", program], input=text, stdout=subprocess.PIPE, check=True).stdout
    expected = TranslationMetric("tokenized").prepare(output.decode().split("\n")[:-1])
    assert TranslationMetric("compound-split").prepare(lines) == expected


@pytest.mark.parametrize(
    ("metric", "part"),
    [
        ("sacrebleu", "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:"),
        ("tokenized", "nrefs:2|case:mixed|eff:no|tok:none|smooth:none|version:"),
        ("tokenized-lc", "nrefs:2|case:lc-ascii|eff:no|tok:none|smooth:none|version:"),
        ("compound-split", "nrefs:2|case:mixed|eff:no|tok:compound-split|smooth:none|version:"),
        ("chrf", "nrefs:2|case:mixed|eff:yes|nc:6|nw:0|space:no|version:"),
    ],
)
def test_signatures_tell_the_metrics_apart(metric: str, part: str) -> None:
    score = TranslationMetric(metric).score(HYPOTHESES, [REFERENCE, SECOND_REFERENCE])
    assert score.signature == part + sacrebleu.__version__


@pytest.mark.parametrize("metric", [name for name, spec in METRICS.items() if not spec.lower_is_better])
def test_empty_translations_score_zero(metric: str) -> None:
    assert TranslationMetric(metric).score(["", ""], [["a b", "c"]]).score == 0
    if metric != "accuracy":  # for which two empty lines are equal
        assert TranslationMetric(metric).score(["", ""], [["", ""]]).score == 0


@pytest.mark.parametrize("name", ["chrF", "BLEU", ""])
def test_another_name_is_no_metric(name: str) -> None:
    with pytest.raises(KeyError):
        TranslationMetric(name)


@pytest.mark.parametrize("metric", ["sacrebleu", "accuracy"])
@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        ("a text", ["a text"]),
        (["a line"], ["a line"]),
        (["a line"], "a line"),
        (["a line", "b"], [["a line", "b", "c"]]),
        (["a line", "b"], [["a line", "b"], ["a line"]]),
    ],
)
def test_lines_and_references_that_do_not_fit(metric: str, hypotheses: Any, references: Any) -> None:
    with pytest.raises(UserError, match="line"):
        TranslationMetric(metric).score(hypotheses, references)
    with pytest.raises(UserError, match="line"):
        paired_test(hypotheses, hypotheses, references, TranslationMetric(metric))


def test_tokenized_text_is_noticed() -> None:
    tokenized, written = ["ein Haus ."] * 2 + ["ein Baum"] * 8, ["ein Haus."] * 10
    assert looks_tokenized(tokenized, written)
    assert not looks_tokenized(tokenized, tokenized)
    assert not looks_tokenized(written, written)
    assert not looks_tokenized([*tokenized[1:], "ein Baum"], written)
