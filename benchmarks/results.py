"""Two results on real text: how the models train beside stock fairseq's Transformer, and whether deep ones are stable.

Part "comparison" trains stock fairseq's Transformer and two depth-wise models on the same data with the same settings,
translates the test set and scores it. Part "stability" trains a deep model in fp32 and in bf16 and looks at its losses
and gradients. Every command is printed before it runs; what is finished is not repeated, and a training that was
stopped goes on from its checkpoint.

    python benchmarks/results.py --corpus "$CORPORA/tatoeba-deen" --work runs/results --output docs/results.md
    python benchmarks/results.py --corpus "$CORPORA/tatoeba-deen" --work runs/results --part stability
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import machine
from results_commands import Workplace, tell
from results_page import page, read_scores

from fairseq_compat import UserError
from fairseq_compat.explanations import explain
from fairseq_compat.files import written_whole
from fairseq_compat.versions import installed_version

COMPARISON, STABILITY = "comparison", "stability"
PARTS = ("train", "valid", "test")

#: What is trained in each part: folder -> program and the options in which it differs from the others.
STOCK = "stock"
COMPARED = {
    STOCK: (
        "fairseq-train data-bin --arch transformer --encoder-normalize-before --decoder-normalize-before "
        "--encoder-ffn-embed-dim {hidden} --decoder-ffn-embed-dim {hidden}"
    ),
    "lstm": "fairseq-depthwise train data-bin --arch depthwise_lstm_transformer --depthwise-hidden-dim {hidden}",
    "rnn": (
        "fairseq-depthwise train data-bin --arch depthwise_lstm_transformer --depthwise-cell rnn "
        "--depthwise-hidden-dim {hidden}"
    ),
}
DEEP = "fairseq-depthwise train data-bin --arch depthwise_lstm_transformer --depthwise-hidden-dim {hidden}"
PRECISIONS = {"fp32": DEEP, "bf16": f"{DEEP} --bf16"}

#: The peak of the papers' schedule: 512 wide, 8000 updates of warm-up.
PAPERS_PEAK = (512 * 8000) ** -0.5
LOG_EVERY = 10
VALIDATIONS = 4

#: Options that are numbers: their defaults and what they mean.
NUMBERS = {
    "threads": (1, "threads of PyTorch"),
    "seed": (1, "seed of every training"),
    "merges": (8000, "subword merges"),
    "heads": (4, "attention heads"),
    "layers": (3, "comparison: layers of encoder and of decoder"),
    "width": (128, "comparison: width; the hidden width is four times that"),
    "updates": (1400, "comparison: updates of each training"),
    "warm-up": (400, "comparison: updates of warm-up"),
    "max-tokens": (2000, "comparison: tokens a batch"),
    "deep-layers": (24, "stability: layers of encoder and of decoder"),
    "deep-width": (64, "stability: width"),
    "deep-updates": (300, "stability: updates"),
    "deep-warm-up": (100, "stability: updates of warm-up; the verdict compares with the loss there"),
    "deep-max-tokens": (1500, "stability: tokens a batch"),
}

#: The options that each part's results depend on, besides those of the data.
DATA_OPTIONS = ("merges", "threads")
PART_OPTIONS = {
    COMPARISON: ("layers", "width", "heads", "updates", "warm_up", "max_tokens", "learning_rate", "seed"),
    STABILITY: ("deep_layers", "deep_width", "heads", "deep_updates", "deep_warm_up", "deep_max_tokens", "seed"),
}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add, shown = parser.add_argument, "%(default)s"
    add("--corpus", type=Path, required=True, help="folder with train, valid and test files of two languages")
    add("--source", metavar="XX", help="source language; en if the corpus has it, else the first")
    add("--part", choices=(COMPARISON, STABILITY, "both"), default="both", help=f"what to measure (default: {shown})")
    add("--work", type=Path, default=Path("runs/results"), help=f"folder to work in (default: {shown})")
    add("--output", type=Path, default=Path("docs/results.md"), help=f"the page (default: {shown})")
    for name, (default, help) in NUMBERS.items():
        add(f"--{name}", type=int, default=default, metavar="N", help=f"{help} (default: {shown})")
    add("--learning-rate", type=float, default=1e-3, help=f"comparison: peak learning rate (default: {shown})")
    return parser


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = make_parser()
    options = parser.parse_args(arguments)
    for name in NUMBERS:
        if (value := getattr(options, name.replace("-", "_"))) < 1:
            parser.error(f"--{name} {value} has to be 1 or more")
    if options.deep_warm_up < LOG_EVERY or options.deep_updates <= options.deep_warm_up:
        parser.error(f"--deep-warm-up has to be at least {LOG_EVERY} and below --deep-updates")
    if options.updates < VALIDATIONS:
        parser.error(f"--updates {options.updates} has to be {VALIDATIONS} or more")
    return options


def find_languages(corpus: Path, wanted_source: str | None) -> tuple[str, str]:
    """The two languages of a corpus folder, source first.

    Raises:
        UserError: the folder, a language or one of the six files is missing.
    """
    if not corpus.is_dir():
        raise UserError(f"--corpus {corpus} is no folder; give one with train, valid and test files")
    names = {path.name.removesuffix(".gz") for path in corpus.iterdir()}
    languages = sorted(name.removeprefix("train.") for name in names if name.startswith("train."))
    if len(languages) != 2:
        raise UserError(f"--corpus {corpus} has {len(languages)} files named train.LANGUAGE; it needs two")
    missing = [f"{part}.{language}" for part in PARTS for language in languages if f"{part}.{language}" not in names]
    if missing:
        raise UserError(f"--corpus {corpus} lacks {', '.join(missing)}")
    source = wanted_source or ("en" if "en" in languages else languages[0])
    if source not in languages:
        raise UserError(f"--source {source} is none of the corpus's languages, {languages[0]} and {languages[1]}")
    return source, languages[1 - languages.index(source)]


def prepare(place: Workplace, corpus: Path, languages: tuple[str, str], merges: int) -> list[str]:
    """Tokenise, split into subwords and binarise, and give the commands back; the demo prepares text the same way."""
    source, target = languages
    files = [(part, language) for part in PARTS for language in languages]
    commands = [
        *(place.unpack(corpus, f"{part}.{language}") for part, language in files),
        *(f"sacremoses -q -l {lang} tokenize -x < {part}.{lang} > {part}.tok.{lang}" for part, lang in files),
        f"subword-nmt learn-joint-bpe-and-vocab --input train.tok.{source} train.tok.{target} -s {merges} "
        f"-o bpe.codes --write-vocabulary bpe.vocabulary.{source} bpe.vocabulary.{target}",
        *(f"subword-nmt apply-bpe -c bpe.codes < {part}.tok.{lang} > {part}.bpe.{lang}" for part, lang in files),
        f"fairseq-preprocess --source-lang {source} --target-lang {target} --joined-dictionary "
        "--trainpref train.bpe --validpref valid.bpe --testpref test.bpe --destdir data-bin",
    ]
    for command in commands:
        place.run(command)
    return commands


def sizes(layers: int, width: int, heads: int) -> str:
    """Options of depth and width, the same for every architecture."""
    return (
        f"--encoder-layers {layers} --decoder-layers {layers} --encoder-embed-dim {width} --decoder-embed-dim {width} "
        f"--encoder-attention-heads {heads} --decoder-attention-heads {heads} --share-all-embeddings --dropout 0.1"
    )


def training(program: str, name: str, model: str, width: int, rate: float, warm_up: int, rest: str) -> str:
    """A training command; Adam, schedule and loss are those of the papers."""
    return (
        f"{program.format(hidden=4 * width)} {model} "
        "--optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-9 --clip-norm 0 --lr-scheduler inverse_sqrt "
        f"--lr {rate:.6g} --warmup-updates {warm_up} --criterion label_smoothed_cross_entropy --label-smoothing 0.1 "
        f"{rest} --keep-interval-updates 1 --no-epoch-checkpoints --save-dir {name} "
        f"--log-format json --log-interval {LOG_EVERY} --cpu"
    )


def compare(place: Workplace, options: argparse.Namespace, languages: tuple[str, str]) -> dict[str, Any]:
    """Train, translate and score every model of the comparison."""
    every = max(1, options.updates // VALIDATIONS)
    model = sizes(options.layers, options.width, options.heads)
    rest = (
        f"--max-tokens {options.max_tokens} --max-update {options.updates} --seed {options.seed} "
        f"--validate-interval 1000 --validate-interval-updates {every} --save-interval-updates {every}"
    )
    commands, runs = [], {}
    for name, program in COMPARED.items():
        command = training(program, name, model, options.width, options.learning_rate, options.warm_up, rest)
        log = place.train(command, name, options.updates)
        later = translation(name, options.max_tokens, languages[1])
        for one in later:
            place.run(one)
        commands += [command, *later]
        runs[name] = read_training(log)
    scoring = (
        f"sacrebleu test.{languages[1]} -i {' '.join(f'{name}.hyp' for name in COMPARED)} -m bleu chrf --paired-bs "
        "-f text > scores.txt"
    )
    place.run(scoring)
    scores = read_scores((place.folder / "scores.txt").read_text(encoding="utf-8"), list(COMPARED))
    return {"commands": [*commands, scoring], "runs": runs, "scores": scores}


def translation(name: str, max_tokens: int, target: str) -> list[str]:
    """The commands from a trained model to its translation of the test set."""
    program = "fairseq-generate" if name == STOCK else "fairseq-depthwise generate"
    return [
        f"{program} data-bin --path {name}/checkpoint_last.pt --beam 4 --lenpen 0.6 --max-tokens {max_tokens} "
        f"--remove-bpe --cpu > {name}.generated",
        # fairseq sorts sentences by length; their numbers bring them back into the order of the test file.
        f"grep ^H- {name}.generated | sort -t - -k 2n | cut -f 3- | sacremoses -q -l {target} detokenize > {name}.hyp",
    ]


def probe_stability(place: Workplace, options: argparse.Namespace) -> dict[str, Any]:
    """Train the deep model in both precisions."""
    model = sizes(options.deep_layers, options.deep_width, options.heads)
    rest = (
        f"--max-tokens {options.deep_max_tokens} --max-update {options.deep_updates} --seed {options.seed} "
        f"--disable-validation --save-interval-updates {options.deep_warm_up}"
    )
    commands, runs = [], {}
    for name, program in PRECISIONS.items():
        command = training(program, name, model, options.deep_width, PAPERS_PEAK, options.deep_warm_up, rest)
        log = place.train(command, name, options.deep_updates, may_diverge=True)
        commands.append(command)
        runs[name] = read_training(log)
    return {"commands": commands, "runs": runs}


def read_training(log: Path) -> dict[str, Any]:
    """What a training's log says: its updates and validations by number, parameters, seconds and speed."""
    text = log.read_text(encoding="utf-8", errors="replace")
    updates = _logged(text, "train_inner", "num_updates", ("loss", "gnorm", "wps", "train_wall"))
    parameters = re.search(r"num\. shared model params: ([\d,]+)", text)
    return {
        "parameters": int(parameters[1].replace(",", "")) if parameters else 0,
        "seconds": sum(state["train_wall"] for state in updates.values()),
        "tokens_per_second": statistics.median([state["wps"] for state in updates.values()] or [0]),
        "train": {number: {key: state[key] for key in ("loss", "gnorm")} for number, state in updates.items()},
        "valid": {
            number: {"loss": state["valid_loss"], "nll_loss": state["valid_nll_loss"]}
            for number, state in _logged(text, "valid", "valid_num_updates", ("valid_loss", "valid_nll_loss")).items()
        },
    }


