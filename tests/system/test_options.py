"""Every option does what its help says, or is refused: each row of ``options.toml`` is tried, or names its test."""

from __future__ import annotations

import argparse
import functools
import importlib
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from many_languages import make_data
from training_states import logged

import fairseq_depthwise  # noqa: F401  # registers the models
from fairseq_compat import UserError, checkpoints
from fairseq_compat.unread_options import require_effects
from fairseq_depthwise import cli

RunCommand = Callable[..., CompletedProcess[str]]

ROOT = Path(__file__).parents[2]
tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("options.toml").read_text(encoding="utf-8"))
OURS: dict[str, Any] = TABLE.pop("ours")

#: Sentences of the corpus here, which is a part of the tests' small corpus.
SIZES = {"train": 120, "train1": 60, "valid": 24, "valid1": 16, "test": 16}

MODEL = ["--arch", "transformer", "--share-all-embeddings"]
for side in ("encoder", "decoder"):
    MODEL += [f"--{side}-layers", "1", f"--{side}-embed-dim", "8", f"--{side}-attention-heads", "1"]
    MODEL += [f"--{side}-ffn-embed-dim", "8"]
LEARNING = [
    "--cpu", "--optimizer", "adam", "--lr", "0.01", "--criterion", "cross_entropy", "--num-workers", "0",
    "--log-format", "json", "--log-interval", "1", "--max-tokens", "300", "--max-epoch", "2", "--dropout", "0.1",
]  # fmt: skip

#: Numbers of a log that no two runs have in common.
TIMES = ("wps", "ups", "wall", "train_wall")


# The table.


def options_of(parser: argparse.ArgumentParser, *, group: str | None = None) -> dict[str, list[str]]:
    """The first name of each option of a parser -> all of them; of one group, or of all others."""
    title = "Model-specific configuration"
    in_group = [action for part in parser._action_groups if part.title == title for action in part._group_actions]
    actions = in_group if group else [action for action in parser._actions if action not in in_group]
    return {action.option_strings[0]: list(action.option_strings) for action in actions if action.option_strings}


def parser_of(command: str, *words: str) -> argparse.ArgumentParser:
    """The parser of a command of fairseq, with what it adds for the words."""
    from fairseq import options

    make = {
        "train": options.get_training_parser,
        "generate": options.get_generation_parser,
        "interactive": options.get_interactive_generation_parser,
        "validate": options.get_validation_parser,
        "eval-lm": options.get_eval_lm_parser,
    }
    parser = make[command]()
    options.parse_args_and_arch(parser, ["data", *words])
    return parser


def options_of_section(section: str) -> dict[str, list[str]]:
    from fairseq import options
    from fairseq_cli import score

    if section == "models":
        found: dict[str, list[str]] = {}
        for family in ("depthwise_lstm", "sdt", "mute", "linearized"):
            found |= options_of(parser_of("train", "--arch", f"{family}_transformer"), group="model")
        parts = parser_of(
            "train", "--arch", "transformer", "--task", "translation_layer_growth", "--lr-scheduler",
            "inverse_sqrt_restart", "--criterion", "label_smoothed_cross_entropy_with_auxiliary",
        )  # fmt: skip
        known = options_of(parser_of("train", "--arch", "transformer"))
        return found | {name: names for name, names in options_of(parts).items() if name not in known}
    if section == "preprocess":
        return options_of(options.get_preprocessing_parser())
    if section == "score":
        return options_of(score.get_parser())
    if section in ("train", "transformer"):
        parser = parser_of("train", "--arch", "transformer", "--optimizer", "adam")
        return options_of(parser, group="model" if section == "transformer" else None)
    return options_of(parser_of(section))


def options_in(section: dict[str, Any]) -> list[str]:
    """The options that a section of the table is about."""
    refused = [words.split()[0] for words in section.get("refused", ())]
    elsewhere = [option for options in section.get("not_here", {}).values() for option in options]
    return [*section.get("runs", ()), *section.get("shown", ()), *refused, *elsewhere]


