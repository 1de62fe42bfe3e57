"""What shallow-to-deep training saves compared with a model that is deep from the start.

Part "saving" trains the paper's schedule and the deep model in turns, compares what is saved with what the steps at
each depth predict, and notes how long the growth steps take. Part "time-to-loss" asks when each of several schedules
reaches the deep model's last validation loss. Every command is printed before it runs; a run that was stopped goes on
with the same command. Each part has a record, ``growth_PART``.

    python benchmarks/growth.py --corpus "$CORPORA/tatoeba-deen"
    python benchmarks/growth.py --corpus "$CORPORA/tatoeba-deen" --parts saving --rounds 5
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from growth_schedules import BLOCKS, DEEP, PAPER, SCHEDULES, stages_text
from program import check_device, integer, make_parser, names_of, run_program, use_threads
from record import finish, setup_of, write_record
from trainings import growth_steps, logged, step_times
from workplace import Workplace, add_text_options, find_languages, prepare

SAVING, LOSS = "saving", "time-to-loss"
PARTS = (SAVING, LOSS)

#: Numbers: their defaults on cpu and on cuda, the least that is possible, and what they mean.
NUMBERS = {
    "seed": (1, 1, 1, "seed of every training, and so of the order of batches"),
    "merges": (2000, 32000, 1, "subword merges; as many as keep the output projection's share of the paper's model"),
    "width": (64, 512, 2, "width; hidden nets are four times as wide"),
    "heads": (4, 8, 1, "attention heads"),
    "block-size": (3, 6, 1, f"layers of a block; the deepest encoder has {BLOCKS} blocks"),
    "decoder-layers": (3, 6, 1, "layers of the decoder"),
    "max-tokens": (2000, 8192, 1, "tokens of a batch"),
    "saving-updates": (210, 2100, 21, "saving: updates of a training"),
    "probe-warm-up": (5, 20, 1, "saving: first updates of a short run that do not count"),
    "probe-updates": (15, 80, 1, "saving: updates of a short run that count"),
    "rounds": (3, 3, 1, "saving: rounds"),
    "loss-updates": (840, 8400, 21, "time-to-loss: updates of a training"),
    "validations": (21, 42, 1, "time-to-loss: validations of a training"),
}

#: The paper's share of warm-up in all updates.
WARM_UP = 8000 / 50000


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options, with the defaults that depend on the device."""
    parser = make_parser(__doc__)
    add, shown = parser.add_argument, "(default: %(default)s)"
    add_text_options(parser, "runs/growth")
    add("--parts", type=names_of(PARTS), default=list(PARTS), metavar="LIST", help=f"of {', '.join(PARTS)}; default: "
        "all")  # fmt: skip
    add("--schedules", type=names_of(tuple(SCHEDULES)), default=list(SCHEDULES), metavar="LIST",
        help=f"time-to-loss: of {', '.join(SCHEDULES)}; {DEEP} is always there; default: all")  # fmt: skip
    add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    add("--threads", type=integer(1), default=1, metavar="N", help=f"threads of PyTorch {shown}")
    add("--learning-rate", type=float, default=2e-3, help=f"peak learning rate, by default the paper's {shown}")
    for name, (on_cpu, on_cuda, least, meaning) in NUMBERS.items():
        default = f"default: {on_cpu}" + (f", on cuda {on_cuda}" if on_cuda != on_cpu else "")
        add(f"--{name}", type=integer(least), metavar="N", help=f"{meaning} ({default})")
    options = parser.parse_args(given)
    check_device(parser, options)
    for name, (on_cpu, on_cuda, *_) in NUMBERS.items():
        if getattr(options, name.replace("-", "_")) is None:
            setattr(options, name.replace("-", "_"), on_cuda if options.device == "cuda" else on_cpu)
    if options.loss_updates < 2 * options.validations:
        parser.error(f"--loss-updates {options.loss_updates} has to be at least two for each of --validations")
    options.schedules = [name for name in SCHEDULES if name == DEEP or name in options.schedules]
    return options


def training(options: argparse.Namespace, name: str, depth: str, updates: int, rest: str) -> str:
    """Return a training command; ``depth`` is the result of :func:`fixed` or :func:`staged`."""
    widths = " ".join(
        f"--{stack}-embed-dim {options.width} --{stack}-ffn-embed-dim {4 * options.width} "
        f"--{stack}-attention-heads {options.heads}"
        for stack in ("encoder", "decoder")
    )
    return (
        f"fairseq-depthwise train data-bin --arch sdt_transformer --encoder-block-size {options.block_size} "
        f"--decoder-layers {options.decoder_layers} {widths} --share-all-embeddings {depth} "
        "--optimizer adam --adam-betas '(0.9, 0.997)' --adam-eps 1e-8 --clip-norm 0 "
        f"--lr {options.learning_rate:g} --warmup-updates {max(1, round(WARM_UP * updates))} "
        f"--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens {options.max_tokens} "
        f"--max-update {updates} --seed {options.seed} {rest} --save-dir {name} --log-format json --log-interval 1 "
        + ("--cpu" if options.device == "cpu" else "--bf16")
    )


