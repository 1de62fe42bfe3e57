"""Steps of back_translate.sh: monolingual text to translate, and its translations mixed with the parallel text.

    python back_translation.py clean RECIPE --language de --output mono.de TEXT...
    python back_translation.py mix RECIPE --languages en de --synthetic mono --parallel bpe.train --output mixed.train
    python back_translation.py dictionaries RECIPE --languages en de --output dict

Synthetic pairs have a translation as their source and a sentence that somebody has written as their target. Their
source begins with a tag, so that the model can tell both kinds (Caswell et al., 2019). Left out are pairs with an empty
side, too many subwords or too unequal lengths (as by Ng et al., 2019), and those where half of the words or more were
copied (Ott et al., 2018).
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from parallel_lines import map_in_order
from recipe_step import output_name, run_step, say
from text_streams import read_text

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_depthwise.serving.text_codec import TextCodec, TextSettings
from fairseq_depthwise.text_files import lines_of
from recipes import RECIPES, Recipe

#: fairseq-preprocess fills dictionaries up with these.
_FILLER = "madeupword"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run in (("clean", clean), ("mix", mix), ("dictionaries", dictionaries)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("recipe", choices=RECIPES)
        command.add_argument("--data", required=True, metavar="BIN", help="of the parallel text")
        command.add_argument("--output", type=output_name, required=True)
        command.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
        if run is clean:
            command.add_argument("texts", nargs="+", metavar="TEXT")
            command.add_argument("--language", required=True)
        else:
            command.add_argument("--languages", nargs=2, required=True, metavar="LANG")
            command.add_argument("--tag", default="<BT>")
        if run is mix:
            command.add_argument("--synthetic", required=True, metavar="PREFIX", help="of text as people write it")
            command.add_argument("--parallel", required=True, metavar="PREFIX", help="of text in subwords")
            command.add_argument("--upsample", type=int, default=1)
            command.add_argument("--ratio", type=float, default=1.5)
            command.add_argument("--copied", type=float, default=0.5)
        if run is not dictionaries:
            command.add_argument("--longest", type=int, default=250)
    options = parser.parse_args()
    options.run(options)


def clean(options: argparse.Namespace) -> None:
    """Write monolingual text, each sentence on a line, without those that are empty or too long."""
    # The training text of IWSLT is in lower case, and so is what its models translate.
    lower = RECIPES[options.recipe].metrics[0] == "tokenized-lc" and options.recipe == "iwslt14_de_en"
    left_out: Counter[str] = Counter()
    read = 0
    with atomic_write(options.output) as file:
        for text in options.texts:
            for line in read_text(text):
                read += 1
                words = len(line.split())
                if words == 0:
                    left_out["empty"] += 1
                elif words > options.longest:
                    left_out[f"more than {options.longest} words"] += 1
                else:
                    file.write(f"{line.lower() if lower else line}\n".encode())
        if read == left_out.total():
            raise UserError(f"no sentence of {', '.join(options.texts)} is left for {options.output}")
        _report(options.output, f"{read:,} sentences read, {read - left_out.total():,} kept", left_out)


def mix(options: argparse.Namespace) -> None:
    """Write the parallel text, ``--upsample`` times, and then synthetic pairs with their tag."""
    source, target = options.languages
    left_out: Counter[str] = Counter()
    read = count = parallel = 0
    prepare = partial(_prepare, options.recipe, options.data, options.languages)
    pairs = _pairs(f"{options.synthetic}.{source}", f"{options.synthetic}.{target}")
    with (
        atomic_write(f"{options.output}.{source}") as sources,
        atomic_write(f"{options.output}.{target}") as targets,
    ):
        for _ in range(options.upsample):
            parallel = sum(
                _write(sources, targets, *pair)
                for pair in _pairs(f"{options.parallel}.{source}", f"{options.parallel}.{target}")
            )
        tag = f"{options.tag} " if options.tag else ""
        for chunk in map_in_order(_encode, pairs, options.jobs, prepare):
            for pair, tokens in chunk:
                read += 1
                if (fault := fault_of(pair, tokens, options.longest, options.ratio, options.copied)) is not None:
                    left_out[fault] += 1
                else:
                    count += _write(sources, targets, tag + tokens[0], tokens[1])
        if count == 0:
            raise UserError(f"no pair of {options.synthetic}.{source} and .{target} is left; the model may be wrong")
        kept = f"{read:,} synthetic pairs read, {count:,} kept, beside {options.upsample} x {parallel:,} parallel ones"
        _report(options.output, kept, left_out)


def fault_of(pair: tuple[str, str], tokens: tuple[str, str], longest: int, ratio: float, copied: float) -> str | None:
    """Return why a synthetic pair is left out, or None.

    Args:
        pair: text as people write it.
        tokens: the same in subwords.
        longest: subwords of a side.
        ratio: of both sides' subwords.
        copied: the share of words of the longer side that the other side has, too.
    """
    lengths = [len(side.split()) for side in tokens]
    if min(lengths) == 0:
        return "one side is empty"
    if max(lengths) > longest:
        return f"more than {longest} subwords"
    if max(lengths) > ratio * min(lengths):
        return f"one side is more than {ratio:g} times as long as the other"
    words = [Counter(side.casefold().split()) for side in pair]
    if (words[0] & words[1]).total() >= copied * max(side.total() for side in words):
        return "copied"
    return None


def dictionaries(options: argparse.Namespace) -> None:
    """Write the data's dictionaries with the tag, which takes the place of a filler: all other numbers stay."""
    files = [Path(options.data) / f"dict.{language}.txt" for language in options.languages]
    texts = [file.read_text(encoding="utf-8") for file in files]
    tagged = texts[0]
    if options.tag and f"\n{options.tag} " not in f"\n{tagged}":
        entries = tagged.split("\n")[:-1]
        place = next((place for place, entry in enumerate(entries) if entry.startswith(_FILLER)), len(entries))
        tagged = "".join(f"{entry}\n" for entry in [*entries[:place], f"{options.tag} 1", *entries[place + 1 :]])
    # A dictionary of both languages stays one.
    for language, text in zip(options.languages, [tagged, tagged if texts[0] == texts[1] else texts[1]], strict=True):
        with atomic_write(f"{options.output}.{language}.txt") as file:
            file.write(text.encode())


