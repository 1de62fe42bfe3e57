"""Results on real text, in parts: each asks one question and answers it with a few short trainings.

Part "comparison": how does the depth-wise model train compared with stock fairseq's Transformer, and what does dropout
change? Part "forgetting": what do forget gates that start open do in a deeper one? Part "connections": what do other
connections over depth do? Part "analysis": what do the commands print that look at models and translations? Every
command is printed before it runs; what is finished is not repeated, and a training that was stopped goes on from its
checkpoint. Each part has a record, ``results_PART``. Trainings in full, with tuned rates and several seeds, are those
of ``recipes/sweep.py``.

    python benchmarks/results.py --corpus "$CORPORA/tatoeba-deen" --work runs/results
    python benchmarks/results.py --corpus "$CORPORA/tatoeba-deen" --work runs/results --part connections
    python benchmarks/results.py --corpus "$CORPORA/tatoeba-deen" --work runs/analysis --part analysis
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from growth_schedules import stages_text
from program import integer, make_parser, positive, run_program, use_threads
from record import finish, read_record, setup_of, write_record
from trainings import train_and_score, training, widths
from workplace import Workplace, add_text_options, find_languages, prepare

from fairseq_compat.files import copied_whole

#: Options: default and meaning; parts have further defaults of their own. Whole numbers have to be 1 or more.
OPTIONS: dict[str, tuple[int | float, str]] = {
    "threads": (1, "threads of PyTorch"),
    "seed": (1, "seed of every training"),
    "merges": (8000, "subword merges"),
    "heads": (4, "attention heads"),
    "layers": (3, "layers of encoder and of decoder; connections: of the decoder"),
    "width": (128, "width; the hidden width is four times that"),
    "updates": (1400, "updates of each training"),
    "warm-up": (400, "updates of warm-up"),
    "max-tokens": (2000, "tokens a batch"),
    "learning-rate": (1e-3, "peak learning rate"),
}


@dataclass(frozen=True)
class Part:
    """A question.

    Attributes:
        runs: folder -> program with the options in which the training differs from the others.
        defaults: of options, where they are others than usual.
        validations: of each training.
        repeated: runs that are trained with the two seeds after the given one, too.
    """

    runs: Mapping[str, str]
    defaults: Mapping[str, int | float] = field(default_factory=dict)
    validations: int = 4
    repeated: tuple[str, ...] = ()


_TRAIN = "fairseq-depthwise train data-bin --arch"
_HIDDEN = "--encoder-ffn-embed-dim {hidden} --decoder-ffn-embed-dim {hidden}"
_STOCK = "fairseq-train data-bin --arch transformer --encoder-normalize-before --decoder-normalize-before " + _HIDDEN
_DEPTHWISE = f"{_TRAIN} depthwise_lstm_transformer --depthwise-hidden-dim {{hidden}}"

#: Of the models of parts "forgetting" and "analysis", which are the same where their options are.
_SIX_LAYERS = {"layers": 6, "updates": 1000, "learning-rate": 2e-3}

_DEEP = f"{_TRAIN} sdt_transformer {_HIDDEN} --encoder-layers 12 --max-relative-positions 8 --encoder-block-size 0"


def _connected(name: str, more: str = "") -> str:
    return f"{_DEEP} --encoder-connection {name} --decoder-connection {name} {more}".rstrip()


COMPARISON, FORGETTING, CONNECTIONS, ANALYSIS = "comparison", "forgetting", "connections", "analysis"
PARTS = {
    COMPARISON: Part(
        {
            "stock": _STOCK,
            "lstm": _DEPTHWISE,
            "stock-dropout": f"{_STOCK} --dropout 0.3",
            "lstm-dropout": f"{_DEPTHWISE} --dropout 0.3",
        },
        {"updates": 1000},
    ),
    FORGETTING: Part(
        {
            "transformer": _STOCK,
            "depthwise": f"{_DEPTHWISE} --log-gates",
            **{f"forget{bias}": f"{_DEPTHWISE} --log-gates --depthwise-forget-bias {bias}" for bias in (1, 2)},
        },
        _SIX_LAYERS,
        validations=5,
    ),
    CONNECTIONS: Part(
        {
            **{name: _connected(name) for name in ("residual", "average", "attention", "value-residual", "hyper")},
            "attention-blocks": _connected("attention", "--encoder-block-size 4"),
            "hyper-manifold": _connected("hyper", "--hyper-manifold"),
            "scaled-norms": _connected("residual", "--norm-scaling"),
            # Whether a connection only makes up for a rate that is too low for a plain stack.
            "residual-rate2": _connected("residual", "--lr 0.002"),
            "attention-rate2": _connected("attention", "--lr 0.002"),
        },
        {"updates": 1000},
        repeated=("residual", "attention", "hyper"),
    ),
    ANALYSIS: Part(
        {
            "transformer": _STOCK,
            "depthwise": f"{_DEPTHWISE} --log-gates",
            "doubled": f"{_TRAIN} sdt_transformer {_HIDDEN} --encoder-block-size 3 --attention-dropout 0 "
            "--activation-dropout 0 --task translation_layer_growth --growth-stages {doubling} "
            "--lr-scheduler inverse_sqrt_restart",
        },
        _SIX_LAYERS,
        validations=5,
    ),
}

LAST = "checkpoint_last.pt"


def _outputs() -> dict[str, str]:
    checkpoints = " ".join(f"{name}/{LAST}" for name in PARTS[ANALYSIS].runs)
    generated = [f"{name}.generated" for name in PARTS[ANALYSIS].runs]
    translations = {
        output: f"fairseq-depthwise generate data-bin --path {name}/{LAST} --beam 4 --lenpen 0.6 --max-tokens 4000 "
        "--remove-bpe --cpu"
        for name, output in zip(PARTS[ANALYSIS].runs, generated, strict=True)
    }
    every, logs = " ".join(generated), " ".join(f"{name}.log" for name in PARTS[ANALYSIS].runs)
    return {
        "probe.txt": f"fairseq-depthwise probe transformer/{LAST} --compare depthwise/{LAST} --data data-bin "
        "--output probe --max-tokens-used 200000 --processes 2 --no-checkpoints",
        "similarity.txt": f"fairseq-depthwise similarity {checkpoints} --data data-bin --output similarity.svg --force",
        "gates.txt": f"fairseq-depthwise gates depthwise/{LAST} --data data-bin --output gates.svg --force",
        **translations,
        "sacrebleu.txt": f"fairseq-depthwise score --ref test.{{target}} --detokenize {{target}} {every}",
        **{
            f"{metric}.txt": f"fairseq-depthwise score --ref test.tok.{{target}} --metric {metric} depthwise.generated"
            for metric in ("tokenized", "compound-split")
        },
        "compare.txt": f"fairseq-depthwise compare --ref test.{{target}} --detokenize {{target}} {every}",
        "report.txt": f"fairseq-depthwise report {logs} --output report.html --force",
    }


#: File -> the command that prints it; ``{target}`` stands for the target language.
OUTPUTS = _outputs()

#: File of the work folder -> file of the page's figures.
FIGURES = {
    "probe/figure.svg": "analysis_probe.svg",
    "similarity.svg": "analysis_similarity.svg",
    "gates.svg": "analysis_gates.svg",
}


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options, and refuse those that contradict each other."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add_text_options(parser, "runs/results")
    add("--part", nargs="+", choices=tuple(PARTS), default=tuple(PARTS)[:-1], help="what to measure (default:"
        " everything but analysis)")  # fmt: skip
    for name, (default, meaning) in OPTIONS.items():
        others = "".join(f", {part} {of.defaults[name]:g}" for part, of in PARTS.items() if name in of.defaults)
        kind = positive if isinstance(default, float) else integer(1)
        add(f"--{name}", type=kind, metavar="N", help=f"{meaning} (default: {default}{others})")
    options = parser.parse_args(given)
    for name in options.part:
        settings, runs = settings_of(name, options), PARTS[name]
        if settings["updates"] < runs.validations:
            parser.error(f"--updates {settings['updates']} has to be {runs.validations} or more")
    return options


def settings_of(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a part's numbers depend on."""
    settings: dict[str, Any] = {}
    for option, (default, _) in OPTIONS.items():
        given = getattr(options, option.replace("-", "_"))
        settings[option.replace("-", "_")] = PARTS[name].defaults.get(option, default) if given is None else given
    settings["runs"] = [*PARTS[name].runs, *(f"{run}, three seeds" for run in PARTS[name].repeated)]
    return settings


