"""Every system of every recipe: fairseq takes its options, and its numbers are those that the papers print."""

from __future__ import annotations

import re
from argparse import Namespace
from itertools import islice
from pathlib import Path

import pytest
from evaluate import baselines_of
from fairseq import options
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
from systems import System
from train import Machine, training_options

import fairseq_depthwise  # noqa: F401  # registers architectures and options
from fairseq_depthwise.growth.stages import parse_stages
from fairseq_depthwise.models.config import EncoderDecoderConfig
from recipes import RECIPES, system_of

ALL = [(recipe, name) for recipe in RECIPES for name in RECIPES[recipe].systems]

#: Tokenized BLEU of the depth-wise LSTM's paper: English-German, English-French, Czech-English.
DEPTHWISE = {
    "transformer_base": (27.55, 39.54, 28.40),
    "transformer_big": (28.83, 41.92, None),
    "depthwise_lstm_base": (28.53, 40.10, 29.15),
    "depthwise_lstm_big": (29.58, 43.11, None),
    "depthwise_rnn": (23.24, None, None),
    "depthwise_lstm_1layer": (27.84, None, None),
    "depthwise_lstm_hidden1536": (28.20, None, None),
    "depthwise_lstm_concat": (28.26, None, None),
    "depthwise_lstm_two_cells": (28.81, None, None),
    "depthwise_lstm_share_all": (26.94, None, None),
    "depthwise_lstm_share_none": (28.25, None, None),
    "depthwise_lstm_gelu": (28.41, None, None),
    "transformer_3l": (26.36, None, 27.91),
    "transformer_12l": (28.12, None, 29.38),
    "transformer_18l": (28.60, None, 29.61),
    "transformer_24l": (29.02, None, 29.73),
    "depthwise_lstm_3l": (27.38, None, 28.26),
    "depthwise_lstm_12l": (29.26, None, 29.64),
    "depthwise_lstm_18l": (29.41, None, 30.27),
    "depthwise_lstm_24l": (29.18, None, 30.02),
    "depthwise_lstm_big_12l": (30.69, None, 30.57),
    "depthwise_lstm_big_12l_6l": (31.12, None, 31.25),
    "depthwise_lstm_big_12l_6l_1layer": (30.83, None, 30.96),
}

#: Of shallow-to-deep training: tokenized BLEU and sacreBLEU, English-German and English-French; some have one.
SHALLOW_TO_DEEP: dict[str, tuple[float | None, ...]] = {
    "pre_norm_base": (27.05, 26.0, 41.00, 39.2),
    "pre_norm_big": (28.79, 27.7, 42.40, 40.6),
    "deep_24l": (28.95, 27.8, 42.40, 40.6),
    "sdt_24l": (29.02, 27.9, 42.42, 40.6),
    "deep_rpr_24l": (29.39, 28.3, 42.67, 40.9),
    "sdt_rpr_24l": (29.39, 28.3, 42.69, 40.9),
    "deep_48l": (29.44, 28.3, 42.75, 41.0),
    "sdt_48l": (29.60, 28.5, 42.82, 41.0),
    "deep_rpr_48l": (30.03, 28.8, 43.08, 41.3),
    "sdt_rpr_48l": (30.21, 29.0, 43.29, 41.5),
    "deep_big_24l": (29.90, 28.7),
    "sdt_big_24l": (29.93, 28.7),
    "deep_rpr_big_24l": (30.40, 29.2),
    "sdt_rpr_big_24l": (30.46, 29.3),
    "deep_rpr_30l": (29.52, 28.4),
    "dlcl_rpr_30l": (30.01, 28.9),
    "sparse_rpr_30l": (29.90, 28.8),
    "sdt_rpr_30l": (29.95, 28.9),
    "sdt_rpr_54l": (30.33, 29.2),
    "sdt_rpr_60l": (30.28, 29.1),
    "sdt_rpr_48l_no_restart": (29.93,),
    "sdt_rpr_48l_top": (29.20,),
    "sdt_rpr_48l_interpolation": (29.46,),
    "sdt_rpr_48l_interval1": (29.38,),
    "sdt_rpr_48l_doubling": (29.78,),
}

#: Of multi-unit Transformers: English-German, Chinese-English.
MULTI_UNIT = {
    "mute_baseline": (27.4, 23.4),
    "mute_relative": (28.2, 23.8),
    "mute_big": (28.6, None),
    "mute": (28.8, None),
    "mute_biased": (29.1, None),
    "mute_sequential": (29.3, 24.5),
}

#: Means over languages: from English 94 and 4 of them, into English the same, and both win ratios.
MANY_LANGUAGES = {
    "transformer_base": (18.75, 14.73, 27.02, 22.50),
    "depthwise_lstm_base": (23.38, 20.47, 28.41, 26.68, 98.94, 79.79),
}