#: Of this process, one for each side.
_codecs: list[TextCodec] = []


def _prepare(recipe: str, data: str, languages: list[str]) -> None:
    _codecs[:] = [codec_of(RECIPES[recipe], Path(data), language) for language in languages]


def codec_of(recipe: Recipe, data: Path, language: str) -> TextCodec:
    """Return what makes subwords of a language as in the recipe's training text."""
    tokenizer, bpe = dict[str, Any](), dict[str, Any]()
    for option, *value in _options(recipe.text):
        kind = bpe if option == "bpe" else tokenizer
        kind[option] = value[0] if value else True
    name, file = recipe.subwords
    own = data / f"pieces.{language}.model"
    bpe[name.removeprefix("--").replace("-", "_")] = str(own if own.exists() else data / file)
    return TextCodec(TextSettings(tokenizer if "tokenizer" in tokenizer else {}, bpe), language, language)


def _options(words: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield each option's name, as fairseq has it in Python, and its value if it has one."""
    found: list[str] = []
    for word in words:
        if word.startswith("--"):
            if found:
                yield found
            found = [word[2:].replace("-", "_")]
        else:
            found.append(word)
    yield found


def _encode(chunk: list[tuple[str, str]]) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    source, target = _codecs
    return [(pair, (source.encode(pair[0]), target.encode(pair[1]))) for pair in chunk]


def _pairs(source: str, target: str) -> Iterator[tuple[str, str]]:
    for first, second in zip_longest(lines_of(source), lines_of(target)):
        if first is None or second is None:
            raise UserError(f"{source} and {target} have different numbers of lines; remove them and begin again")
        yield first, second


def _write(sources: IO[bytes], targets: IO[bytes], source: str, target: str) -> int:
    sources.write(f"{source}\n".encode())
    targets.write(f"{target}\n".encode())
    return 1


def _report(output: str, kept: str, left_out: Counter[str]) -> None:
    lines = [kept, *(f"{number:,} left out: {reason}" for reason, number in left_out.most_common())]
    with atomic_write(f"{output}.report.txt") as report:
        report.write("".join(f"{line}\n" for line in lines).encode())
    say(f"{output}: " + "; ".join(lines))


if __name__ == "__main__":
    run_step(main)
