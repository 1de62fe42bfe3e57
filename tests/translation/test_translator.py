"""Lines through a loaded model: in order, whatever the batches are; empty, long and several at once."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator
from probe_checkpoints import KINDS, checkpoint_of, data_in

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.translation.translator import BeamOptions, LoadedTranslator, TranslatorOptions

#: Of the untrained models this one's translations differ most.
KIND = "depthwise_lstm_transformer"

draw = random.Random(5)
LINES = [" ".join(f"w{draw.randrange(8)}" for _ in range(draw.randint(0, 9))) for _ in range(14)]


def options(beam: int = 3, *, max_length: int = 10, **others: Any) -> TranslatorOptions:
    return TranslatorOptions(beam=BeamOptions(beam, 0.6, max_length), **others)


def searched_one_by_one(paths: list[str], data: str, beam: int = 3, max_length: int = 10) -> list[tuple[str, float]]:
    """What fairseq's search says of each line that is not empty, alone and without our batches."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(paths, arg_overrides={"data": data})
    generator = SequenceGenerator(models, task.target_dictionary, beam_size=beam, len_penalty=0.6, max_len_b=max_length)
    found = []
    for line in LINES:
        tokens = task.source_dictionary.encode_line(line, add_if_not_exist=False).long()[None]
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([tokens.shape[1]])}}
        best = generator.generate(models, sample)[0][0]
        text = task.target_dictionary.string(best["tokens"])
        found.append((text if line else "", float(best["score"]) / math.log(2)))
    return found


@pytest.mark.parametrize("kinds", [*([kind] for kind in KINDS), ["sdt_transformer", KIND]], ids="+".join)
def test_as_fairseqs_own_search_whatever_the_batches(kinds: list[str], data: str, tmp_path: Path) -> None:
    paths = [checkpoint_of(tmp_path, kind, f"{kind}.pt") for kind in kinds]
    expected = searched_one_by_one(paths, data)
    for size in ({}, {"max_tokens": 1}, {"max_tokens": None, "batch_size": 4}):
        found = LoadedTranslator(":".join(paths), data=data, options=options(**size)).translations(LINES)
        assert [one.source for one in found] == LINES
        assert [one.text for one in found] == [text for text, _ in expected]
        for one, (_, score) in zip(found, expected, strict=True):
            assert not one.text or one.hypotheses[0].score == pytest.approx(score, abs=1e-4)


def test_arguments_of_a_call_fit_each_other(data: str, tmp_path: Path) -> None:
    translator = LoadedTranslator(checkpoint_of(tmp_path, KIND), data=data, options=options())
    for nbest in (-1, 0, translator.options.beam.beam + 1):
        with pytest.raises(UserError, match=f"nbest={nbest} "):
            translator.translations(LINES, nbest=nbest)
    with pytest.raises(UserError, match="2 lines"):
        translator.translations(["w1", "w2"], constraints=[["w2"]])


@pytest.fixture(scope="module")
def translator(data: str, tmp_path_factory: pytest.TempPathFactory) -> LoadedTranslator:
    path = checkpoint_of(tmp_path_factory.mktemp("translator"), KIND)
    return LoadedTranslator(path, data=data, options=options())


@pytest.mark.parametrize(
    "constraints",
    ["w1", 1, [], [["w1"]], [["w1"], None], [["w1"], "w2"], [["w1"], [2]], [["w1"], [["w2"]]], {"w1": ["w1"], "w2": 2}],
)
def test_constraints_are_a_list_of_texts_for_each_line(constraints: Any, translator: LoadedTranslator) -> None:
    with pytest.raises(UserError, match="constraints"):
        translator.translations(["w1", "w2"], constraints=constraints)
    with pytest.raises(UserError, match="lines"):
        translator.translations(["w1", 2])  # type: ignore[list-item]  # which is refused


def test_constraints_of_a_call_do_not_go_with_sampling(data: str, tmp_path: Path) -> None:
    sampled = TranslatorOptions(beam=BeamOptions(2, sampling=True))
    translator = LoadedTranslator(checkpoint_of(tmp_path, KIND), data=data, options=sampled)
    with pytest.raises(UserError, match="--sampling"):
        translator.translations(["w1"], constraints=[["w2"]])


