"""Numbers of options: what is refused, with the option, the value and the range, and that no default is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest
from fairseq import options as fairseq_options
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq_cli import preprocess, score

import fairseq_depthwise  # noqa: F401  # registers its options
from fairseq_compat.commands.ranges import RANGES, check_number, check_options
from fairseq_compat.errors import UserError

PARSERS = {
    "train": fairseq_options.get_training_parser,
    "generate": fairseq_options.get_generation_parser,
    "interactive": fairseq_options.get_interactive_generation_parser,
    "validate": fairseq_options.get_validation_parser,
    "eval-lm": fairseq_options.get_eval_lm_parser,
}
BASICS = {
    "validate": ["data", "--task", "translation", "--path", "model.pt"],
    "train": ["data", "--arch", "mute_transformer"],
}


def parse(command: str, *given: str) -> Any:
    parser = PARSERS[command]()
    basics = BASICS.get(command, ["data", "--path", "model.pt"])
    return fairseq_options.parse_args_and_arch(parser, [*basics, *given])


@pytest.mark.parametrize(
    ("command", "given", "named"),
    [
        ("train", "--lr=-1", "--lr -1 "),
        ("train", "--lr=0.1,-2", "--lr -2 "),
        ("train", "--update-freq=0", "--update-freq 0 "),
        ("train", "--clip-norm=nan", "--clip-norm nan "),
        ("train", "--dropout=nan", "--dropout nan "),
        ("train", "--unit-mask-rate=nan", "--unit-mask-rate nan "),
        ("train", "--criterion=label_smoothed_cross_entropy --label-smoothing=2", "--label-smoothing 2 "),
        ("train", "--optimizer=adam --adam-betas=(1,2,3)", "--adam-betas (1,2,3) "),
        ("train", "--optimizer=adam --adam-betas=(0.9,1)", "--adam-betas (0.9,1) "),
        ("train", "--save-interval-updates=-1", "--save-interval-updates -1 "),
        ("train", "--encoder-layers=1000000000", "--encoder-layers 1000000000 "),
        ("train", "--patience=-7", "--patience -7 "),
        ("train", "--seed=-1", "--seed -1 "),
        ("train", f"--max-update=1{'0' * 400}", "--max-update with more than 30 digits "),
        ("train", "--stop-time-hours=inf", "--stop-time-hours inf "),
        ("train", "--num-shards=2 --shard-id=2", "--shard-id 2 is out of range; it must be below --num-shards 2"),
        ("generate", "--beam=0", "--beam 0 "),
        ("generate", "--beam=2 --nbest=9", "--nbest 9 is out of range; it must be at most --beam 2"),
        ("generate", "--lenpen=inf", "--lenpen inf is out of range; it must be finite"),
        ("generate", "--max-tokens=0", "--max-tokens 0 "),
        ("generate", "--required-batch-size-multiple=0", "--required-batch-size-multiple 0 "),
        ("generate", "--temperature=0", "--temperature 0 is out of range; it must be above 0"),
        ("generate", "--sampling-topp=7", "--sampling-topp 7 is out of range; it must be at least 0 and at most 1"),
        ("interactive", "--buffer-size=-1", "--buffer-size -1 "),
        ("validate", "--num-workers=-1", "--num-workers -1 "),
        ("eval-lm", "--batch-size=0", "--batch-size 0 "),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_refused_by_every_command(command: str, given: str, named: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(command, *given.split())
    assert str(refused.value).startswith(named)


@pytest.mark.parametrize("command", PARSERS)
def test_defaults_are_in_range(command: str) -> None:
    options = parse(command)
    assert RANGES.keys() & vars(options).keys()


def _defaults(dataclass: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(dataclass):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if dataclasses.is_dataclass(default):
            yield from _defaults(default)
        else:
            yield field.name, default


def test_defaults_of_all_configurations_and_presets_are_in_range() -> None:
    registries = [TASK_DATACLASS_REGISTRY, MODEL_DATACLASS_REGISTRY]
    registries += [registry["dataclass_registry"] for registry in REGISTRIES.values()]
    names = set()
    for dataclass in [FairseqConfig, *(one for registry in registries for one in registry.values())]:
        for name, value in _defaults(dataclass):
            check_number(name, value)
            names.add(name)
    ours = [arch for arch in ARCH_CONFIG_REGISTRY if arch.startswith(("depthwise", "sdt", "mute"))]
    for arch in ours:
        preset = fairseq_options.argparse.Namespace()
        ARCH_CONFIG_REGISTRY[arch](preset)
        check_options(vars(preset))
    assert len(ours) > 10
    assert len(RANGES.keys() & names) > 100


def test_what_is_no_number_is_left_alone() -> None:
    for value in (None, True, "[(512, 3)] * 20", "${optimization.lr}", [], {"a": 1}):
        check_number("encoder_layers", value)
    check_options({"patience": -1, "sampling_topp": -1.0, "unknown": -5, "adam_betas": [0.9, 0.98]})
    with pytest.raises(UserError, match="--unknown nan is out of range"):
        check_number("unknown", math.nan)


def test_preprocessing_and_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their options are read in ways of their own."""
    with pytest.raises(UserError, match="--order 0 "):
        score.get_parser().parse_args(["--ref", "a", "--order", "0"])
    monkeypatch.setattr("sys.argv", ["fairseq-preprocess", "--workers", "0"])
    with pytest.raises(UserError, match="--workers 0 "):
        preprocess.main(fairseq_options.get_preprocessing_parser().parse_args())


def test_help_shows_the_ranges() -> None:
    parser = PARSERS["generate"]()
    with pytest.raises(SystemExit):
        fairseq_options.parse_args_and_arch(parser, ["data", "--nonsense"])
    assert "(at least 1 and at most 10000)" in parser.format_help()
