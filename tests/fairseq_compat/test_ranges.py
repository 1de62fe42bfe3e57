"""Numbers without a meaning are refused; those that fairseq gives its options are valid."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
from fairseq import options as options_of_fairseq
from fairseq.dataclass import configs
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY

from fairseq_compat import UserError
from fairseq_compat.ranges import RANGES, RANGES_OF_SCHEDULERS, SEVERAL_NUMBERS, require_ranges

#: Parts of fairseq for speech and for data that is made up, of which the pages claim nothing.
NOT_CLAIMED = re.compile("audio|hubert|speech|wav2vec|ctc|tacotron|ulm|simul|dummy|latency|^model$")

#: Options with numbers of any size, or whose number is checked together with another option.
WITHOUT_RANGE = {
    *("num_shards", "shard_id", "upsample_primary", "device_id", "distributed_num_procs"),
    *("num_classes", "init_token", "separator_token", "max_positions"),  # of tasks that classify
    *("pad", "eos", "unk", "pipeline_chunks"),  # without effect
    *("min_params_to_wrap", "base_shuffle"),
    *("character_embedding_dim", "char_embedder_highway_layers"),  # of --char-inputs, which no task provides
}


def numeric_options() -> dict[str, list[Any]]:
    """Return each numeric option that fairseq declares in a dataclass, and its defaults."""
    declared = [value for value in vars(configs).values() if dataclasses.is_dataclass(value)]
    registries = [TASK_DATACLASS_REGISTRY, MODEL_DATACLASS_REGISTRY]
    registries += [registry["dataclass_registry"] for registry in REGISTRIES.values()]
    for registry in registries:
        for name, value in registry.items():
            if value.__module__.startswith("fairseq.") and not NOT_CLAIMED.search(name):
                declared.append(value)
    defaults: dict[str, list[Any]] = {}
    for value in declared:
        for field in dataclasses.fields(value):
            if re.search(r"\b(int|float)\b", str(field.type)):
                defaults.setdefault(field.name, []).append(field.default)
    return defaults


def test_every_number_of_fairseq_has_a_range() -> None:
    names = numeric_options().keys() - SEVERAL_NUMBERS.keys()
    assert names - RANGES.keys() == WITHOUT_RANGE


def test_defaults_are_valid() -> None:
    for name, defaults in numeric_options().items():
        for default in defaults:
            if isinstance(default, (int, float)):
                require_ranges({name: default})


@pytest.mark.parametrize("name", RANGES)
def test_numbers_at_the_ends_of_a_range(name: str) -> None:
    valid = RANGES[name]
    for number in (valid.lowest, valid.highest, valid.unset):
        if number is not None and math.isfinite(number) and number != valid.excluded:
            require_ranges({name: number})
            require_ranges({name: [number]})
    for number in (math.nan, math.inf, -math.inf, valid.lowest - 3, valid.highest + 3, valid.excluded):
        if number is not None:
            with pytest.raises(UserError, match=f"--{name.replace('_', '-')} "):
                require_ranges({name: number})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--adam-betas", "(0.9,)"),
        ("--adam-betas", "(0.9,"),
        ("--adam-betas", "0.9"),
        ("--adam-betas", "('a','b')"),
        ("--adam-betas", "(0.9,1)"),
        ("--adam-betas", "(0.9,nan)"),
        ("--encoder-layers-to-keep", "a"),
        ("--encoder-layers-to-keep", "0,0"),
        ("--encoder-layers-to-keep", "-1"),
        ("--decoder-layers-to-keep", "0;2"),
        ("--keep-last-epochs", "-3"),
        ("--clip-norm", "inf"),
    ],
)
def test_a_training_is_refused(option: str, value: str) -> None:
    words = ["data", "--arch", "transformer", "--optimizer", "adam", f"{option}={value}"]
    with pytest.raises(UserError, match=option):
        options_of_fairseq.parse_args_and_arch(options_of_fairseq.get_training_parser(), words)


@pytest.mark.parametrize("value", ["2.5", "1,0.5"])
def test_a_list_of_whole_numbers(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "--arch", "transformer", "--update-freq", value]
    with pytest.raises(SystemExit):
        options_of_fairseq.parse_args_and_arch(options_of_fairseq.get_training_parser(), words)
    assert f"--update-freq: {value} " in capsys.readouterr().err


@pytest.mark.parametrize("key", ["lr_scheduler", "_name"])  # of a command line, and of a configuration
def test_a_scheduler_needs_some_updates(key: str) -> None:
    for scheduler, ranges in RANGES_OF_SCHEDULERS.items():
        for name in ranges:
            require_ranges({key: scheduler, name: 1})
            require_ranges({key: "fixed", name: 0})
            with pytest.raises(UserError, match=name.replace("_", "-")):
                require_ranges({key: scheduler, name: 0})


@pytest.mark.parametrize("value", ["(0.9, 0.98)", "[0, 0.5]", "0.9, 0.98", (0.9, 0.98), [0.9, 0.98]])
def test_two_numbers_in_an_option(value: Any) -> None:
    require_ranges({"adam_betas": value})