def commands_of(name: str, options: argparse.Namespace, later: int = 0) -> dict[str, str]:
    """Return the command of each training of a part by its folder.

    Args:
        later: if not 0, what is added to the seed for the trainings that are repeated.
    """
    part, settings = PARTS[name], settings_of(name, options)
    seed = settings["seed"] + later
    layers, updates, heads, width = (settings[option] for option in ("layers", "updates", "heads", "width"))
    half = {layers // 2: updates // 2, layers: updates - updates // 2}
    fill = {"hidden": 4 * width, "doubling": stages_text(half)}
    every = max(1, updates // part.validations)
    validated = f"--validate-interval 1000 --validate-interval-updates {every} --save-interval-updates {every}"
    rest = f"--max-tokens {settings['max_tokens']} --max-update {updates} --seed {seed} {validated}"
    commands = {}
    for run in part.repeated if later else part.runs:
        program = part.runs[run]
        folder = f"{run}-seed{seed}" if later else run
        dropout = "" if "--dropout" in program else " --dropout 0.1"
        own_depth = "--growth-stages" in program or "--encoder-layers" in program
        depth = f"--decoder-layers {layers}" if own_depth else f"--encoder-layers {layers} --decoder-layers {layers}"
        model = f"{program.format(**fill)} {depth} {widths(width, heads)}{dropout}"
        commands[folder] = training(model, folder, settings["learning_rate"], settings["warm_up"], rest)
    return commands


def measure(name: str, place: Workplace, options: argparse.Namespace, target: str) -> dict[str, Any]:
    """Train, translate and score every model of a part."""
    commands, settings = commands_of(name, options), settings_of(name, options)
    if name == ANALYSIS:
        for run, command in commands.items():
            place.train(command, run)
        return {"trainings": commands, "outputs": analyze(place, options.records, target)}
    numbers = train_and_score(place, commands, settings["max_tokens"], target)
    if PARTS[name].repeated:
        numbers["repeated"] = {
            settings["seed"] + later: train_and_score(
                place, commands_of(name, options, later), settings["max_tokens"], target
            )
            for later in (1, 2)
        }
    return numbers


def analyze(place: Workplace, records: Path, target: str) -> dict[str, dict[str, str]]:
    """Run every command of ``docs/analysis.md``, return what it ``printed``, and copy the figures."""
    outputs = {}
    for name, template in OUTPUTS.items():
        command = f"{template.format(target=target)} > {name}"
        place.run(command)
        printed = "" if name.endswith(".generated") else (place.folder / name).read_text(encoding="utf-8")
        outputs[name] = {"command": command, "printed": printed}
    folder = records.absolute().parent / "figures"
    folder.mkdir(exist_ok=True)
    for made, name in FIGURES.items():
        copied_whole(place.folder / made, folder / name)
    return outputs


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure the parts.

    Raises:
        UserError: the corpus or the work folder cannot be used, or a command failed.
    """
    use_threads(options.threads or 1)
    languages = find_languages(options.corpus, options.source)
    place = Workplace(options.work, options.corpus, options.threads or 1)
    for name in options.part:
        settings = settings_of(name, options)
        place.only_for(name, settings)
        # A finished part stays as it was measured, with the machine and the versions of that time.
        if record := read_record(place.folder, f"results_{name}"):
            finish(options.records, f"results_{name}", record)
            continue
        text = prepare(place, options.corpus, languages, settings["merges"])
        setup = setup_of("results", given, "sacrebleu", "sacremoses", "subword-nmt", part=name, **settings)
        record = {"setup": setup, **text, **measure(name, place, options, languages[1])}
        write_record(place.folder, f"results_{name}", record)
        finish(options.records, f"results_{name}", record)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_program("results", parse_options, run, arguments, stopped="stopped; the same command goes on from here")


if __name__ == "__main__":
    sys.exit(main())
