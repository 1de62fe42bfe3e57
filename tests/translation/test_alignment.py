"""Alignments: words of subwords, fairseq's own alignments, lines in pieces, and tokens that name languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGeneratorWithAlignment
from multilingual_checkpoints import multilingual_checkpoint, multilingual_data
from probe_checkpoints import KINDS, checkpoint_of

from fairseq_compat import checkpoints
from fairseq_depthwise.translation.alignment import hard_alignment, soft_alignment, words_of
from fairseq_depthwise.translation.translator import BeamOptions, LoadedTranslator, TranslatorOptions

KIND = "mute_transformer"
LINES = ["w0 w1 w7", "w3 w1 w2 w7 w7 w6", "w5", "w2 w2 w2 w4"]


def options(kind: bool | str = True, beam: int = 3, **others: Any) -> TranslatorOptions:
    return TranslatorOptions(beam=BeamOptions(beam, 0.6, 10), alignment=kind, **others)


@pytest.mark.parametrize(
    ("tokens", "kind", "numbers", "words"),
    [
        ("the ca@@ t sle@@ e@@ ps", "subword_nmt", [0, 1, 1, 2, 2, 2], ["the", "cat", "sleeps"]),
        ("\u2581the \u2581ca t \u2581 x", "sentencepiece", [0, 1, 1, 2, 2], ["the", "cat", "x"]),
        ("t he \u2581cat", "sentencepiece", [0, 0, 1], ["the", "cat"]),
        ("the ca@@ t", None, [0, 1, 2], ["the", "ca@@", "t"]),
        ("", "subword_nmt", [], []),
    ],
)
def test_words_of_subwords(tokens: str, kind: str | None, numbers: list[int], words: list[str]) -> None:
    assert words_of(tokens.split(), kind) == (numbers, words)


def test_alignment_of_subwords() -> None:
    """Three source tokens of two words, four target tokens of two words."""
    attention = torch.tensor([[0.5, 0.2, 0.2], [0.6, 0.1, 0.2], [0.1, 0.2, 0.6], [0.1, 0.6, 0.2]])
    source, target = [0, 1, 1], [0, 0, 1, 1]
    assert hard_alignment(attention, source, target) == [(0, 0), (1, 1)]
    soft = soft_alignment(attention, source, target, (2, 2))
    assert soft.tolist() == [pytest.approx([0.55, 0.35]), pytest.approx([0.1, 0.8])]
    assert soft_alignment(attention[:0], source, [], (0, 2)).shape == (0, 2)


def aligning(path: str) -> str:
    """Make fairseq's model that is trained to align of its transformer."""
    state = checkpoints.load_checkpoint(path)
    state["cfg"]["model"] |= {"arch": "transformer_align", "_name": "transformer_align"}
    state["cfg"]["model"] |= {"alignment_layer": 0, "alignment_heads": 1, "full_context_alignment": True}
    checkpoints.save(state, path)
    return path


@pytest.mark.parametrize("kinds", [*([kind] for kind in KINDS), ["sdt_transformer", "align"], ["align"]], ids="+".join)
def test_as_fairseqs_own(kinds: list[str], data: str, tmp_path: Path) -> None:
    """Of the two best hypotheses; fairseq counts the tokens that these models end up with, <s>, as words."""
    paths = [
        aligning(checkpoint_of(tmp_path, "transformer", "align.pt"))
        if kind == "align"
        else checkpoint_of(tmp_path, kind, f"{kind}.pt")
        for kind in kinds
    ]
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(paths, arg_overrides={"data": data})
    bos = task.target_dictionary.bos()
    for kind in ("hard", "soft"):
        generator = SequenceGeneratorWithAlignment(
            models, task.target_dictionary, beam_size=3, len_penalty=0.6, max_len_b=10, print_alignment=kind
        )
        translator = LoadedTranslator(":".join(paths), data=data, options=options(kind, nbest=2))
        for line, one in zip(LINES, translator.translations(LINES), strict=True):
            tokens = task.source_dictionary.encode_line(line, add_if_not_exist=False).long()[None]
            sample = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([tokens.shape[1]])}}
            assert one.source_words == tuple(line.split())
            best = generator.generate(models, sample)[0]
            for hypothesis, expected in zip(one.hypotheses, best, strict=False):
                symbols = expected["tokens"].tolist()[:-1]
                words = [place for place, token in enumerate(symbols) if token != bos]
                assert hypothesis.words == tuple(task.target_dictionary[symbols[place]] for place in words)
                if kind == "hard":
                    number = {place: number for number, place in enumerate(words)}
                    pairs = [(source, number[place]) for source, place in expected["alignment"] if place in number]
                    assert hypothesis.alignment == tuple(pairs)
                    assert hypothesis.attention is None
                else:
                    rows = [[float(weight) for weight in expected["alignment"][place][:-1]] for place in words]
                    assert hypothesis.attention is not None
                    assert [*hypothesis.attention] == [pytest.approx(row, abs=1e-5) for row in rows]
                    assert hypothesis.alignment is None


def test_lines_in_pieces(data: str, tmp_path: Path) -> None:
    """Words of a piece are counted on from those of the pieces before; weights of other pieces are 0."""
    path, lines = checkpoint_of(tmp_path, KIND), ["w1 w2 w3", "w4 w5 w6", "w7"]
    for kind in ("hard", "soft"):
        whole = LoadedTranslator(path, data=data, options=options(kind, max_line_tokens=3))
        (one,) = whole.translations([" ".join(lines)])
        parts = LoadedTranslator(path, data=data, options=options(kind)).translations(lines)
        assert (one.pieces, one.source_words) == (3, tuple(" ".join(lines).split()))
        rows, pairs, targets = [], [], 0
        for number, part in enumerate(parts):
            hypothesis, before = part.hypotheses[0], 3 * number
            pairs += [(source + before, target + targets) for source, target in hypothesis.alignment or ()]
            rows += [(0.0,) * before + row + (0.0,) * (7 - before - len(row)) for row in hypothesis.attention or ()]
            targets += len(hypothesis.words or ())
        best = one.hypotheses[0]
        assert (best.alignment or ()) == tuple(pairs)
        assert [*(best.attention or ())] == [pytest.approx(row, abs=1e-5) for row in rows]
        assert pairs or rows


@pytest.mark.parametrize("tokens", [[], ["--lang-tok-replacing-bos-eos"]])
def test_tokens_of_languages_are_no_words(tokens: list[str], tmp_path: Path) -> None:
    data = multilingual_data(tmp_path / "data-bin")
    path = multilingual_checkpoint(tmp_path, "--encoder-langtok", "src", "--decoder-langtok", *tokens)
    languages = {"source_lang": "en", "target_lang": "l0"}
    soft, hard = (
        LoadedTranslator(path, data=data, options=options(kind), **languages).translations(
            LINES, constraints=[["w6 w7"]] * len(LINES)
        )
        for kind in ("soft", "hard")
    )
    for line, one, other in zip(LINES, soft, hard, strict=True):
        best = one.hypotheses[0]
        assert one.source_words == tuple(line.split())
        assert best.words == tuple(best.text.split())
        assert best.attention is not None
        assert {len(row) for row in best.attention} == {len(line.split())}
        assert 0 < sum(best.attention[0]) < 0.999  # the rest is of the language's token and the end
        largest = [(row.index(max(row)), number) for number, row in enumerate(best.attention)]
        assert other.hypotheses[0].alignment == tuple(largest)