@pytest.mark.parametrize("section", list(TABLE))
def test_every_option_is_in_the_table(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fairseq"])
    assert sorted(options_in(TABLE[section])) == sorted(options_of_section(section))


def test_every_option_of_ours_is_in_the_table() -> None:
    (commands,) = cli.build_parser()._subparsers._group_actions  # type: ignore[union-attr]  # there are some
    for name, parser in commands.choices.items():  # type: ignore[union-attr,attr-defined]  # as above
        parser.command().add_to(parser)
        found = [option for option in options_of(parser) if option != "-h"]
        assert sorted(options_in(OURS.get(name, {}))) == sorted(found), name


def test_the_tests_of_the_table_exist() -> None:
    sections = [*TABLE.values(), *OURS.values()]
    for test in sorted({test for section in sections for test in section.get("shown", {}).values()}):
        path, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), test


@pytest.mark.parametrize("command", [name for name in TABLE if TABLE[name].get("refused")])
def test_what_has_no_effect_is_refused(command: str) -> None:
    for words in TABLE[command]["refused"]:
        with pytest.raises(UserError, match=re.escape(words.split()[0])):
            require_effects(command, words.split())
    require_effects(command, ["data", "--num-workers", "3"])


@pytest.mark.parametrize(
    ("option", "needed", "other"),
    [
        ("--slowmo-momentum 0.1", "--ddp-backend slowmo", "--ddp-backend legacy_ddp"),
        ("--use-sharded-state", "--ddp-backend=fully_sharded", "--ddp-backend=slowmo"),
        ("--sampling-temperature 2", "--sampling-method temperature", "--sampling-method concat"),
        ("--warmup-init-lr 1e-7", "--lr-scheduler inverse_sqrt", "--lr-scheduler cosine"),
        ("--t-mult 2", "--lr-period-updates 5", "--lr-scheduler cosine"),
        ("--phase-ratio (0.2,0.3,0.5)", "--max-update 9", "--max-epoch 9"),
    ],
)
def test_an_option_has_an_effect_with_the_value_that_it_needs(option: str, needed: str, other: str) -> None:
    require_effects("train", [*option.split(), *needed.split()])
    with pytest.raises(UserError, match=option.split()[0]):
        require_effects("train", [*option.split(), *other.split()])


@pytest.mark.parametrize(
    ("command", "words", "other"),
    [
        ("train", "--patience 2", "--disable-validation"),
        ("train", "--keep-best-checkpoints=2", "--disable-validation"),
        ("train", "--best-checkpoint-metric loss", "--disable-validation"),
        ("train", "--lr-scheduler reduce_lr_on_plateau", "--disable-validation"),
        ("train", "--keep-last-epochs 2", "--no-epoch-checkpoints"),
        ("train", "--keep-best-checkpoints 2", "--no-save"),
        ("preprocess", "--nwordstgt 9", "--only-source"),
        ("preprocess", "--validpref valid", "--dict-only"),
    ],
)
def test_an_option_that_has_no_effect_with_another(command: str, words: str, other: str) -> None:
    option = words.replace("=", " ").split()[0]
    require_effects(command, words.split())
    require_effects(command, [option, "-1", other])
    with pytest.raises(UserError, match=f"{option} .*{other}"):
        require_effects(command, [other, *words.split()])


def test_one_process_is_what_a_command_has() -> None:
    require_effects("generate", ["--distributed-world-size=1"])


# What runs.


class Places(SimpleNamespace):
    """Texts, data, and trained models of the commands here."""

    text: Path
    data: Path
    pieces: Path
    lm_data: Path
    model: Path
    lm: Path


