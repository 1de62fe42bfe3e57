"""Results on real text, in parts: each asks one question and answers it with a few trainings.

Part "comparison": how do the models train beside stock fairseq's Transformer? Part "stability": does a deep model train
in fp32 and in bf16? Part "growth": what does a model that is grown while it is trained lose or save? Part "units": what
do parallel units, biased inputs and a learned order do? Every command is printed before it runs; what is finished is
not repeated, and a training that was stopped goes on from its checkpoint. A part is a file, and a name in ``PARTS``.

    python benchmarks/results.py --corpus "$CORPORA/tatoeba-deen" --work runs/results --output docs/results.md
    python benchmarks/results.py --corpus "$CORPORA/tatoeba-deen" --work runs/results --part stability
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from machine import machine
from option_types import page_to_write
from page_sections import write_section
from results_commands import Workplace, tell
from results_comparison import COMPARISON
from results_growth import GROWTH
from results_page import page
from results_part import Languages
from results_stability import STABILITY
from results_units import UNITS

from fairseq_compat import UserError
from fairseq_compat.explanations import explain
from fairseq_compat.files import written_whole
from fairseq_compat.versions import installed_version

#: In the order of the page.
PARTS = {part.name: part for part in (COMPARISON, STABILITY, GROWTH, UNITS)}
SPLITS = ("train", "valid", "test")
#: Of the page, which has the results of the recipes as well.
SECTION = "small-models"

#: Options that no part has for itself; then those that the text depends on.
COMMON = {
    "threads": (1, "threads of PyTorch"),
    "seed": (1, "seed of every training"),
    "merges": (8000, "subword merges"),
    "heads": (4, "attention heads"),
}
DATA_OPTIONS = ("merges", "threads")
OPTIONS = {**COMMON, **{name: option for part in PARTS.values() for name, option in part.options.items()}}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add, shown = parser.add_argument, "%(default)s"
    add("--corpus", type=Path, required=True, help="folder with train, valid and test files of two languages")
    add("--source", metavar="XX", help="source language; en if the corpus has it, else the first")
    add("--part", nargs="+", choices=tuple(PARTS), default=tuple(PARTS), help="what to measure (default: everything)")
    add("--work", type=Path, default=Path("runs/results"), help=f"folder to work in (default: {shown})")
    add(
        "--output",
        type=page_to_write("benchmarks/"),
        default=Path("docs/results.md"),
        help=f"the page (default: {shown})",
    )
    for name, (default, meaning) in OPTIONS.items():
        metavar = "TEXT" if isinstance(default, str) else "N"
        add(f"--{name}", type=type(default), default=default, metavar=metavar, help=f"{meaning} (default: {shown})")
    return parser


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = make_parser()
    options = parser.parse_args(arguments)
    for name in OPTIONS:
        value = getattr(options, name.replace("-", "_"))
        if isinstance(value, int) and value < 1:
            parser.error(f"--{name} {value} has to be 1 or more")
    for part in PARTS.values():
        try:
            part.check(options)
        except UserError as error:
            parser.error(str(error))
    return options


def find_languages(corpus: Path, wanted_source: str | None) -> Languages:
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
    wanted = [f"{split}.{language}" for split in SPLITS for language in languages]
    if missing := [name for name in wanted if name not in names]:
        raise UserError(f"--corpus {corpus} lacks {', '.join(missing)}")
    source = wanted_source or ("en" if "en" in languages else languages[0])
    if source not in languages:
        raise UserError(f"--source {source} is none of the corpus's languages, {languages[0]} and {languages[1]}")
    return source, languages[1 - languages.index(source)]


def prepare(place: Workplace, corpus: Path, languages: Languages, merges: int) -> list[str]:
    """Tokenize, split into subwords and binarize, and give the commands back; the demo prepares text the same way."""
    source, target = languages
    files = [(split, language) for split in SPLITS for language in languages]
    commands = [
        *(place.unpack(corpus, f"{split}.{language}") for split, language in files),
        *(f"sacremoses -q -l {lang} tokenize -x < {split}.{lang} > {split}.tok.{lang}" for split, lang in files),
        f"subword-nmt learn-joint-bpe-and-vocab --input train.tok.{source} train.tok.{target} -s {merges} "
        f"-o bpe.codes --write-vocabulary bpe.vocabulary.{source} bpe.vocabulary.{target}",
        *(f"subword-nmt apply-bpe -c bpe.codes < {split}.tok.{lang} > {split}.bpe.{lang}" for split, lang in files),
        f"fairseq-preprocess --source-lang {source} --target-lang {target} --joined-dictionary "
        "--trainpref train.bpe --validpref valid.bpe --testpref test.bpe --destdir data-bin",
    ]
    for command in commands:
        place.run(command)
    return commands


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
    for name in options.part:
        part = PARTS[name]
        settings = {setting: getattr(options, setting) for setting in part.settings}
        place.only_for(name, settings)
        prepared = prepare(place, options.corpus, languages, options.merges)
        result = part.measure(place, options, languages)
        if not (place.folder / f"{name}.json").exists():  # a finished part keeps what it was measured with
            result |= {"about": about(), "settings": {**data, **settings}, "text": text_sizes(place.folder, languages)}
            result |= {"prepared": prepared, "made_by": made_by(name, options, data | settings)}
            write(place.folder / f"{name}.json", json.dumps(result, indent=1))
        write_section(options.output, SECTION, page_of(place.folder))
        tell(f"{name}: {options.output} is written")


def page_of(folder: Path) -> str:
    """The page of all parts that a work folder holds."""
    first, sections = None, []
    for name, part in PARTS.items():
        path = folder / f"{name}.json"
        if path.exists():
            numbers = json.loads(path.read_text(encoding="utf-8"))
            sections.append(part.section(numbers, first))
            first = first or numbers
    return page(sections)


def text_sizes(folder: Path, languages: Languages) -> dict[str, int]:
    """Pairs of each split of the text, and the entries of the dictionary."""

    def lines(name: str) -> int:
        return (folder / name).read_bytes().count(b"\n")

    special = 4  # start, padding, end and unknown are not in the file
    dictionary = lines(f"data-bin/dict.{languages[0]}.txt") + special
    return {**{split: lines(f"{split}.{languages[0]}") for split in SPLITS}, "dictionary": dictionary}


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