@pytest.mark.parametrize("penalty", [-5, 5])
def test_scores_are_finite_with_every_length_penalty(penalty: int, data: str, tmp_path: Path) -> None:
    search = TranslatorOptions(beam=BeamOptions(1, penalty, max_length=30))
    translator = LoadedTranslator(checkpoint_of(tmp_path, KIND), data=data, options=search)
    (translation,) = translator.translations(["w1 w2 w3"])
    assert math.isfinite(translation.hypotheses[0].score)
    assert translation.hypotheses[0].score < 0


def test_batches_are_of_the_size_that_is_given(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, ...]] = []
    generate = SequenceGenerator.generate

    def counted(self: Any, models: Any, sample: Any, **others: Any) -> Any:
        sizes.append(tuple(sample["net_input"]["src_tokens"].shape))
        return generate(self, models, sample, **others)

    monkeypatch.setattr(SequenceGenerator, "generate", counted)
    translator = LoadedTranslator(
        checkpoint_of(tmp_path, KIND), data=data, options=options(max_tokens=30, batch_size=5)
    )
    translator.translations(LINES)
    lines = sum(map(bool, LINES))
    assert all(count <= 5 and count * length <= 30 for count, length in sizes)
    assert sum(count for count, _ in sizes) == lines
    assert [length for _, length in sizes] == sorted(length for _, length in sizes)


def test_empty_lines(data: str, tmp_path: Path) -> None:
    translator = LoadedTranslator(checkpoint_of(tmp_path, KIND), data=data, options=options())
    found = translator.translations(["", "  ", "w1", "\u2028"])
    assert [bool(one.text) for one in found] == [False, False, True, False]
    assert [one.pieces for one in found] == [0, 0, 1, 0]


# Long lines.


def test_lines_that_are_too_long_are_translated_in_pieces(data: str, tmp_path: Path) -> None:
    path = checkpoint_of(tmp_path, "transformer", max_source_positions=16, max_target_positions=16)
    state = checkpoints.load_checkpoint(path)
    state["cfg"]["task"] |= {"max_source_positions": 16, "max_target_positions": 16}
    checkpoints.save(state, path)
    long = " ".join(f"w{number % 8}" for number in range(40))
    words = long.split()
    translator = LoadedTranslator(path, data=data, options=options())
    longest = translator.translations([" ".join(words[:15])])[0]
    assert longest.pieces == 1
    found = translator.translations(["w1", long, "w2"])
    # 10 tokens a hypothesis may have, so a piece has 5.
    cut = [" ".join(words[start : start + 5]) for start in range(0, 40, 5)]
    assert [one.pieces for one in found] == [1, len(cut), 1]
    assert found[1].text == " ".join(translator.translate(cut))
    parts = [one.hypotheses[0].score for one in translator.translations(cut)]
    assert found[1].hypotheses[0].score == pytest.approx(sum(parts) / len(parts))


@pytest.mark.parametrize("limit", ["option", "model"])
def test_what_may_be_cut_off_is_known(limit: str, data: str, tmp_path: Path) -> None:
    if limit == "option":
        path, cut = checkpoint_of(tmp_path, KIND), options(1, max_length=1)
    else:
        path, cut = checkpoint_of(tmp_path, "transformer", max_target_positions=2), options(1)
    (one,) = LoadedTranslator(path, data=data, options=cut).translations(["w1 w2 w3 w4 w5"])
    assert one.cut_off
    assert len(one.text.split()) == 1
    ends_by_itself = LoadedTranslator(checkpoint_of(tmp_path, "mute_transformer"), data=data, options=options())
    assert not ends_by_itself.translations(["w1 w2 w3 w4 w5"])[0].cut_off


# What is loaded.


def test_bf16(data: str, tmp_path: Path) -> None:
    path = checkpoint_of(tmp_path, KIND)
    translator = LoadedTranslator(path, data=data, options=options(precision="bf16"))
    assert {parameter.dtype for model in translator.models for parameter in model.parameters()} == {torch.bfloat16}
    assert all(translator.translate(["w1 w2", "w3"]))
    with pytest.raises(UserError, match="give a list"):
        translator.translate("w1 w2")


def test_data_of_another_training(data: str, tmp_path: Path) -> None:
    path = checkpoint_of(tmp_path, KIND)
    other = data_in(tmp_path / "other")
    (Path(other) / "dict.src.txt").write_text("w0 1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"model.pt does not fit its own options or --data .*other"):
        LoadedTranslator(path, data=other)
