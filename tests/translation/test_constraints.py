"""Constraints: fairseq's own search where it works, the same for every kind of model, and what cannot be met."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.search import LexicallyConstrainedBeamSearch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.token_generation_constraints import pack_constraints
from multilingual_checkpoints import multilingual_checkpoint, multilingual_data
from probe_checkpoints import KINDS, checkpoint_of

from fairseq_depthwise.translation.beam_search import BeamSearch
from fairseq_depthwise.translation.languages import target_start
from fairseq_depthwise.translation.translation_options import BeamOptions
from fairseq_depthwise.translation.translator import LoadedTranslator, TranslatorOptions

KIND = "depthwise_lstm_transformer"
LINES = ["w0 w1", "w3 w1 w2 w7 w7 w6", "w5", "", "w2 w2 w2"]
CONSTRAINTS = [["w3 w4", "w5"], ["w6", "w6"], [], [], ["w1", "w0 w7"]]


def options(beam: int = 3, order: str | None = None, *, max_length: int = 12, **others: Any) -> TranslatorOptions:
    return TranslatorOptions(beam=BeamOptions(beam, 0.6, max_length, order), token_scores=True, **others)


def searched_by_fairseq(paths: list[str], data: str, order: str, beam: int) -> list[tuple[str, float]]:
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(paths, arg_overrides={"data": data})
    target = task.target_dictionary
    generator = SequenceGenerator(
        models, target, beam_size=beam, len_penalty=0.6, max_len_b=12,
        search_strategy=LexicallyConstrainedBeamSearch(target, order),
    )  # fmt: skip
    found = []
    for line, constraints in zip(LINES, CONSTRAINTS, strict=True):
        tokens = task.source_dictionary.encode_line(line, add_if_not_exist=False).long()[None]
        wanted = [target.encode_line(one, add_if_not_exist=False, append_eos=False).long() for one in constraints]
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([tokens.shape[1]])}}
        best = generator.generate(models, sample, constraints=pack_constraints([wanted]))[0][0]
        found.append((target.string(best["tokens"]) if line else "", float(best["score"]) / math.log(2)))
    return found


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize("kinds", [[kind] for kind in KINDS] + [["sdt_transformer", KIND]], ids="+".join)
def test_as_fairseqs_own_search(kinds: list[str], order: str, data: str, tmp_path: Path) -> None:
    paths = [checkpoint_of(tmp_path, kind, f"{kind}.pt") for kind in kinds]
    expected = searched_by_fairseq(paths, data, order, beam=2)
    for size in ({}, {"batch_size": 1}):
        translator = LoadedTranslator(":".join(paths), data=data, options=options(2, order, **size))
        found = translator.translations(LINES, constraints=CONSTRAINTS)
        assert [one.text for one in found] == [text for text, _ in expected]
        for one, (_, score) in zip(found, expected, strict=True):
            assert not one.text or one.hypotheses[0].score == pytest.approx(score, abs=1e-4)
            assert one.unmet_constraints == {}
    assert "w3 w4" in found[0].text
    without = translator.translate(LINES)
    assert (without[2], without[3]) == (found[2].text, "")
    assert without != [one.text for one in found]


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize("tokens", [[], ["--decoder-langtok"], ["--decoder-langtok", "--lang-tok-replacing-bos-eos"]])
def test_many_directions(tokens: list[str], order: str, beam: int, tmp_path: Path) -> None:
    """fairseq's own task refuses constraints, or fails. Each token's score is the model's own for what is before it."""
    data = multilingual_data(tmp_path / "data-bin")
    path = multilingual_checkpoint(tmp_path, "--encoder-langtok", "src", *tokens)
    languages = {"source_lang": "en", "target_lang": "l1"}
    translator = LoadedTranslator(path, data=data, options=options(beam, order), **languages)
    draw = random.Random(4)
    lines = [" ".join(f"w{draw.randrange(8)}" for _ in range(draw.randint(1, 5))) for _ in range(8)]
    constraints = [[f"w{draw.randrange(8)} w{draw.randrange(8)}" for _ in range(draw.randint(1, 3))] for _ in lines]
    direction = translator.direction("en", "l1")
    (model,), target = translator.models, direction.task.target_dictionary
    start, prefix = target_start(direction.task)
    for line, wanted in zip(lines, constraints, strict=True):
        (one,) = translator.translations([line], constraints=[wanted])
        assert one.unmet_constraints == {}
        assert all(constraint in one.text for constraint in wanted)
        best = one.hypotheses[0]
        assert "__l1__" not in best.text
        assert best.tokens is not None
        assert best.tokens[: len(prefix)] == tuple(target[token] for token in prefix)
        tokens_found = [target.index(symbol) for symbol in best.tokens]
        (batch, _), *_ = direction._batches(direction.read(line, []).pieces)
        net_input = {**batch["net_input"], "prev_output_tokens": torch.tensor([[start, *tokens_found[:-1]]])}
        with torch.no_grad():
            log_probs = model.get_normalized_probs(model(**net_input), log_probs=True)[0]
        scores = log_probs[range(len(tokens_found)), tokens_found] / math.log(2)
        assert best.token_scores == pytest.approx(scores.tolist(), abs=1e-3)
        assert best.score == pytest.approx(float(scores.sum()) / len(scores) ** 0.6, abs=1e-3)


def test_what_cannot_be_met(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is translated as without constraints, and says why."""
    translator = LoadedTranslator(checkpoint_of(tmp_path, KIND), data=data, options=options(3, max_line_tokens=6))
    cases = {
        "w1 w2": (["w9 w3", "</s>", "<unk>"], ["w9 is not in", "</s> is not in", "<unk> is not in"]),
        "w2 w3": (["w6 " * 13], ["13 tokens, and a translation has 12"]),
        "": (["w6"], ["empty"]),
        "w1 " * 9: (["w6 w6"], ["in 2 pieces"]),
    }
    found = translator.translations(list(cases), constraints=[wanted for wanted, _ in cases.values()])
    assert [one.text for one in found] == translator.translate(list(cases))
    for one, (wanted, reasons) in zip(found, cases.values(), strict=True):
        assert list(one.unmet_constraints) == wanted
        for why, reason in zip(one.unmet_constraints.values(), reasons, strict=True):
            assert reason in why
    # A line whose search comes to nothing is searched for again.
    whole = BeamSearch.hypotheses
    monkeypatch.setattr(
        BeamSearch, "hypotheses", lambda self, batch, *given: [[] for _ in given[0]] if given else whole(self, batch)
    )
    found = translator.translations(LINES, constraints=CONSTRAINTS)
    assert [one.text for one in found] == translator.translate(LINES)
    assert "larger beam" in found[0].unmet_constraints["w3 w4"]
    assert found[2].unmet_constraints == {}
