"""The parts of the benchmark ``growth.py`` that run fairseq's training command: saving, step, time-to-loss.

Each is a generator of what has been measured so far. A command that is finished is not run again, its log is read.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from growth_logs import growth_steps, loss_curve, step_times
from growth_schedules import BLOCKS, PAPER, SCHEDULES, stages_text
from results_commands import Workplace
from taking_turns import turns

#: The paper's share of warm-up in all updates.
WARM_UP = 8000 / 50000

#: Which encoders the part "step" grows, in blocks.
GROWN = ((7, 8), (4, 8))
OPTIMIZER_STATES = ("reset", "keep")

_LOG = "--log-format json --log-interval 1"
# Without a buffer there is no thread that reads ahead: a process that ends while that thread runs may be aborted.
_NOTHING_BUT_UPDATES = "--disable-validation --no-save --data-buffer-size 0"

# In turns on one core, a process that reads ahead would take from the others' turns.
_IN_TURNS = f"{_NOTHING_BUT_UPDATES} --num-workers 0"


class Trainings:
    """Training commands of one model, run in a work folder.

    Args:
        place: the work folder, with the binarized text.
        options: see ``growth_options``.
        base: the model of the paper's width instead of the scaled one.
    """

    def __init__(self, place: Workplace, options: argparse.Namespace, *, base: bool = False) -> None:
        self.place = place
        self.options = options
        sizes = vars(options)
        prefix = "base_" if base else ""
        width, heads, decoder, self.block_size = (
            sizes[prefix + name] for name in ("width", "heads", "decoder_layers", "block_size")
        )
        self.deepest = BLOCKS * self.block_size
        self._model = (
            f"--arch sdt_transformer --encoder-block-size {self.block_size} --decoder-layers {decoder} "
            f"--encoder-embed-dim {width} --decoder-embed-dim {width} --encoder-ffn-embed-dim {4 * width} "
            f"--decoder-ffn-embed-dim {4 * width} --encoder-attention-heads {heads} --decoder-attention-heads {heads} "
            "--share-all-embeddings"
        )

    def command(
        self, name: str, depth: str, updates: int, rest: str, *, data: str = "data-bin", max_tokens: int | None = None
    ) -> str:
        """A training command; ``depth`` is the result of :func:`fixed` or :func:`staged`."""
        options = self.options
        return (
            f"fairseq-depthwise train {data} {self._model} {depth} --optimizer adam --adam-betas '(0.9, 0.997)' "
            f"--adam-eps 1e-8 --clip-norm 0 --lr {options.learning_rate:g} "
            f"--warmup-updates {max(1, round(WARM_UP * updates))} --criterion label_smoothed_cross_entropy "
            f"--label-smoothing 0.1 --max-tokens {max_tokens or options.max_tokens} --max-update {updates} "
            f"--seed {options.seed} {rest} --save-dir {name} {_LOG} {'--cpu' if options.device == 'cpu' else '--bf16'}"
        )

    def log_of(self, name: str, command: str, updates: int, *, anew: bool = True) -> str:
        """Run a training unless it is finished, and give back its log.

        Args:
            anew: a training that was stopped cannot go on; its log is not kept.
        """
        if anew and not self.place.is_finished(command):
            (self.place.folder / f"{name}.log").unlink(missing_ok=True)
        return self.place.train(command, name, updates).read_text(encoding="utf-8", errors="replace")


def fixed(layers: int, restarts: Sequence[int] = ()) -> str:
    """Options of a training at one depth, without the growth task."""
    if not restarts:
        return f"--encoder-layers {layers} --lr-scheduler inverse_sqrt"
    listed = ",".join(map(str, restarts))
    return f"--encoder-layers {layers} --lr-scheduler inverse_sqrt_restart --restart-updates {listed}"


def staged(lengths: Mapping[int, int], optimizer_state: str = "reset") -> str:
    """Options of a training whose encoder grows."""
    return (
        f"--task translation_layer_growth --growth-stages {stages_text(lengths)} "
        f"--growth-optimizer-state {optimizer_state} --lr-scheduler inverse_sqrt_restart"
    )


def measure_saving(place: Workplace, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Seconds of every update of the paper's schedule, of the deep model, and at each depth, round by round.

    The two long trainings take turns, update by update, and so do the short ones that the prediction comes from:
    whatever else the machine does slows all of them alike.
    """
    trainings = Trainings(place, options)
    short = options.probe_warm_up + options.probe_updates
    lengths = SCHEDULES[PAPER].lengths(options.saving_updates, trainings.block_size)
    long_runs = {"deep": fixed(trainings.deepest), "staged": staged(lengths)}
    short_runs = {str(layers): fixed(layers) for layers in lengths}

    def in_turns(number: int, depths: Mapping[str, str], updates: int) -> dict[str, list[float]]:
        names = {one: f"saving{number}-{one}" for one in depths}
        commands = {
            names[one]: trainings.command(names[one], depth, updates, _IN_TURNS) for one, depth in depths.items()
        }
        logs = place.train_in_turns(commands, updates)
        # Of the short runs, which differ in depth only, one is enough to look at; and one round.
        for one in ("deep", "staged", str(min(lengths))):
            if one in depths:
                shown.setdefault(one, commands[names[one]])
        return {one: turns(logs[names[one]].read_text(encoding="utf-8", errors="replace")) for one in depths}

    rounds: list[dict[str, Any]] = []
    shown: dict[str, str] = {}
    for number in range(1, options.rounds + 1):
        taken = in_turns(number, long_runs, options.saving_updates)
        probes = in_turns(number, short_runs, short)
        steps = {layers: probes[str(layers)][options.probe_warm_up :] for layers in lengths}
        rounds.append({**taken, "steps": steps})
        yield {"lengths": lengths, "rounds": rounds, "commands": list(shown.values())}


def measure_step(place: Workplace, options: argparse.Namespace, data: str) -> Iterator[dict[str, Any]]:
    """Seconds of growing a model of the paper's width, as the growth task logs them.

    Args:
        data: folder of a binarized text whose dictionary has as many entries as the paper's.
    """
    trainings = Trainings(place, options, base=True)
    cases: dict[str, dict[str, Any]] = {}
    commands: list[str] = []
    for number in range(1, options.rounds + 1):
        for before, after in GROWN:
            for state in OPTIMIZER_STATES:
                layers = (before * trainings.block_size, after * trainings.block_size)
                name = f"step{number}-{layers[0]}-{state}"
                command = trainings.command(
                    name, staged(dict.fromkeys(layers, 1), state), 2, _NOTHING_BUT_UPDATES, data=data, max_tokens=200
                )
                (growth,) = growth_steps(trainings.log_of(name, command, 2))
                new = {"before": growth.before, "after": growth.after, "state": state, "seconds": []}
                cases.setdefault(f"{growth.before}-{state}", new)["seconds"].append(growth.seconds)
                if number == 1:
                    commands.append(command)
        yield {"cases": list(cases.values()), "commands": commands}


def measure_loss(place: Workplace, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The validation losses over the time of training, schedule by schedule."""
    trainings = Trainings(place, options)
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
        lengths = schedule.lengths(updates, trainings.block_size)
        depth = staged(lengths) if schedule.grows else fixed(*lengths, schedule.restart_updates(updates))
        command = trainings.command(f"loss-{name}", depth, updates, rest)
        log = trainings.log_of(f"loss-{name}", command, updates, anew=False)
        curve = [asdict(point) for point in loss_curve(log)]
        runs[name] = {"lengths": lengths, "curve": curve, "steps": step_times(log, lengths)}
        commands.append(command)
        yield {"runs": runs, "commands": commands}
