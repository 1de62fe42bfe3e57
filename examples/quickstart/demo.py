"""From parallel text to a scored translation model, by the commands that a user would type.

    python examples/quickstart/demo.py                     the bundled corpus, some minutes on two CPU cores
    python examples/quickstart/demo.py --corpus FOLDER     train, valid and test files of two languages, plain or .gz

Every command is printed before it runs and is kept in ``commands.sh`` of the output folder, to be repeated by hand.
"""

from __future__ import annotations

import argparse
import gzip
import shlex
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from command_line import CommandError, CommandLine

HERE = Path(__file__).parent
SAMPLES = 10


@dataclass(frozen=True)
class Settings:
    """Settings that depend on the size of the corpus."""

    merges: int
    width: int
    layers: int
    max_tokens: int
    updates: int
    warmup: int
    learning_rate: float
    dropout: float
    workers: int = 1
    minutes: float = 4  # of everything, measured on two cores of a server CPU


#: For tens of thousands of sentences at most, and for more.
SMALL = Settings(
    merges=3000, width=192, layers=3, max_tokens=1000, updates=1000, warmup=100, learning_rate=2e-3, dropout=0.05
)
LARGE = replace(SMALL, merges=8000, max_tokens=3000, updates=2000, warmup=200, dropout=0.1, workers=2, minutes=27)
#: Training pairs from which on LARGE is used.
LARGE_FROM = 40_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=HERE / "corpus", help="folder with train.XX, train.YY, ...")
    parser.add_argument("--source", metavar="XX", help="source language; en if the corpus has it, else the first")
    parser.add_argument("--output", type=Path, help="folder to work in; default: a new one in runs/")
    options = parser.parse_args()
    started = time.monotonic()
    try:
        source, target = find_languages(options.corpus, options.source)
        output = options.output or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
        output.mkdir(parents=True, exist_ok=True)
        if any(output.iterdir()):
            raise DemoError(f"--output {output} is not empty; give another folder")
        run(options.corpus, source, target, CommandLine(output))
    except (DemoError, CommandError, OSError) as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return 130
    print(f"\nTook {(time.monotonic() - started) / 60:.1f} minutes. Everything is in {output}; ", end="")
    print("commands.sh there repeats it; docs/getting_started.md continues with a training run of your own.")
    return 0


class DemoError(Exception):
    """The corpus or the options cannot be used; the message says why."""


def find_languages(corpus: Path, wanted_source: str | None) -> tuple[str, str]:
    """Return the two languages of a corpus folder, source first; raise DemoError unless it has two."""
    languages = sorted({path.name.removesuffix(".gz").removeprefix("train.") for path in corpus.glob("train.*")})
    if len(languages) != 2:
        raise DemoError(f"--corpus {corpus} has {len(languages)} files named train.LANGUAGE; it needs two")
    # Out of English, if that is possible.
    source = wanted_source or ("en" if "en" in languages else languages[0])
    if source not in languages:
        raise DemoError(f"--source {source} is none of the corpus's languages, {languages[0]} and {languages[1]}")
    return source, next(language for language in languages if language != source)


def run(corpus: Path, source: str, target: str, command_line: CommandLine) -> None:
    """Run all steps, each by its printed command."""
    folder = command_line.folder
    languages = (source, target)
    print(f"{source} -> {target}, corpus {corpus}, working in {folder}", flush=True)
    step = command_line.run

    # Raw text to score against, and data for training.
    for language in languages:
        packed = file_of(corpus, "test", language).resolve()
        unpack = "gzip -dc" if packed.suffix == ".gz" else "cat"
        step(f"{unpack} {shlex.quote(str(packed))}", writes=f"test.{language}")
    pairs = count_lines(file_of(corpus, "train", target))
    settings = LARGE if pairs >= LARGE_FROM else SMALL
    print(f"\n{pairs:,} training pairs: about {settings.minutes:.0f} minutes in all on two cores of a server CPU.")
    texts = " ".join(f"--{part} {shlex.quote(str(corpus.resolve() / part))}" for part in ("train", "valid"))
    step(
        f"fairseq-depthwise prepare --source-lang {source} --target-lang {target} {texts} --test test "
        f"--merges {settings.merges} --workers {settings.workers} data-bin",
        shown=12,
    )

    # Training and translation.
    step(train_command(settings), updates=settings.updates)
    step("fairseq-depthwise average --output checkpoints/average.pt --last 3 checkpoints")
    translate = "fairseq-depthwise translate checkpoints/average.pt --beam 4 --lenpen 0.6"
    step(f"{translate} test.{source}", writes="test.hyp")

    # Scores of the original text.
    step(f"sacrebleu test.{target} -i test.hyp -m bleu chrf -f text", writes="score.txt")
    show_samples(folder, source, target)
    print("\n" + (folder / "score.txt").read_text(encoding="utf-8").strip())


def train_command(settings: Settings) -> str:
    """Return the training command. A rate that falls to zero by the last update gets most out of a short run."""
    width, layers = settings.width, settings.layers
    return (
        "fairseq-train data-bin --user-dir {user_dir} --arch depthwise_lstm_transformer "
        f"--encoder-layers {layers} --decoder-layers {layers} --encoder-embed-dim {width} --decoder-embed-dim {width} "
        f"--encoder-attention-heads 4 --decoder-attention-heads 4 --depthwise-hidden-dim {4 * width} "
        f"--share-all-embeddings --dropout {settings.dropout} "
        "--optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 "
        f"--lr-scheduler polynomial_decay --lr {settings.learning_rate} --warmup-updates {settings.warmup} "
        f"--total-num-update {settings.updates} --max-update {settings.updates} --max-tokens {settings.max_tokens} "
        "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 "
        f"--save-interval-updates {settings.updates // 20} --keep-interval-updates 3 --keep-last-epochs 2 "
        "--save-dir checkpoints --log-format json --log-interval 50"
    )


def file_of(corpus: Path, part: str, language: str) -> Path:
    """Return a text of the corpus, which may be packed."""
    plain = corpus / f"{part}.{language}"
    return plain if plain.exists() else plain.with_name(f"{plain.name}.gz")


def count_lines(path: Path) -> int:
    """Return the number of lines of a text, which may be packed."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        return sum(1 for _ in lines)


def show_samples(folder: Path, source: str, target: str) -> None:
    """Print some test sentences with their reference and translation."""
    names = (f"test.{source}", f"test.{target}", "test.hyp")
    # Split at newlines only: real text holds characters that str.splitlines takes for line ends too.
    columns = [(folder / name).read_text(encoding="utf-8").removesuffix("\n").split("\n") for name in names]
    triples = list(zip(*columns, strict=True))
    # Evenly spread over the test set.
    every = max(1, len(triples) // SAMPLES)
    print(f"\n{SAMPLES} sentences of the test set:")
    for original, reference, translation in triples[::every][:SAMPLES]:
        print(f"\n  {source:>9}  {original}\n  reference  {reference}\n  model      {translation}")


if __name__ == "__main__":
    # The command that runs is ended, too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, frame: sys.exit(128 + received))
    sys.exit(main())