def fixed(layers: int, restarts: Sequence[int] = ()) -> str:
    """Return the options of a training at one depth, without the growth task."""
    if not restarts:
        return f"--encoder-layers {layers} --lr-scheduler inverse_sqrt"
    listed = ",".join(map(str, restarts))
    return f"--encoder-layers {layers} --lr-scheduler inverse_sqrt_restart --restart-updates {listed}"


def staged(lengths: Mapping[int, int]) -> str:
    """Return the options of a training whose encoder grows."""
    stages = stages_text(lengths)
    return f"--task translation_layer_growth --growth-stages {stages} --lr-scheduler inverse_sqrt_restart"


def measure_saving(place: Workplace, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure the updates of the paper's schedule, of the deep model, and at each depth, round by round.

    The two long trainings take turns, update by update, and so do the short ones that the prediction comes from:
    whatever else the machine does slows all of them alike.
    """
    lengths = SCHEDULES[PAPER].lengths(options.saving_updates, options.block_size)
    short = options.probe_warm_up + options.probe_updates
    runs = {
        "long": ({"deep": fixed(BLOCKS * options.block_size), "staged": staged(lengths)}, options.saving_updates),
        "short": ({str(layers): fixed(layers) for layers in lengths}, short),
    }
    # On one core, a process that reads ahead would take from the others' turns.
    rest = "--disable-validation --no-save --data-buffer-size 0 --num-workers 0"
    rounds: list[dict[str, Any]] = []
    commands: dict[str, str] = {}
    growth: list[dict[str, Any]] = []
    for number in range(1, options.rounds + 1):
        seconds: dict[str, list[float]] = {}
        for kind, (depths, updates) in runs.items():
            folders = {name: f"saving{number}-{name}" for name in depths}
            trainings = {
                folders[name]: training(options, folders[name], depth, updates, rest) for name, depth in depths.items()
            }
            taken = place.train_in_turns(f"saving{number}-{kind}", trainings, updates)
            seconds |= {name: taken[folder] for name, folder in folders.items()}
            commands |= trainings
        log = (place.folder / f"saving{number}-staged.log").read_text(encoding="utf-8", errors="replace")
        growth += growth_steps(log)
        steps = {layers: seconds[str(layers)][options.probe_warm_up :] for layers in lengths}
        rounds.append({"deep": seconds["deep"], "staged": seconds["staged"], "steps": steps})
        yield {"lengths": lengths, "rounds": rounds, "growth": growth, "commands": list(commands.values())}


def measure_loss(place: Workplace, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure the validation losses and the steps at each depth, schedule by schedule."""
    updates = options.loss_updates
    every = updates // options.validations
    rest = (
        f"--validate-interval 1000 --validate-interval-updates {every} --save-interval-updates {every} "
        "--keep-interval-updates 1 --no-epoch-checkpoints"
    )
    runs: dict[str, dict[str, Any]] = {}
    commands: list[str] = []
    for name in options.schedules:
        schedule = SCHEDULES[name]
        lengths = schedule.lengths(updates, options.block_size)
        depth = staged(lengths) if schedule.grows else fixed(*lengths, schedule.restart_updates(updates))
        commands.append(training(options, f"loss-{name}", depth, updates, rest))
        log = place.train(commands[-1], f"loss-{name}").read_text(encoding="utf-8", errors="replace")
        losses = {update: state["loss"] for update, state in logged(log, "valid", ("loss",)).items()}
        runs[name] = {"lengths": lengths, "losses": losses, "steps": step_times(log, lengths)}
        yield {"runs": runs, "commands": commands}


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure the parts, and write the record after each piece of them.

    Raises:
        UserError: the corpus or the folder cannot be used, or a command failed.
    """
    use_threads(options.threads)
    languages = find_languages(options.corpus, options.source)
    place = Workplace(options.work, options.corpus, options.threads)
    # Further rounds and schedules are added to those there are.
    settings = {name.replace("-", "_") for name in NUMBERS} - {"rounds"} | {"threads", "device", "learning_rate"}
    place.only_for("growth", {name: getattr(options, name) for name in sorted(settings)})
    text = prepare(place, options.corpus, languages, options.merges)
    for part in options.parts:
        record: dict[str, Any] = {"setup": setup_of("growth", given, device=options.device, part=part), **text}
        for numbers in {SAVING: measure_saving, LOSS: measure_loss}[part](place, options):
            record |= numbers
            write_record(options.records, f"growth_{part}", record)
        finish(options.records, f"growth_{part}", record)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_program("growth", parse_options, run, arguments, stopped="stopped; the same command goes on from here")


if __name__ == "__main__":
    sys.exit(main())
