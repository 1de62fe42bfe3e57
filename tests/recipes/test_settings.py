"""Every system's printed command, parsed by fairseq with all defaults, beside the settings of the papers.

``RULES`` is written from the papers' text and, where that is silent, the authors' programs; it shares no constant with
the recipes. A later rule overrides an earlier one. Deviations from a paper are on the page of the recipe.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from evaluate import baselines_of
from fairseq import options
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
from systems import DIFFERENCES, System
from train_system import all_commands, printed_command

import fairseq_depthwise  # noqa: F401  # registers architectures and options
from fairseq_compat import UserError
from fairseq_depthwise.growth.stages import parse_stages
from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from recipes import all_recipes, system_of

#: (recipes, systems, where it stands, settings): patterns of whole names; all papers' systems match some of them.
Rule = tuple[str, str, str, dict[str, Any]]

SMALL = "multi30k|tatoeba_de_en|mixed_de_en|hops"
_DEPTHWISE = r"transformer_(base|big|\d+l|big_12l_6l)|depthwise_.*"
_SDT = r"pre_norm_.*|deep_.*|dlcl_.*|sparse_.*|sdt_.*|stack_12l|reg_6l"
_WMT = r"wmt14_en_de|wmt14_en_fr|wmt15_cs_en"

BASE = {"width": 512, "ffn": 2048, "heads": 8, "layers": (6, 6)}
BIG = {"width": 1024, "ffn": 4096, "heads": 16}
PLAIN = {
    "positions": None, "label_smoothing": 0.1, "beam": 4, "lenpen": 0.6, "clip_norm": 0.0, "weight_decay": 0.0,
    "tied": "all",
}  # fmt: skip
NONE, KEY_8, KEY_16, BOTH_16 = None, (8, "key"), (16, "key"), (16, "key-value")

RULES: list[Rule] = [
    # "Rewiring the Transformer with Depth-Wise LSTMs".
    (_WMT, _DEPTHWISE, "section 3.1; Vaswani et al. 2017", {
        **PLAIN, **BASE, "norm": "post", "batch": 25_000, "counts": "target", "updates": 100_000,
        "lr": 512**-0.5 * 8000**-0.5, "warmup": 8000, "betas": "(0.9, 0.98)", "eps": 1e-9, "average": 5,
        "save": 1500, "dropout": (0.1, 0.1, 0.1),
    }),
    (_WMT, "depthwise_.*", "section 2", {"norm": "depth-wise"}),
    (_WMT, "depthwise_lstm_hidden1536", "Table 3 and its count", {"ffn": 1536}),
    (_WMT, r"transformer_(12|18|24)l", "section 3.4", {"norm": "pre"}),
    (_WMT, r".*_(3|12|18|24)l", "Table 6", {"layers": "name"}),
    (_WMT, r".*_big(_.*)?", "section 3.1; Vaswani et al. 2017", {
        **BIG, "updates": 300_000, "lr": 1024**-0.5 * 8000**-0.5, "average": 20,
    }),
    ("wmt14_en_de", r"(transformer|depthwise_lstm)_big(_.*)?", "v1, section 5.1", {"dropout": (0.3, 0.1, 0.1)}),
    (_WMT, r".*_big_12l_6l.*", "Table 6; program of Li et al. 2022a", {
        "layers": (12, 6), "positions": KEY_16, "batch": 65_536, "counts": "padded", "updates": 95_000, "lr": 0.002,
        "warmup": 16_000, "betas": "(0.9, 0.997)", "eps": 1e-8,
    }),
    (_WMT, "transformer_big_12l_6l", "Li et al. 2022a", {"norm": "pre"}),
    # "Shallow-to-Deep Training for Neural Machine Translation".
    (_WMT, _SDT, "section 5.2", {
        **PLAIN, **BASE, "norm": "pre", "batch": 65_536, "counts": "padded", "updates": 50_000, "lr": 0.002,
        "warmup": 16_000, "betas": "(0.9, 0.997)", "eps": 1e-8, "average": 5, "save": "epoch",
        "dropout": (0.1, 0.1, 0.1),
    }),
    (_WMT, "sdt_.*", "section 5.2", {"warmup": 8000}),
    (_WMT, r"(deep|sdt|dlcl|sparse)(_rpr|_big)*_\d+l.*|pre_norm_12l|stack_12l", "Tables 1 to 6", {"layers": "name, 6"}),
    (_WMT, r".*_rpr_.*", "section 5.2", {"positions": KEY_8}),
    ("wmt14_en_fr", _SDT, "section 5.2; saved more often than once an epoch", {"updates": 150_000, "save": 5000}),
    (_WMT, r"(pre_norm|deep|deep_rpr|sdt|sdt_rpr)_big.*", "section 5.2", BIG),
    ("wmt14_en_de", r"(pre_norm|deep|deep_rpr|sdt|sdt_rpr)_big.*", "section 5.2", {"dropout": (0.3, 0.1, 0.1)}),
    ("wmt14_en_de", "pre_norm_big", "36.05 hours of Table 1", {"updates": 100_000}),
    ("wmt14_en_de", "stack_12l", "section 6.3, which gives no number", {"updates": 100_000}),
    # "Multi-Unit Transformers for Neural Machine Translation".
    (".*", "mute.*", "section 4, appendix A", {
        **PLAIN, **BASE, "norm": "pre", "positions": BOTH_16, "batch": 16_384, "counts": "padded", "updates": 300_000,
        "lr": 512**-0.5 * 16_000**-0.5, "warmup": 16_000, "betas": "(0.9, 0.998)", "eps": 1e-9, "average": 0,
        "save": 5000, "best": "bleu", "valid": "valid",
    }),
    (r"wmt.*|nist_zh_en", "mute.*", "their counts", {"tied": "decoder"}),
    ("wmt14_en_de", "mute.*", "section 4, appendix A", {"dropout": (0.2, 0.0, 0.2), "valid": "valid1"}),
    ("wmt18_zh_en", "mute.*", "appendix A", {"dropout": (0.1, 0.0, 0.1)}),
    ("nist_zh_en", "mute.*", "section 4, appendix A", {"dropout": (0.4, 0.0, 0.4), "batch": 8192, "updates": 150_000}),
    (".*", "mute_baseline", "section 4", {"positions": NONE}),
    (".*", "mute_big", "section 4", {**BIG, "lr": 1024**-0.5 * 16_000**-0.5}),
    # OPUS-100: section 3.5 of the first paper; Zhang et al. (2020) and their program.
    ("opus100", ".*", "Zhang et al. 2020", {
        **PLAIN, **BASE, "norm": "post", "batch": 25_000, "counts": "padded", "updates": 500_000,
        "lr": 512**-0.5 * 4000**-0.5, "warmup": 4000, "betas": "(0.9, 0.98)", "eps": 1e-8, "average": 5, "save": 5000,
        "dropout": (0.1, 0.1, 0.1), "best": "loss",
    }),
    ("opus100", "depthwise_lstm_base", "section 2", {"norm": "depth-wise"}),
    ("opus100", "mute", "as in its paper", {"norm": "pre", "positions": BOTH_16}),
    ("opus100", "sdt_rpr_24l", "as in its paper", {"norm": "pre", "positions": KEY_8, "layers": (24, 6)}),
    # IWSLT14: examples/translation/README.md of fairseq.
    ("iwslt14_de_en", ".*", "fairseq's example", {
        **PLAIN, "weight_decay": 1e-4, "width": 512, "ffn": 1024, "heads": 4, "layers": (6, 6), "norm": "pre",
        "batch": 4096, "counts": "padded", "updates": 50_000, "lr": 5e-4, "warmup": 4000, "betas": "(0.9, 0.98)",
        "eps": 1e-8, "average": 0, "save": "epoch", "best": "bleu", "valid": "valid", "dropout": (0.3, 0.0, 0.0),
        "beam": 5, "lenpen": 1.0, "tied": "decoder",
    }),
    ("iwslt14_de_en", "transformer", "fairseq's example", {"norm": "post"}),
    ("iwslt14_de_en", "depthwise_lstm.*", "section 2", {"norm": "depth-wise"}),
    ("iwslt14_de_en", "mute.*", "presets", {"positions": BOTH_16}),
    ("iwslt14_de_en", "transformer_relative|deep.*|sdt", "presets", {"positions": KEY_8}),
    ("iwslt14_de_en", "deep.*|sdt", "names", {"layers": (12, 6)}),
    # Small corpora: the protocol in docs/results.md.
    (SMALL, ".*", "protocol", {
        **PLAIN, "width": 128, "ffn": 256, "heads": 4, "layers": (4, 4), "norm": "pre", "positions": KEY_8,
        "batch": 8192, "counts": "padded", "updates": 6000, "lr": 3e-3, "warmup": 1000, "betas": "(0.9, 0.98)",
        "eps": 1e-9, "average": 10, "save": 200, "patience": 10, "kept": 20, "valid": "valid", "beam": 5, "lenpen": 1.0,
        "best": "loss",
    }),
    ("mixed_de_en", ".*", "protocol", {**BASE, "updates": 12_000, "lr": 5e-4}),
    ("multi30k|mixed_de_en", ".*", "protocol", {"dropout": (0.3, 0.0, 0.0)}),
    ("tatoeba_de_en", ".*", "protocol", {"dropout": (0.1, 0.0, 0.0)}),
    ("multi30k|mixed_de_en", ".*_less_dropout", "protocol", {"dropout": (0.1, 0.0, 0.0)}),
    ("tatoeba_de_en", ".*_less_dropout", "protocol", {"dropout": (0.0333, 0.0, 0.0)}),
    (SMALL, "transformer(_post_norm|_less_dropout)?|depthwise_.*", "protocol", {"positions": NONE}),
    (SMALL, "transformer_post_norm", "protocol", {"norm": "post"}),
    (SMALL, "depthwise_.*", "section 2", {"norm": "depth-wise"}),
    ("multi30k|tatoeba_de_en", "deep.*|sdt.*", "protocol", {"layers": (12, 4)}),
    ("mixed_de_en", "deep.*|sdt.*", "protocol", {"layers": (18, 6)}),
    # A made corpus: 64 sentences of 34 words and an end in an update.
    ("hops", ".*", "recipes/hops/README.md", {
        "width": 64, "ffn": 128, "layers": (2, 1), "batch": 64 * 35, "updates": 6000, "lr": 1e-3,
        "dropout": (0.0, 0.0, 0.0), "patience": -1, "kept": 10, "beam": 1,
    }),
    ("hops", "deep.*|sdt.*", "recipes/hops/README.md", {"layers": (8, 1)}),
]  # fmt: skip

#: An epoch of each corpus in updates, by the papers' numbers of both.
EPOCH = {"wmt14_en_de": 50_000 / 21, "wmt14_en_fr": 150_000 / 9}
#: Target tokens of a batch by what --max-tokens counts, where there are no data to measure.
SHARE = 0.86
MACHINE = {"GPUS": "8", "MAX_TOKENS": "4096"}
#: Of the recipes that are made for it: their batches are too small for 8 processes.
CPU = {"GPUS": "0"}


def _parsed(given: list[str]) -> Namespace:
    """What fairseq understands, with a model's own defaults where neither options nor architecture say anything."""
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