def _logged(text: str, kind: str, number: str, keys: Sequence[str]) -> dict[int, dict[str, float]]:
    """The values of a kind of log line by update; of an update that was repeated after a stop, the later ones."""
    found = {}
    for values in re.findall(rf"\| {kind} \| (\{{.*\}})$", text, re.MULTILINE):
        state = json.loads(values)
        found[int(state[number])] = {key: float(state.get(key, "nan")) for key in keys}
    return dict(sorted(found.items()))


def measure(options: argparse.Namespace) -> None:
    """Measure the parts asked for and write the page of all parts that the work folder holds.

    Raises:
        UserError: the corpus or the work folder cannot be used, or a command failed.
    """
    languages = find_languages(options.corpus, options.source)
    place = Workplace(options.work, options.corpus, options.threads)
    corpus = {"corpus": options.corpus.resolve().name, "languages": " -> ".join(languages)}
    data = {**corpus, **{name: getattr(options, name) for name in DATA_OPTIONS}}
    place.only_for("data", data)
    for part in (COMPARISON, STABILITY) if options.part == "both" else (options.part,):
        settings = {name: getattr(options, name) for name in PART_OPTIONS[part]}
        place.only_for(part, settings)
        prepared = prepare(place, options.corpus, languages, options.merges)
        result = compare(place, options, languages) if part == COMPARISON else probe_stability(place, options)
        if not (place.folder / f"{part}.json").exists():  # a finished part keeps what it was measured with
            result |= {"about": about(), "settings": {**data, **settings}, "text": text_sizes(place.folder, languages)}
            result |= {"prepared": prepared, "made_by": made_by(part, options, data | settings)}
            write(place.folder / f"{part}.json", json.dumps(result, indent=1))
        write(options.output, page(*(stored(place.folder / f"{one}.json") for one in (COMPARISON, STABILITY))))
        tell(f"{part}: {options.output} is written")