def _expected() -> dict[tuple[str, str, str], float]:
    """(recipe, system, metric) -> number."""
    found: dict[tuple[str, str, str], float | None] = {}
    for name, (german, french, czech) in DEPTHWISE.items():
        found["wmt14_en_de", name, "tokenized"] = german
        found["wmt14_en_fr", name, "tokenized"] = french
        found["wmt15_cs_en", name, "tokenized"] = czech
    columns = [("wmt14_en_de", "compound-split"), ("wmt14_en_de", "sacrebleu")]
    columns += [("wmt14_en_fr", "tokenized"), ("wmt14_en_fr", "sacrebleu")]
    for name, numbers in SHALLOW_TO_DEEP.items():
        for (recipe, metric), number in zip(columns, numbers, strict=False):
            found[recipe, name, metric] = number
    for name, (german, chinese) in MULTI_UNIT.items():
        found["wmt14_en_de", name, "tokenized"] = german
        found["wmt18_zh_en", name, "sacrebleu"] = chinese
    means = ("en-xx bleu94", "en-xx bleu4", "xx-en bleu94", "xx-en bleu4", "en-xx win_ratio", "xx-en win_ratio")
    for name, numbers in MANY_LANGUAGES.items():
        for metric, number in zip(means, numbers, strict=False):
            found["opus100", name, metric] = number
    return {key: number for key, number in found.items() if number is not None}


def test_published_numbers() -> None:
    ours = {
        (recipe, name, one.metric): one.score
        for recipe, name in ALL
        for one in system_of(recipe, name).published.get(recipe, ())
    }
    assert ours == _expected()


def test_every_baseline_is_in_the_same_recipe() -> None:
    for recipe, name in ALL:
        baselines = list(islice(baselines_of(recipe, system_of(recipe, name)), 10))
        assert name not in baselines
        assert len(baselines) == len(set(baselines)) < 10
        assert set(baselines) <= set(RECIPES[recipe].systems), f"{recipe} has not all of what {name} needs"


def test_a_grown_model_has_the_deep_one_as_its_nearest_baseline() -> None:
    assert list(baselines_of("multi30k", system_of("multi30k", "sdt"))) == ["deep", "transformer"]
    assert list(baselines_of("multi30k", system_of("multi30k", "transformer"))) == []


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What tells the languages of a data folder."""
    folder = tmp_path_factory.mktemp("data-bin")
    (folder / "train.en-de.en.idx").touch()
    return folder


def _given(recipe: str, system: System, data: Path, machine: Machine, **environment: str) -> list[str]:
    return training_options(RECIPES[recipe], system, data, Path("run"), machine, environment)


def _parsed(given: list[str]) -> Namespace:
    """What fairseq understands, with a model's own defaults where neither options nor architecture say anything.

    For our families their own checks of values are part of it.
    """
    parsed: Namespace = options.parse_args_and_arch(options.get_training_parser(), given)
    if stages := getattr(parsed, "growth_stages", None):
        # The task sets the depth before it builds the model.
        last = int(re.findall(r"(\d+):", stages)[-1])
        assert getattr(parsed, "encoder_layers", None) in (None, last)
        parsed.encoder_layers = last
    config = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY[parsed.arch])
    if config is not None:  # fairseq's own set all defaults with the architecture
        assert issubclass(config, EncoderDecoderConfig)
        for name, value in vars(config.complete(parsed)).items():
            setattr(parsed, name, value)
    return parsed


def _depths(recipe: str, name: str) -> tuple[int, int]:
    """The layers of encoder and decoder, from a system's name."""
    if recipe in ("multi30k", "tatoeba_de_en"):
        shallow, deep = (4, 12) if recipe == "multi30k" else (3, 9)
        return deep if name in ("deep", "sdt") else shallow, shallow
    found = [int(number) for number in re.findall(r"_(\d+)l(?=_|$)", name)]
    if not found:
        return 6, 6
    if "sdt" in name or "rpr" in name or name.startswith("deep"):
        return found[0], 6
    return found[0], found[-1]


@pytest.mark.parametrize("recipe", RECIPES)
def test_fairseq_takes_all_options(data: Path, recipe: str) -> None:
    """Not one is unknown or refused, and the model has the layers that its name says."""
    for name in RECIPES[recipe].systems:
        system = system_of(recipe, name)
        parsed = _parsed(_given(recipe, system, data, Machine(gpus=0, processes=1)))
        assert (parsed.encoder_layers, parsed.decoder_layers) == _depths(recipe, name), name
        assert parsed.arch == system.arch
        assert parsed.share_all_embeddings or name.startswith("mute"), name
        assert parsed.save_dir == "run/checkpoints"
        assert parsed.label_smoothing == 0.1
        if system.stages:
            assert_stages(parsed, system, recipe, name)