def _settings(recipe: str, system: System, parsed: Namespace) -> dict[str, Any]:
    """What a command comes to, in the words of ``RULES``."""
    plan = _plan(parsed)
    updates: float = parsed.max_update
    if not updates:
        epochs = (plan.length if plan else None) or parsed.max_epoch
        updates = round(epochs * EPOCH.get(recipe, 1))
    depthwise = parsed.arch.startswith("depthwise")
    relative = getattr(parsed, "max_relative_positions", 0)
    pre = parsed.arch.startswith(("sdt", "mute")) or getattr(parsed, "encoder_normalize_before", False)
    return {
        "dropout": (parsed.dropout, parsed.attention_dropout, parsed.activation_dropout),
        "batch": parsed.max_tokens * parsed.update_freq[0] * _processes(parsed),
        "counts": "target" if system.training.target_tokens else "padded",
        "updates": updates,
        "lr": parsed.lr[0],
        "warmup": parsed.warmup_updates,
        "betas": parsed.adam_betas,
        "eps": parsed.adam_eps,
        "clip_norm": parsed.clip_norm,
        "weight_decay": parsed.weight_decay,
        "label_smoothing": parsed.label_smoothing,
        "positions": (relative, parsed.relative_position_terms) if relative else None,
        "norm": "depth-wise" if depthwise else "pre" if pre else "post",
        "layers": (parsed.encoder_layers, parsed.decoder_layers),
        "width": parsed.encoder_embed_dim,
        "ffn": parsed.depthwise_hidden_dim if depthwise else parsed.encoder_ffn_embed_dim,
        "heads": parsed.encoder_attention_heads,
        "tied": "all" if parsed.share_all_embeddings else "decoder" * parsed.share_decoder_input_output_embed,
        "average": system.training.average,
        "save": parsed.save_interval_updates or "epoch",
        "kept": parsed.keep_interval_updates,
        "patience": parsed.patience,
        "best": parsed.best_checkpoint_metric,
        "valid": parsed.valid_subset,
        "beam": all_recipes()[recipe].beam,
        "lenpen": all_recipes()[recipe].length_penalty,
    }