def text_sizes(folder: Path, languages: tuple[str, str]) -> dict[str, int]:
    """Pairs of each part of the text, and the entries of the dictionary."""

    def lines(name: str) -> int:
        return (folder / name).read_bytes().count(b"\n")

    special = 4  # start, padding, end and unknown are not in the file
    dictionary = lines(f"data-bin/dict.{languages[0]}.txt") + special
    return {**{part: lines(f"{part}.{languages[0]}") for part in PARTS}, "dictionary": dictionary}


def made_by(part: str, options: argparse.Namespace, settings: Mapping[str, object]) -> str:
    """The command line of this program, without the folders."""
    default = make_parser().get_default
    given = {"source": options.source, **settings}
    words = [
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, value in given.items()
        if name not in ("corpus", "languages") and value != default(name)
    ]
    corpus = f'"$CORPORA"/{shlex.quote(str(settings["corpus"]))}'
    return " ".join([f"python benchmarks/results.py --corpus {corpus} --part {part}", *words])


def about() -> dict[str, str]:
    """What the measurements were made with."""
    names = ("torch", "fairseq", "fairseq-depthwise", "sacrebleu", "sacremoses", "subword-nmt")
    versions = {"Python": platform.python_version(), **{name: installed_version(name) or "?" for name in names}}
    return {"machine": machine(), "versions": ", ".join(f"{name} {version}" for name, version in versions.items())}


def stored(path: Path) -> Mapping[str, Any] | None:
    """The numbers of a part; None if it has not been measured."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write(path: Path, text: str) -> None:
    with written_whole(path) as file:
        file.write(text.encode())


def main(arguments: list[str] | None = None) -> int:
    options = parse_options(arguments)
    try:
        measure(options)
    except (UserError, OSError) as error:
        tell(f"results: error: {explain(error) or error}")
        return 1
    except KeyboardInterrupt:
        tell("results: stopped; the same command goes on from here")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