@pytest.fixture(scope="module")
def places(run_command: RunCommand, copy_reverse_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Places:
    folder = tmp_path_factory.mktemp("options")
    text = folder / "text"
    text.mkdir()
    for language in ("src", "tgt"):
        lines = (copy_reverse_text / f"train.{language}").read_text(encoding="utf-8").splitlines(keepends=True)
        for part, size in SIZES.items():
            (text / f"{part}.{language}").write_text("".join(lines[:size]), encoding="utf-8")
            lines = lines[size:]
    words = [line.split() for line in (text / "train.src").read_text(encoding="utf-8").splitlines()]
    pairs = [" ".join(f"{number}-{number}" for number in range(len(line))) for line in words]
    (text / "train.align").write_text("".join(f"{line}\n" for line in pairs), encoding="utf-8")

    data, pieces, lm_data = folder / "data", folder / "pieces", folder / "lm-data"
    preprocess = ["fairseq-preprocess", "--joined-dictionary", "-s", "src", "-t", "tgt"]
    parts = ["--validpref", text / "valid", "--testpref", text / "test"]
    run_command(*preprocess, "--trainpref", text / "train", *parts, "--destdir", data)
    dictionary = data / "dict.src.txt"
    second = ["--srcdict", dictionary, "--trainpref", text / "train1", "--validpref", text / "valid1"]
    run_command(*preprocess, *second, "--destdir", pieces)
    for path in list(pieces.glob("*.src-tgt.*")):
        part, _, rest = path.name.partition(".")
        path.rename(pieces / f"{part}1.{rest}")
    shutil.copytree(data, pieces, dirs_exist_ok=True)
    run_command(
        "fairseq-preprocess", "--only-source", "--srcdict", dictionary, "--trainpref", text / "train.tgt",
        "--validpref", text / "valid.tgt", "--testpref", text / "test.tgt", "--destdir", lm_data,
    )  # fmt: skip
    model, lm = folder / "model", folder / "lm"
    saved = ["--no-epoch-checkpoints", "--disable-validation", "--save-dir"]
    wide = ["--encoder-embed-dim", 16, "--decoder-embed-dim", 16, "--dropout", 0.3]
    run_command("fairseq-train", data, *MODEL, *LEARNING, *wide, "--lr", 0.02, "--max-epoch", 12, *saved, model)
    run_command(
        "fairseq-train", lm_data, "--task", "language_modeling", "--arch", "transformer_lm", "--decoder-layers", 1,
        "--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 16, "--decoder-attention-heads", 2, "--cpu",
        "--optimizer", "adam", "--lr", 0.02, "--tokens-per-sample", 32, "--max-tokens", 512, "--max-epoch", 3,
        *saved, lm,
    )  # fmt: skip
    return Places(
        text=text, data=data, pieces=pieces, lm_data=lm_data,
        model=model / "checkpoint_last.pt", lm=lm / "checkpoint_last.pt",
    )  # fmt: skip


class Run:
    """A command that has run, and what it left."""

    def __init__(self, result: CompletedProcess[str], folder: Path) -> None:
        self.status, self.folder = result.returncode, folder
        self.output = result.stdout
        self.log = result.stdout + result.stderr

    @functools.cached_property
    def state(self) -> dict[str, Any]:
        (path, *_) = sorted(self.folder.glob("*.pt"), key=lambda path: path.name != "checkpoint_last.pt")
        return checkpoints.load(path)

    @property
    def training(self) -> list[dict[str, float]]:
        """The logged numbers of each update."""
        return [without_times(numbers) for numbers in logged(self.log)]

    @property
    def validation(self) -> list[dict[str, float]]:
        return [without_times(numbers) for part in ("valid", "test") for numbers in logged(self.log, part)]

    @property
    def parameters(self) -> torch.Tensor:
        values = [value.float().flatten() for name, value in sorted(self.state["model"].items()) if value.numel() > 1]
        return torch.cat(values)

    @property
    def average(self) -> torch.Tensor:
        extra = self.state["extra_state"]
        parts = [extra["ema"], extra.get("ema_fp32_params", {})]
        return torch.cat([value.float().flatten() for part in parts for _, value in sorted(part.items())])

    @property
    def rate(self) -> list[float]:
        return [numbers["lr"] for numbers in self.training]

    @property
    def record(self) -> dict[str, Any]:
        return dict(self.state["extra_state"]["belongs_to"])

    def lines(self, kind: str) -> list[list[str]]:
        """The fields of the lines of fairseq-generate or -interactive that begin with a letter, by number."""
        lines = [line.split("\t") for line in self.output.splitlines() if line.startswith(f"{kind}-")]
        return sorted(lines, key=lambda fields: int(fields[0][2:]))

    @property
    def hypotheses(self) -> list[str]:
        return [fields[-1] for fields in self.lines("H")]

    @property
    def scores(self) -> list[float]:
        return [float(fields[1]) for fields in self.lines("H")]

    @property
    def detokenized(self) -> list[str]:
        return [fields[-1] for fields in self.lines("D")]

    @property
    def order(self) -> list[str]:
        return re.findall(r"^H-(\d+)", self.output, re.MULTILINE)

    @property
    def perplexity(self) -> str:
        (number,) = re.findall(r"Loss \(base 2\): ([\d.]+)", self.log)
        return str(number)

    @property
    def word_probabilities(self) -> list[str]:
        return re.findall(r"\| (\d+ w\d+ \[-.*)", self.log)


def without_times(numbers: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if name.removeprefix("valid_") not in TIMES}


def differ(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.shape != other.shape or not torch.equal(one, other)
    return bool(one != other)


@pytest.fixture(scope="module")
def run(run_command: RunCommand, places: Places, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """``run(section, words, data)`` runs the command of a section of the table with the words."""
    sources = "".join((places.text / "test.src").read_text(encoding="utf-8").splitlines(keepends=True)[:5])

    def call(section: str, words: str, data: str = "data", *, resumed: bool = False) -> Run:
        folder = tmp_path_factory.mktemp("run")
        values = {"FOLDER": folder, "TEXT": places.text, "DATA": places.data, "MODEL": places.model}
        for name, value in values.items():
            words = words.replace(name, str(value))
        if section in ("train", "transformer"):
            command = ["fairseq-train", getattr(places, data), *MODEL, *LEARNING, "--save-dir", folder]
            if resumed:
                run_command(*command, "--max-update", 3)
        elif section == "validate":
            command = ["fairseq-validate", places.data, "--path", places.model, "--cpu", "--max-tokens", 300]
            command += ["--log-format", "json"]
        elif section == "eval-lm":
            command = ["fairseq-eval-lm", places.lm_data, "--path", places.lm, "--cpu", "--tokens-per-sample", 32]
        elif section == "preprocess":
            command = ["fairseq-preprocess", "-s", "src", "-t", "tgt", "--trainpref", places.text / "train"]
            command += ["--destdir", folder]
        else:
            command = [f"fairseq-{section}", places.data, "--path", places.model, "--cpu", "--beam", 3]
            command += ["--max-len-b", 12]
        stdin = sources if section == "interactive" else ""
        return Run(run_command(*command, *words.split(), stdin=stdin, check=False), folder)

    return call


@pytest.fixture(scope="module")
def base(run: Callable[..., Run]) -> Callable[..., Run]:
    """A run that others are compared with, made once."""
    return functools.cache(run)


ROWS = [(section, option, row) for section in TABLE for option, row in TABLE[section].get("runs", {}).items()]


@pytest.mark.parametrize(
    ("section", "option", "row"),
    [
        pytest.param(*row, marks=() if row[2].get("default") else pytest.mark.long, id=f"{row[0]} {row[1]}")
        for row in ROWS
    ],
)
def test_an_option_has_its_effect(
    section: str, option: str, row: dict[str, Any], run: Callable[..., Run], base: Callable[..., Run]
) -> None:
    data, is_resumed = row.get("data", "data"), row.get("resumed", False)
    result = run(section, row["words"], data, resumed=is_resumed)
    if row.get("changes") == ["refusal"]:
        last = result.log.splitlines()[-1]
        assert result.status == 1, result.log[-2000:]
        assert "traceback" not in last
        return
    assert result.status == 0, result.log[-2000:]
    without = base(section, row.get("base", ""), data, resumed=is_resumed)
    assert without.status == 0, without.log[-2000:]
    for part in row.get("changes", ()):
        assert differ(getattr(result, part), getattr(without, part)), part
    if row.get("only"):
        assert not differ(result.training, without.training)
    if "log" in row:
        assert re.search(row["log"], result.log)
        assert not re.search(row["log"], without.log)
    if "files" in row:
        assert sorted(path.stem for path in result.folder.glob("*.pt")) == sorted(row["files"].split())
    if "file" in row:
        assert list(result.folder.glob(row["file"]))
        assert not list(without.folder.glob(row["file"]))
    if "updates" in row:
        assert checkpoints.updates_in(result.state) == row["updates"]
    if "check" in row:
        CHECKS[row["check"]](result, without)


# Mistakes that no row above has.

#: The configuration of fairseq-hydra-train that is right; a mistake replaces one of its lines.
CONFIGURATION = """
common: {cpu: true}
task: {_name: translation, data: DATA}
model: {_name: transformer_tiny}
criterion: {_name: cross_entropy}
optimizer: {_name: adam}
lr_scheduler: {_name: fixed}
dataset: {max_tokens: 300, num_workers: 0}
optimization: {max_update: 1, lr: [0.001]}
checkpoint: {save_dir: run, no_save: true}
"""


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("optimization: {max_updates: 1, lr: [0.001]}", "optimization.max_updates"),
        pytest.param("optimization: {max_update: one, lr: [0.001]}", "--max-update", marks=pytest.mark.long),
        pytest.param("optimization: {max_update: 1, clip_norm: -1}", "--clip-norm", marks=pytest.mark.long),
        pytest.param("task: {_name: translation, date: DATA}", "--date", marks=pytest.mark.long),
        pytest.param("task: {_name: translation}", "task.data", marks=pytest.mark.long),
        ("model: {_name: transformer_tinny}", "transformer_tinny"),
        pytest.param("optimizer:", "--optimizer", marks=pytest.mark.long),
        pytest.param("criterion: [", "small.yaml", marks=pytest.mark.long),
    ],
)
def test_a_mistake_in_a_configuration_is_named(
    line: str, named: str, refusal: Callable[..., str], places: Places, tmp_path: Path
) -> None:
    part = line.partition(":")[0]
    text = re.sub(rf"^{part}: .*", lambda _: line, CONFIGURATION, flags=re.MULTILINE)
    (tmp_path / "small.yaml").write_text(text.replace("DATA", str(places.data)), encoding="utf-8")
    sentence = refusal("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "small", cwd=tmp_path)
    assert named in sentence


@pytest.mark.parametrize(
    ("words", "named"),
    [
        pytest.param("", "--lang-pairs", marks=pytest.mark.long),
        ("--lang-pairs en-l00,", "''"),
        pytest.param("--lang-pairs en-l00 --langs en,l01", "l00", marks=pytest.mark.long),
        pytest.param("--lang-pairs l00-l01", "l00-l01", marks=pytest.mark.long),
        ("--lang-pairs en-l00,l00-en --sampling-weights {'main:en-l00':1}", "main:l00-en"),
        pytest.param("--lang-pairs en-l00 --sampling-weights {'main:en-l00':'x'}", "'x'", marks=pytest.mark.long),
        ("--lang-pairs en-l00 --sampling-weights-from-file WEIGHTS", "WEIGHTS"),
        pytest.param("--lang-pairs en-l00 --sampling-method RoundRobin", "RoundRobin", marks=pytest.mark.long),
        pytest.param(
            "--lang-pairs en-l00 --sampling-method temperature --sampling-temperature 0",
            "--sampling-temperature 0",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_mistake_in_languages_is_named(
    words: str, named: str, refusal: Callable[..., str], many_languages: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "weights"
    weights.write_text("{", encoding="utf-8")
    given = [word.replace("WEIGHTS", str(weights)) for word in words.split()]
    task = ["--task", "translation_multi_simple_epoch"]
    sentence = refusal("fairseq-train", many_languages, *task, *MODEL, *LEARNING, "--no-save", *given)
    assert named.replace("WEIGHTS", str(weights)) in sentence


@pytest.fixture(scope="module")
def many_languages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("languages") / "data", 2)


def test_a_model_has_to_be_named(refusal: Callable[..., str], places: Places) -> None:
    assert "--arch" in refusal("fairseq-train", places.data, *LEARNING)


# What must be true of a run, beside its being another one.


def clipped(result: Run, without: Run) -> None:
    """fairseq logs the norm before clipping, and the share of updates that were clipped."""
    assert all(numbers["clip"] == 100 and numbers["gnorm"] > 0.1 for numbers in result.training)


def annealed(result: Run, without: Run) -> None:
    assert result.rate[-2:] == pytest.approx([0.001, 0.001])
    assert result.rate[0] == without.rate[0] == 0.01


def two_rates(result: Run, without: Run) -> None:
    assert list(dict.fromkeys(result.rate)) == [0.02, 0.005]


def warmed_up(result: Run, without: Run) -> None:
    """The rate that is logged with an update is that of the next."""
    expected = [0.01 * min(1, (number + 1) / 4) for number in range(1, len(result.rate) + 1)]
    assert result.rate == pytest.approx(expected, rel=1e-3)


def inverse_square_root(result: Run, without: Run) -> None:
    expected = [0.01 * (4 / number) ** 0.5 for number in range(4, len(result.rate) + 1)]
    assert result.rate[3:] == pytest.approx(expected, rel=0.01)


def halves_the_first_epoch(result: Run, without: Run) -> None:
    whole = len(without.training) // 2
    assert len(result.training) == -(-whole // 2) + whole


def whole_updates(result: Run, without: Run) -> None:
    assert len(without.training) - len(result.training) == 2


def every_third_is_logged(result: Run, without: Run) -> None:
    updates = [numbers["num_updates"] for numbers in result.training]
    assert updates == [numbers["num_updates"] for numbers in without.training if numbers["num_updates"] % 3 == 0]


def no_optimizer_state(result: Run, without: Run) -> None:
    assert result.state.get("last_optimizer_state") is None
    assert without.state["last_optimizer_state"]


def an_average(result: Run, without: Run) -> None:
    assert result.state["extra_state"]["ema"].keys() == result.state["model"].keys()


def trains_420_sentences(result: Run, without: Run) -> None:
    """A piece of 120 three times and one of 60 once, and of the run without the option both once."""
    for trained, expected in ((result, 420), (without, 180)):
        first_epoch = trained.training[: len(trained.training) // 2]
        assert sum(numbers["bsz"] for numbers in first_epoch) == pytest.approx(expected, rel=0.02)


def validates_2_batches(result: Run, without: Run) -> None:
    """Batches of 5 sentences; the last of 24 has fewer."""
    assert result.validation[0]["valid_bsz"] == 5
    assert without.validation[0]["valid_bsz"] == 4.8


def validates_40_sentences(result: Run, without: Run) -> None:
    mean = result.validation[0]["valid_bsz"]
    assert (40 / mean) == pytest.approx(round(40 / mean), abs=0.01)


def at_most_4_words(result: Run, without: Run) -> None:
    assert max(len(text.split()) for text in result.hypotheses) == 4


def at_least_10_words(result: Run, without: Run) -> None:
    assert min(len(text.split()) for text in result.hypotheses) >= 10


def no_longer_than_the_source(result: Run, without: Run) -> None:
    """Batches are of sources of similar length, whose longest counts, with its end."""
    longest = max(len(fields[-1].split()) + 1 for fields in result.lines("S"))
    assert max(len(text.split()) for text in result.hypotheses) <= longest


def as_long_as_the_source(result: Run, without: Run) -> None:
    sources = [len(fields[-1].split()) for fields in result.lines("S")]
    assert [len(text.split()) for text in result.hypotheses] == pytest.approx(sources, abs=1)


def two_of_each(result: Run, without: Run) -> None:
    assert len(result.hypotheses) == 2 * len(without.hypotheses)
    assert result.hypotheses[::2] == without.hypotheses


def three_the_same(result: Run, without: Run) -> None:
    texts = result.hypotheses
    triples = [set(texts[first : first + 3]) for first in range(0, len(texts), 3)]
    assert sum(len(triple) == 1 for triple in triples) > len(triples) * 0.7


def no_word_twice(result: Run, without: Run) -> None:
    assert all(len(set(text.split())) == len(text.split()) for text in result.hypotheses)


def sums_of_positions(result: Run, without: Run) -> None:
    sums = [sum(map(float, fields[-1].split())) for fields in result.lines("P")]
    assert result.scores == pytest.approx(sums, abs=2e-3)


def translates_24(result: Run, without: Run) -> None:
    assert len(result.hypotheses) == 24


def some_are_left_out(result: Run, without: Run) -> None:
    left = {fields[0] for fields in without.lines("S")} - {fields[0] for fields in result.lines("S")}
    sources = {fields[0]: fields[-1].split() for fields in without.lines("S")}
    assert left == {number for number, words in sources.items() if len(words) > 4}


def hypotheses_are_references(result: Run, without: Run) -> None:
    assert result.hypotheses == [fields[-1] for fields in result.lines("T")]


def two_words_of_the_reference(result: Run, without: Run) -> None:
    references = [fields[-1].split()[:2] for fields in result.lines("T")]
    assert [text.split()[:2] for text in result.hypotheses] == references


def sources_of_3_words(result: Run, without: Run) -> None:
    cut = [" ".join(fields[-1].split()[:3]) for fields in without.lines("S")]
    assert [fields[-1] for fields in result.lines("S")] == cut


def unknown_words(result: Run, without: Run) -> None:
    assert {word for text in result.hypotheses for word in text.split()} == {"<unk>"}


def only_the_score(result: Run, without: Run) -> None:
    assert not result.lines("S")
    assert "BLEU4 = " in result.output


def same_hypotheses(result: Run, without: Run) -> None:
    assert result.hypotheses == without.hypotheses


def dictionary_sizes(folder: Path) -> dict[str, int]:
    """The sizes of dictionaries, with the four special symbols."""
    texts = {language: (folder / f"dict.{language}.txt").read_text() for language in ("src", "tgt")}
    return {language: 4 + len(text.splitlines()) for language, text in texts.items()}


def dictionary_of_the_data(result: Run, without: Run) -> None:
    assert min(dictionary_sizes(result.folder).values()) == 24


def one_dictionary(result: Run, without: Run) -> None:
    source, target = ((result.folder / f"dict.{language}.txt").read_text() for language in ("src", "tgt"))
    assert source == target


def at_most(name: str, most: int, result: Run, without: Run) -> None:
    assert max(numbers[name] for numbers in result.training) <= most


def size_is(language: str, size: int, result: Run, without: Run) -> None:
    assert dictionary_sizes(result.folder)[language] == size
    assert dictionary_sizes(without.folder)[language] != size


CHECKS: dict[str, Callable[[Run, Run], None]] = {
    check.__name__: check
    for check in (
        an_average, annealed, as_long_as_the_source, at_least_10_words, at_most_4_words, clipped,
        dictionary_of_the_data, every_third_is_logged, halves_the_first_epoch, hypotheses_are_references,
        inverse_square_root, no_longer_than_the_source, no_optimizer_state, no_word_twice, one_dictionary,
        only_the_score, same_hypotheses, some_are_left_out, sources_of_3_words, sums_of_positions, three_the_same,
        trains_420_sentences, translates_24, two_of_each, two_rates, two_words_of_the_reference, unknown_words,
        validates_2_batches, validates_40_sentences, warmed_up, whole_updates,
    )
} | {
    "at_most_100_tokens": functools.partial(at_most, "wpb", 100),
    "at_most_7_sentences": functools.partial(at_most, "bsz", 7),
    "source_of_8": functools.partial(size_is, "src", 8),
    "target_of_8": functools.partial(size_is, "tgt", 8),
    "source_of_64": functools.partial(size_is, "src", 64),
    "source_of_6": functools.partial(size_is, "src", 6),
    "target_of_6": functools.partial(size_is, "tgt", 6),
}  # fmt: skip