def _processes(parsed: Namespace) -> int:
    return 1 if parsed.cpu else parsed.distributed_world_size


def _plan(parsed: Namespace) -> Any:
    if not getattr(parsed, "growth_stages", None):
        return None
    return parse_stages(
        parsed.growth_stages, strategy=parsed.growth_strategy, block_size=getattr(parsed, "encoder_block_size", 0)
    )


def _expected(recipe: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for recipes, systems, _, settings in RULES:
        if re.fullmatch(recipes, recipe) and re.fullmatch(systems, name):
            found |= settings
    if isinstance(found.get("layers"), str):
        encoder = int(re.findall(r"(\d+)l(?=_|$)", name)[0])
        found["layers"] = (encoder, 6 if found["layers"] == "name, 6" else encoder)
    return found


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Namespace]:
    """Every system's printed command for 8 GPUs, or for a CPU, parsed; there is no data."""
    work = {"WORK": str(tmp_path_factory.mktemp("work") / "none")}
    found = {}
    for recipe in all_recipes():
        environment = work | (MACHINE if all_recipes()[recipe].needs_gpu else CPU)
        for name in all_recipes()[recipe].systems:
            command = printed_command(all_recipes()[recipe], name, system_of(recipe, name), environment)
            words = command[command.index("train") + 1 :]
            assert {"--dropout", "--attention-dropout", "--activation-dropout"} <= set(words), name
            found[recipe, name] = _parsed(words)
    assert not Path(work["WORK"]).exists()
    assert len(found) > 140
    return found