def assert_stages(parsed: Namespace, system: System, recipe: str, name: str) -> None:
    plan = parse_stages(
        parsed.growth_stages, strategy=parsed.growth_strategy, block_size=getattr(parsed, "encoder_block_size", 0)
    )
    assert plan.depths[-1] == parsed.encoder_layers
    assert parsed.task.endswith("_layer_growth")
    assert (parsed.lr_scheduler == "inverse_sqrt_restart") == (name != "sdt_rpr_48l_no_restart")
    # The stages of 48 layers are published: 21 epochs; English-French has eight times as many updates in each.
    expected = {"wmt14_en_de": 21, "wmt14_en_fr": 9}.get(recipe)
    assert plan.length == expected, name
    if recipe == "wmt14_en_de" and name in ("sdt_48l", "sdt_rpr_48l"):
        assert [(stage.layers, stage.length) for stage in plan.stages] == [
            (6, 2), (12, 2), (18, 2), (24, 2), (30, 2), (36, 3), (42, 3), (48, 5)
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("recipe", "name", "expected"),
    [
        ("wmt14_en_de", "depthwise_lstm_base", {
            "lr": [4.94e-4], "warmup_updates": 8000, "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-9, "dropout": 0.1,
            "max_update": 100_000, "keep_interval_updates": 5, "save_interval_updates": 1500,
        }),
        ("wmt14_en_de", "transformer_base", {"lr": [4.94e-4], "dropout": 0.1, "max_update": 100_000}),
        ("wmt14_en_de", "depthwise_lstm_big", {
            "lr": [3.49e-4], "dropout": 0.3, "max_update": 300_000, "keep_interval_updates": 20,
        }),
        ("wmt14_en_de", "transformer_big", {"lr": [3.49e-4], "dropout": 0.3}),
        ("wmt14_en_fr", "depthwise_lstm_big", {"lr": [3.49e-4], "dropout": 0.1}),
        ("wmt14_en_fr", "transformer_big", {"dropout": 0.1}),
        ("wmt14_en_de", "mute_sequential", {
            "lr": [3.49e-4], "warmup_updates": 16_000, "adam_betas": "(0.9, 0.998)", "adam_eps": 1e-9, "dropout": 0.2,
            "attention_dropout": 0.0, "max_update": 300_000,
            "criterion": "label_smoothed_cross_entropy_with_auxiliary",
        }),
        ("wmt18_zh_en", "mute_sequential", {"lr": [3.49e-4], "dropout": 0.1, "attention_dropout": 0.0}),
        ("wmt14_en_de", "deep_48l", {
            "lr": [0.002], "warmup_updates": 16_000, "adam_betas": "(0.9, 0.997)", "adam_eps": 1e-8, "dropout": 0.1,
            "attention_dropout": 0.1, "activation_dropout": 0.1, "max_update": 50_000,
            "encoder_normalize_before": True,
        }),
        ("wmt14_en_fr", "deep_48l", {"max_update": 150_000}),
        ("wmt14_en_de", "sdt_rpr_48l", {
            "lr": [0.002], "warmup_updates": 8000, "dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1,
            "keep_last_epochs": 5,
        }),
        ("opus100", "depthwise_lstm_base", {
            "lr": [6.99e-4], "warmup_updates": 4000, "max_update": 500_000, "encoder_langtok": "tgt",
            "sampling_method": "concat",
        }),
    ],
)  # fmt: skip
def test_settings_of_the_papers(data: Path, recipe: str, name: str, expected: dict[str, object]) -> None:
    parsed = _parsed(_given(recipe, system_of(recipe, name), data, Machine(gpus=0, processes=1)))
    found = {option: getattr(parsed, option) for option in expected}
    assert [float(f"{found['lr'][0]:.3g}")] == expected["lr"] if "lr" in expected else True
    assert {**found, "lr": None} == {**expected, "lr": None}


@pytest.mark.parametrize(("name", "tokens"), [("depthwise_lstm_base", 25_000), ("deep_48l", 65_536), ("mute", 16_384)])
@pytest.mark.parametrize("gpus", [1, 3, 8])
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_batch_is_the_papers_on_any_machine(data: Path, name: str, tokens: int, gpus: int, nodes: int) -> None:
    machine = Machine(gpus, gpus, nodes, rank=nodes - 1, address="node0", precision=("--bf16",))
    parsed = _parsed(_given("wmt14_en_de", system_of("wmt14_en_de", name), data, machine, MAX_TOKENS="4096"))
    [update_freq] = parsed.update_freq
    rest = parsed.max_tokens * update_freq * machine.world - tokens
    assert 0 <= rest < update_freq * machine.world
    assert parsed.max_tokens <= 4096
    assert parsed.bf16
    assert not parsed.cpu
    assert parsed.distributed_world_size == (gpus if nodes == 1 else max(1, _there()))


def _there() -> int:
    import torch

    return torch.cuda.device_count()
