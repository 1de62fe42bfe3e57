"""Patches of generation: options, searches, unknown words, and translations in a program."""

from __future__ import annotations

import math
import random
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils, search
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig, GenerationConfig
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.iterative_refinement_generator import IterativeRefinementGenerator
from fairseq.modules import FairseqDropout
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.token_generation_constraints import pack_constraints
from omegaconf import OmegaConf
from torch import nn

from fairseq_compat import UserError
from fairseq_compat.commands.generation import require_path, require_recorded
from fairseq_compat.generation_options import (
    generation_arguments,
    require_dropout,
    require_generation,
    require_models_of_generator,
    require_used,
)
from fairseq_compat.patches import constraints as patches_of_constraints
from fairseq_compat.unknown_words import UnknownWords, read_table
from fairseq_depthwise.modules.dropout import Dropout

# Options.


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"temperature": 0.0}, "--temperature"),
        ({"min_len": 300}, "--min-len"),
        ({"nbest": 6}, "--nbest"),
        ({"sampling": True}, "--sampling"),
        ({"sampling_topk": 5}, "--sampling-topk"),
        ({"sampling": True, "nbest": 5, "sampling_topk": 5, "sampling_topp": 0.5}, "--sampling-topp"),
        ({"sampling": True, "nbest": 5, "sampling_topp": 1.5}, "--sampling-topp"),
        ({"sampling": True, "nbest": 5, "match_source_len": True}, "--match-source-len"),
        ({"lm_weight": 0.5}, "--lm-weight"),
        ({"lenpen": 6.0}, "--lenpen"),
        ({"diversity_rate": -2.0}, "--diversity-rate"),
        ({"no_repeat_ngram_size": -1}, "--no-repeat-ngram-size"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        require_generation(OmegaConf.structured(GenerationConfig(**options)))


@pytest.mark.parametrize(
    "options",
    [{}, {"min_len": 300, "max_len_a": 2.0}, {"beam": 6, "nbest": 6, "sampling": True}, {"diverse_beam_groups": 5}],
)
def test_options_that_do(options: dict[str, Any]) -> None:
    require_generation(OmegaConf.structured(GenerationConfig(**options)))


@pytest.mark.parametrize("text", ["{beam: 5}", "[1]", '{"beem": 5}', '{"beam": "five"}', '{"beam": 0}'])
def test_arguments_within_an_option(text: str) -> None:
    with pytest.raises(UserError, match=r"^--eval-bleu-args"):
        generation_arguments("--eval-bleu-args", text)


def test_options_of_refinement_are_for_models_that_refine() -> None:
    options = OmegaConf.structured(GenerationConfig(retain_iter_history=True))
    require_used(IterativeRefinementGenerator(Dictionary()), options)
    with pytest.raises(UserError, match="--retain-iter-history"):
        require_used(object(), options)


def test_a_search_is_for_models_of_its_kind() -> None:
    word_by_word, refining = SimpleNamespace(), SimpleNamespace(initialize_output_tokens=None)
    refinement: Any = IterativeRefinementGenerator(Dictionary())
    require_models_of_generator(refinement, [refining])
    require_models_of_generator(object(), [word_by_word])
    for generator, model in ((refinement, word_by_word), (object(), refining)):
        with pytest.raises(UserError, match="--task"):
            require_models_of_generator(generator, [model])


def test_a_translation_model_is_no_language_model() -> None:
    with pytest.raises(UserError, match="transformer"):
        LanguageModelingTask.build_model(None, Namespace(_name="transformer"))


#: What a checkpoint records: the model has no dataclass, and thus the options of all parts.
RECORDED = {
    "common": {"seed": 1},
    "dataset": {"max_tokens": 100, "batch_size": None},
    "model": Namespace(
        _name="transformer", dropout=0.1, max_tokens=100, criterion="cross_entropy", activation_fn="relu"
    ),
    "task": {"_name": "translation", "data": "data-bin"},
    "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1},
}


@pytest.mark.parametrize(
    ("overrides", "is_valid"),
    [
        ({"dropout": 0.0, "data": "elsewhere", "label_smoothing": 0}, True),
        ({"activation_fn": "gelu", "task": {"data": "elsewhere"}}, True),
        ({"criterion": "cross_entropy"}, False),
        ({"task": "translation"}, False),
        ({"max_tokens": 9}, False),
        ({"dropuot": 0.0}, False),
        ({"dropout": "0.0"}, False),
        ({"dropout": 3}, False),
    ],
)
def test_overrides_are_options_of_models(
    overrides: dict[str, Any], is_valid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = OmegaConf.create(RECORDED, flags={"allow_objects": True})
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", lambda path: {"cfg": recorded})
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.common_eval.path = "model.pt"
    with nullcontext() if is_valid else pytest.raises(UserError, match=f"--model-overrides '{next(iter(overrides))}'"):
        require_recorded(overrides, cfg)


@pytest.mark.parametrize(
    ("path", "several", "is_valid"), [("a.pt", False, True), ("a.pt:b.pt", True, True), ("a.pt:b.pt", False, False)]
)
def test_some_commands_take_one_model(path: str, several: bool, is_valid: bool) -> None:
    cfg = OmegaConf.structured(FairseqConfig)
    with pytest.raises(UserError, match="--path"):
        require_path(cfg, several=several)
    cfg.common_eval.path = path
    with nullcontext() if is_valid else pytest.raises(UserError, match="--path"):
        require_path(cfg, several=several)


def test_dropout_is_retained_in_modules_that_there_are() -> None:
    model = nn.Module()
    model.decoder = nn.Module()
    model.decoder.stock = FairseqDropout(0.1, module_name="TransformerDecoder")
    model.decoder.own = Dropout(0.1)
    require_dropout([model], ["TransformerDecoder", "decoder", "decoder.own"])
    for name in ("Decoder", "decoder.stock", "own"):
        with pytest.raises(UserError, match=name):
            require_dropout([model], [name])


# Searches.


def blocked_by_definition(hypothesis: list[int], size: int, vocabulary: int) -> set[int]:
    """Return the tokens with which an n-gram would be there twice."""
    blocked = set()
    for token in range(vocabulary):
        extended = [*hypothesis, token]
        ngrams = [tuple(extended[place : place + size]) for place in range(len(extended) - size + 1)]
        if len(ngrams) > 0 and ngrams[-1] in ngrams[:-1]:
            blocked.add(token)
    return blocked


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_is_repeated(size: int) -> None:
    chance, vocabulary, pad, end = random.Random(size), 8, 1, 2
    for step in range(7):
        hypotheses = [chance.choices(range(3, vocabulary), k=step) for _ in range(4)]
        tokens = torch.full((4, 10), pad)
        tokens[:, : step + 1] = torch.tensor([[end, *hypothesis] for hypothesis in hypotheses])
        scores = NGramRepeatBlock(size, use_extension=False)(tokens, torch.zeros(4, vocabulary), 2, 2, step)
        for hypothesis, row in zip(hypotheses, scores, strict=True):
            blocked = {token for token in range(vocabulary) if row[token] == -math.inf}
            assert blocked == blocked_by_definition(hypothesis, size, vocabulary)


def test_what_must_follow_is_not_blocked() -> None:
    scores = torch.full((1, 6), -math.inf)
    scores[0, 4] = -0.5  # as of a prefix
    blocked = NGramRepeatBlock(1, use_extension=False)(torch.tensor([[2, 4, 1]]), scores.clone(), 1, 1, 1)
    assert torch.equal(blocked, scores)


def test_more_candidates_than_tokens_are_all_tokens() -> None:
    scores = torch.randn(2, 1, len(Dictionary())).log_softmax(-1)
    drawn = []
    for topk in (99, -1):
        torch.manual_seed(1)
        drawn.append(search.Sampling(Dictionary(), topk).step(0, scores.clone(), None)[0].sort()[0])
    assert drawn[0].shape == drawn[1].shape


# Unknown words.


def dictionary_of(*symbols: str) -> Dictionary:
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    return dictionary


@pytest.mark.parametrize("alignment", ["hard", "soft"])
def test_an_unknown_word_becomes_the_one_that_it_attends_to(alignment: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("ä Ä\n", encoding="utf-8")
    source, target = dictionary_of("__en__", "a"), dictionary_of("x")
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    unknown = UnknownWords(str(table), task, alignment)
    words = ["ä", "a", "o@@"]
    # The model read a language before, and the end after the words.
    read = torch.tensor([source.index("__en__"), source.unk(), source.index("a"), source.unk(), source.eos()])
    attended = [3, 1, 2, 1]
    tokens = torch.tensor([target.unk(), target.unk(), target.index("x"), target.unk(), target.eos()])
    pairs: list[Any] = [(place, number) for number, place in enumerate(attended)]
    rows = [[f"{float(column == place):.6f}" for column in range(5)] for place in [*attended, 4]]
    hypothesis = {"tokens": tokens, "alignment": pairs if alignment == "hard" else rows}
    assert unknown.replace(hypothesis, read, words, {target.eos()}) == ["o@@", "Ä", "x", "Ä"]


@pytest.mark.parametrize("line", [b"one\n", b"one two three\n", b"\n", b"\xff x\n"])
def test_a_table_has_two_words_in_each_line(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(b"a b\n" + line)
    with pytest.raises(UserError, match="line 2"):
        read_table(str(tmp_path / "table"))


# Programs.


class Hub(GeneratorHubInterface):
    """Translates numbers below 10 into themselves."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.models = torch.nn.ModuleList([torch.nn.ModuleDict({"encoder": torch.nn.Identity()})])
        self.register_buffer("_float_tensor", torch.zeros(1))
        self.cfg = SimpleNamespace(generation=OmegaConf.structured(GenerationConfig))
        self.task: Any = SimpleNamespace(
            build_generator=lambda *args, **kwargs: None,
            inference_step=lambda generator, models, batch: [[{"tokens": tokens}] for tokens in batch["tokens"]],
        )

    def encode(self, sentence: str) -> Any:
        return torch.tensor([*map(int, sentence.split()), 0])

    def decode(self, tokens: Any) -> str:
        return " ".join(map(str, tokens[:-1].tolist()))

    def _build_batches(self, tokens: Any, skip_invalid_size_inputs: bool) -> Any:
        kept = [number for number, sentence in enumerate(tokens) if sentence.max() < 10]
        for number in reversed(kept if skip_invalid_size_inputs else range(len(tokens))):
            yield {"id": torch.tensor([number]), "tokens": tokens[number][None]}


def test_each_text_has_one_translation_though_some_are_skipped() -> None:
    hub = Hub()
    texts = ["99", "1 2", "", "3", "98"]
    assert hub.translate(texts, skip_invalid_size_inputs=True) == ["", "1 2", "", "3", ""]
    assert hub.translate(["99"], skip_invalid_size_inputs=True) == [""]
    assert hub.translate("99", skip_invalid_size_inputs=True) == ""
    assert hub.generate(hub.encode("99"), skip_invalid_size_inputs=True) == []
    assert hub.translate(texts) == ["99", "1 2", "", "3", "98"]
    assert hub.score(["99", "1"], skip_invalid_size_inputs=True)[0] is None


@pytest.mark.parametrize(("constraints", "named"), [(["w1 w2", "w3 w4"], "4 tokens"), (["</s>"], "</s>"), ([], "")])
def test_constraints_that_no_translation_can_meet(constraints: list[str], named: str) -> None:
    dictionary = dictionary_of("w1", "w2", "w3", "w4")
    generator = SimpleNamespace(tgt_dict=dictionary, eos=dictionary.eos(), pad=dictionary.pad())
    encoded = [dictionary.encode_line(text, append_eos=False, add_if_not_exist=False) for text in constraints]
    packed = pack_constraints([encoded])
    with pytest.raises(UserError, match=named) if named else nullcontext():
        patches_of_constraints._require_satisfiable(generator, packed[0], longest=3)
