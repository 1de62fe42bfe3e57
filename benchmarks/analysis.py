"""Every analysis of small models trained on real text: ``docs/analysis.md`` and its figures.

Trains stock fairseq's Transformer, the depth-wise LSTM model and a model that grows, then runs the commands of the
page. Each is printed before it runs, and what is finished is not repeated.

    python benchmarks/analysis.py --corpus "$CORPORA/tatoeba-deen" --work runs/analysis --output docs/analysis.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from analysis_page import SECTIONS, page
from option_types import page_to_write
from results import about, find_languages, prepare, text_sizes
from results_commands import Workplace, tell
from results_training import length, sizes, training, widths

from fairseq_compat import UserError
from fairseq_compat.explanations import explain
from fairseq_compat.files import atomic_write, copied_whole

#: Folder -> command, with the options in which it differs from the others, and schedule.
MODELS = {
    "transformer": (
        "fairseq-train data-bin --arch transformer --encoder-normalize-before --decoder-normalize-before "
        "--encoder-ffn-embed-dim {hidden} --decoder-ffn-embed-dim {hidden}",
        "inverse_sqrt",
    ),
    "depthwise": (
        "fairseq-depthwise train data-bin --arch depthwise_lstm_transformer --depthwise-hidden-dim {hidden} "
        "--log-gates",
        "inverse_sqrt",
    ),
    "grown": (
        "fairseq-depthwise train data-bin --arch sdt_transformer --encoder-ffn-embed-dim {hidden} "
        "--decoder-ffn-embed-dim {hidden} --encoder-block-size 3 --attention-dropout 0 "
        "--activation-dropout 0 --task translation_layer_growth "
        "--growth-stages {stages}",
        "inverse_sqrt_restart",
    ),
}
VALIDATIONS = 7

#: Option -> default and meaning.
OPTIONS = {
    "layers": (6, "layers of encoder and decoder"),
    "width": (128, "width"),
    "heads": (4, "attention heads"),
    "updates": (1400, "updates of every training"),
    "max-tokens": (2000, "tokens in a batch"),
    "warm-up": (400, "updates until the learning rate is at its peak"),
    "merges": (8000, "subword merges"),
    "seed": (1, "seed of every training"),
    "threads": (1, "threads of PyTorch"),
}
LEARNING_RATE = 0.001


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add, shown = parser.add_argument, "%(default)s"
    add("--corpus", type=Path, required=True, help="folder with train, valid and test files of two languages")
    add("--source", metavar="XX", help="source language; en if the corpus has it, else the first")
    add("--work", type=Path, default=Path("runs/analysis"), help=f"folder to work in (default: {shown})")
    add(
        "--output",
        type=page_to_write("benchmarks/analysis.py"),
        default=Path("docs/analysis.md"),
        help=f"the page (default: {shown})",
    )
    add("--train-only", choices=tuple(MODELS), help="train this model and stop, so that several can be trained at once")
    for name, (default, meaning) in OPTIONS.items():
        add(f"--{name}", type=int, default=default, metavar="N", help=f"{meaning} (default: {shown})")
    return parser.parse_args(arguments)


def trainings(options: argparse.Namespace) -> dict[str, str]:
    """The command of each model; one doubles its encoder half-way."""
    half = options.updates // 2
    stages = f"{options.layers // 2}:{half}u,{options.layers}:{options.updates - half}u"
    rest = length(options.updates, options.max_tokens, options.seed, VALIDATIONS)
    rest += " --tensorboard-logdir {name}/events"
    grows = f"--decoder-layers {options.layers} {widths(options.width, options.heads)}"
    model = {"grown": grows}
    return {
        name: training(
            f"{program.format(hidden=4 * options.width, stages=stages)} "
            f"{model.get(name, sizes(options.layers, options.width, options.heads))}",
            name, LEARNING_RATE, options.warm_up, rest.format(name=name), scheduler=scheduler,
        )
        for name, (program, scheduler) in MODELS.items()
    }  # fmt: skip


def measure(options: argparse.Namespace) -> None:
    """Train, run every command of the page, and write the page and its figures.

    Raises:
        UserError: the corpus or the work folder cannot be used, or a command failed.
    """
    languages = find_languages(options.corpus, options.source)
    place = Workplace(options.work, options.corpus, options.threads)
    settings = {name: getattr(options, name.replace("-", "_")) for name in OPTIONS}
    place.only_for("analysis", {"corpus": options.corpus.resolve().name, **settings})
    prepare(place, options.corpus, languages, options.merges)
    commands = trainings(options)
    for name in [options.train_only] if options.train_only else commands:
        place.train(commands[name], name, options.updates)
    if options.train_only:
        return
    for one in SECTIONS:
        for command in one.commands_for(languages[1]):
            place.run(command)
    folder = options.output.parent / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for one in SECTIONS:
        for made, name in one.figures.items():
            copied_whole(place.folder / made, folder / name)
    setup = {**settings, **about(), **text_sizes(place.folder, languages), "languages": languages}
    setup["corpus"] = options.corpus.resolve().name
    text = page(setup, commands, lambda name: (place.folder / name).read_text(encoding="utf-8"))
    with atomic_write(options.output) as file:
        file.write(text.encode())
    tell(f"{options.output} is written")


def main(arguments: list[str] | None = None) -> int:
    try:
        measure(parse_options(arguments))
    except (UserError, OSError) as error:
        tell(f"analysis: error: {explain(error) or error}")
        return 1
    except KeyboardInterrupt:
        tell("analysis: stopped; the same command goes on from here")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