def test_settings_of_the_papers(commands: Mapping[tuple[str, str], Namespace]) -> None:
    for (recipe, name), parsed in commands.items():
        expected, found = _expected(recipe, name), _settings(recipe, system_of(recipe, name), parsed)
        assert expected, f"no rule for {recipe} {name}"
        batch = expected.pop("batch") / (SHARE if expected["counts"] == "target" else 1)
        assert 0 <= found["batch"] - batch < 8 * parsed.update_freq[0] + 1, (recipe, name, found["batch"])
        if parsed.max_update == 0:  # stages of whole epochs
            assert found.pop("updates") == pytest.approx(expected.pop("updates"), rel=1e-4), (recipe, name)
        assert found["lr"] == pytest.approx(expected.pop("lr"), rel=1e-4), (recipe, name)
        assert {key: found[key] for key in expected} == expected, (recipe, name)
        assert parsed.optimizer == "adam"
        assert parsed.criterion == "label_smoothed_cross_entropy_with_auxiliary"
        assert parsed.lr_scheduler == _scheduler(name, parsed)


def _scheduler(name: str, parsed: Namespace) -> str:
    restarts = _plan(parsed) is not None and not name.endswith("no_restart")
    return "inverse_sqrt_restart" if restarts else "inverse_sqrt"


def test_comparisons_are_fair(commands: Mapping[tuple[str, str], Namespace]) -> None:
    """Dropouts, batch, updates and positions are those of each baseline, but for what the system says itself."""
    for (recipe, name), parsed in commands.items():
        system = system_of(recipe, name)
        ours, allowed = _settings(recipe, system, parsed), set(system.differs)
        for place, baseline in enumerate(baselines_of(recipe, system)):
            other = system_of(recipe, baseline)
            theirs = _settings(recipe, other, commands[recipe, baseline])
            different = {key for key in DIFFERENCES if not _alike(ours[key], theirs[key])}
            assert different <= allowed, (recipe, name, baseline)
            if place == 0:
                assert different == allowed, f"{recipe} {name} names a difference that is none"
            allowed |= set(other.differs)


def _alike(one: Any, other: Any) -> bool:
    return bool(abs(one - other) <= 0.005 * abs(other)) if isinstance(one, int | float) else one == other


def test_growth(commands: Mapping[tuple[str, str], Namespace]) -> None:
    """Stages as the authors' program has them; at the end five checkpoints of the full depth for the mean."""
    for (recipe, name), parsed in commands.items():
        plan = _plan(parsed)
        if plan is None:
            continue
        assert parsed.task.endswith("_layer_growth")
        assert plan.depths[-1] == parsed.encoder_layers
        if not recipe.startswith("wmt14"):
            continue
        assert plan.length == (42 if name == "stack_12l" else 21 if recipe == "wmt14_en_de" else 9), name
        if recipe == "wmt14_en_de":
            assert plan.stages[-1].length >= parsed.keep_last_epochs == 5, name
        else:
            assert plan.stages[-1].length * EPOCH[recipe] >= 5 * parsed.save_interval_updates, name
        sizes = {6: (4096, 2), 24: (4096, 2), 30: (2731, 3), 36: (2731, 3), 42: (2048, 4), 48: (2048, 4)}
        for stage in plan.stages:
            if stage.layers in sizes:
                assert (stage.max_tokens, stage.update_freq) == sizes[stage.layers]
        if name in ("sdt_48l", "sdt_rpr_48l") and recipe == "wmt14_en_de":
            assert [(stage.layers, stage.length) for stage in plan.stages] == [
                (6, 2), (12, 2), (18, 2), (24, 2), (30, 2), (36, 3), (42, 3), (48, 5)
            ]  # fmt: skip


def test_what_rows_are_about(commands: Mapping[tuple[str, str], Namespace]) -> None:
    """The option that makes each row of an ablation, and one set of gates within a table."""
    found = {name: parsed for (recipe, name), parsed in commands.items() if recipe == "wmt14_en_de"}
    for name, option, value in (
        ("sdt_rpr_48l_random", "growth_strategy", "random"),
        ("sdt_rpr_48l_random_no_restart", "growth_strategy", "random"),
        ("sdt_rpr_48l_top", "growth_strategy", "top"),
        ("sdt_rpr_48l_interpolation", "growth_strategy", "interpolation"),
        ("sdt_rpr_48l_interval1", "encoder_block_size", 3),
        ("stack_12l", "growth_freeze", "copied"),
        ("stack_12l", "encoder_block_size", 0),
        ("reg_6l", "inter_similarity_weight", 1.0),
        ("depthwise_lstm_6l", "depthwise_gate_scope", "model"),
        ("depthwise_lstm_1layer", "depthwise_gate_scope", "model"),
        ("depthwise_lstm_hidden1536", "depthwise_gate_scope", "model"),
        ("depthwise_lstm_share_all", "depthwise_gate_scope", "model"),
        ("depthwise_lstm_base", "depthwise_gate_scope", "stack"),
        ("depthwise_lstm_concat", "depthwise_gate_scope", "stack"),
        ("depthwise_lstm_two_cells", "depthwise_gate_scope", "stack"),
        ("depthwise_lstm_12l", "depthwise_gate_scope", "stack"),
        ("depthwise_lstm_gelu", "depthwise_gate_scope", "stack"),
        ("depthwise_lstm_gelu_concat", "decoder_merge", "concat"),
        ("depthwise_lstm_gelu_share_all", "depthwise_hidden_activation", "gelu"),
        ("depthwise_lstm_big_gelu", "depthwise_hidden_activation", "gelu"),
        ("mute", "encoder_units", 4),
        ("mute_sequential", "unit_inputs", "identity,swap,mask,disorder"),
    ):
        assert getattr(found[name], option) == value, (name, option)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {"distributed_world_size": 1, "bf16": True, "cpu": False}),
        ({"GPUS": "8"}, {"distributed_world_size": 8, "bf16": True}),
        ({"GPUS": "8", "PRECISION": "fp16"}, {"fp16": True, "bf16": False}),
        ({"GPUS": "2", "PRECISION": "fp32"}, {"fp16": False, "bf16": False}),
        ({"GPUS": "0", "PROCESSES": "2"}, {"cpu": True, "bf16": False, "distributed_backend": "gloo"}),
        ({"GPUS": "0", "BF16": "1"}, {"cpu": True, "bf16": True}),
    ],
)
def test_machines(tmp_path: Path, environment: dict[str, str], expected: dict[str, object]) -> None:
    recipe, name = "wmt14_en_de", "sdt_24l"
    given = {**environment, "WORK": str(tmp_path)}
    command = printed_command(all_recipes()[recipe], name, system_of(recipe, name), given)
    parsed = _parsed(command[command.index("train") + 1 :])
    assert {option: getattr(parsed, option) for option in expected} == expected


def test_values_of_bf16(tmp_path: Path) -> None:
    given = {"WORK": str(tmp_path), "BF16": "yes"}
    with pytest.raises(UserError, match="BF16=yes"):
        printed_command(all_recipes()["multi30k"], "deep", system_of("multi30k", "deep"), given)


def test_the_folder_of_a_run_is_printed(tmp_path: Path) -> None:
    given = {"WORK": str(tmp_path), "RUN": "reverse"}
    command = printed_command(all_recipes()["multi30k"], "deep", system_of("multi30k", "deep"), given)
    assert command[command.index("--save-dir") + 1] == f"{tmp_path}/systems/reverse/checkpoints"
    folders = re.findall(r"--save-dir (\S+)", all_commands("multi30k", given))
    assert len({*folders}) == len(all_recipes()["multi30k"].systems)
