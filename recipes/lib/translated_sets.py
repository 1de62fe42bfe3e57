"""The test sets of a recipe, translated with a checkpoint once.

Test sets of a language pair are translated by fairseq-generate, from text that was split into subwords as in training.
Those of a many-to-many model, in every direction, are translated from raw text by ``fairseq-depthwise translate``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from made_of import Inputs, digests, digests_in, is_made_of, making
from recipe_step import languages_of, run_command_line, say, whole_number

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.provenance import file_digest
from fairseq_depthwise.evaluation.scores import TranslationMetric, detokenize, join_compounds
from fairseq_depthwise.evaluation.translations import read_lines, read_translations
from recipes import Recipe


@dataclass(frozen=True)
class EvaluationSet:
    """A test set and its files.

    Attributes:
        name: of its translations: of the set, such as newstest2014, or of a direction, such as en-xx/de.
        source, target: languages.
        tokens, raw: prefixes of its tokenized and of its original text, before the language.
        subset: in ``data-bin``; empty for sets that are translated from raw text.
    """

    name: str
    source: str
    target: str
    tokens: str
    raw: str
    subset: str = ""

    def translations(self, output: Path, metric: TranslationMetric) -> Path:
        """Return the file of translations in the form that a metric takes: tokens or text."""
        return output / f"{self.name}{'.tok' if metric.tokenized else '.txt'}"

    def references(self, metric: TranslationMetric) -> list[list[str]]:
        """Return all references in the form that a metric takes."""
        form = "" if metric.tokenized else self.raw.removeprefix(self.tokens)
        first = Path(f"{self.tokens}{form}.{self.target}")
        # Some test sets have further references: test.NAME.ref1.en and so on.
        further = sorted(first.parent.glob(f"{Path(self.tokens).name}.ref?{form}.{self.target}"))
        return [read_lines(str(path)) for path in (first, *further)]


def evaluation_sets(recipe: Recipe, work: Path) -> list[EvaluationSet]:
    """Return the test sets of a recipe's folder, or all directions of a many-to-many recipe that have one.

    Raises:
        UserError: ``tests.txt``, which names the subsets of ``data-bin`` in order, names others than were binarized.
    """
    if recipe.many:
        return list(_directions(work / "text"))
    source, target = languages_of(work / "data-bin")
    sets = []
    for number, name in enumerate(read_lines(str(work / "data-bin" / "tests.txt"))):
        # As fairseq-preprocess names them.
        subset = f"test{number}" if number else "test"
        prefix = f"{work / 'text'}/test.{name}"
        sets.append(EvaluationSet(name, source, target, prefix, f"{prefix}.raw", subset))
    _require_binarized(sets, work)
    return sets


def _require_binarized(sets: Sequence[EvaluationSet], work: Path) -> None:
    """Raise UserError unless each subset has the sentences of the test set that it is taken for.

    Otherwise the translations of one would be scored with the references of another.
    """
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    data = work / "data-bin"
    pair = f"{sets[0].source}-{sets[0].target}.{sets[0].source}"
    subsets = [*data.glob(f"test*.{pair}.idx")]
    if len(subsets) != len(sets):
        raise UserError(
            f"{data / 'tests.txt'} names {len(sets)} test sets, and {data} has {len(subsets)}; name all of them in the "
            "order in which prepare.sh wrote them, one on each line"
        )
    for test in sets:
        text = work / "text" / f"bpe.test.{test.name}.{test.source}"
        # Earlier folders of distilled and back-translated data have no such text.
        if not text.exists():
            continue
        # Keep the index in a variable: its sizes are memory-mapped, and the file closes with the index.
        index = MMapIndexedDataset.Index(str(data / f"{test.subset}.{pair}.idx"))
        binarized = index.sizes.tolist()
        # Each sentence has an end besides its words.
        lengths = [len(line.split()) + 1 for line in read_lines(str(text))]
        if binarized != lengths:
            raise UserError(
                f"{data / 'tests.txt'} has {test.name} where {data} has other sentences than {text}; name the test "
                "sets in the order in which prepare.sh wrote them, or prepare them again"
            )


def _directions(text: Path) -> Iterator[EvaluationSet]:
    for path in sorted(text.glob("test.en-*.en")):
        language = path.name.split(".")[1].removeprefix("en-")
        prefix = str(path.with_suffix(""))
        yield EvaluationSet(f"en-xx/{language}", "en", language, prefix, prefix)
        yield EvaluationSet(f"xx-en/{language}", language, "en", prefix, prefix)
    # Directions without English have one pair of texts for both, and no training data.
    for report in sorted(text.glob("zero-shot/*-*.report.txt")):
        prefix = str(report).removesuffix(".report.txt")
        first, second = Path(prefix).name.split("-")
        yield EvaluationSet(f"zero-shot/{first}-{second}", first, second, prefix, prefix)
        yield EvaluationSet(f"zero-shot/{second}-{first}", second, first, prefix, prefix)


def translate_sets(recipe: Recipe, checkpoint: Path, data: Path, output: Path, sets: Sequence[EvaluationSet]) -> None:
    """Translate those of the test sets that were not translated with this checkpoint and these data.

    A process for each GPU, or as many as ``PROCESSES`` says on a CPU, share the sets.
    """
    # 1. Which sets are missing, or were translated with anything else?
    digest = file_digest(str(checkpoint))
    missing: list[tuple[EvaluationSet, Inputs]] = []
    for test in sets:
        # Everything that affects the translations.
        texts = data.glob(f"{test.subset}.*") if test.subset else [f"{test.raw}.{test.source}"]
        inputs = {
            "checkpoint": digest,
            "options": digests_in([*recipe.text_options(data), *_search_options(recipe, test)]),
            "data": digests([*data.glob("dict.*"), *texts]),
        }
        if not is_made_of(output / f"{test.name}.txt", inputs):
            missing.append((test, inputs))

    # 2. Translate them in parallel, on one GPU each, or with a share of the CPU's threads.
    gpus = torch.cuda.device_count()
    processes = gpus or whole_number(os.environ, "PROCESSES", 1)
    # This process may itself be limited to some GPUs.
    visible = (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(processes)))).split(",")
    # With more threads than cores, threads would wait for each other.
    threads = min(torch.get_num_threads(), max(1, (os.cpu_count() or 1) // processes))

    def translate_share(place: int) -> None:
        setting = {"CUDA_VISIBLE_DEVICES": visible[place]} if gpus else {"OMP_NUM_THREADS": str(threads)}
        for test, inputs in missing[place::processes]:
            say(f"translating {test.name} from {test.source} to {test.target} with {checkpoint}")
            translations = output / f"{test.name}.txt"
            translations.parent.mkdir(parents=True, exist_ok=True)
            with making(translations, inputs):
                _translate(recipe, checkpoint, data, test, translations, {**os.environ, **setting})

    # These threads only wait for the processes that they start.
    with ThreadPoolExecutor(processes) as pool:
        # list() raises exceptions of the threads here.
        list(pool.map(translate_share, range(processes)))


def _search_options(recipe: Recipe, test: EvaluationSet) -> list[Any]:
    languages = ["--source-lang", test.source, "--target-lang", test.target]
    return [*languages, "--beam", recipe.beam, "--lenpen", recipe.length_penalty]


def _translate(
    recipe: Recipe, checkpoint: Path, data: Path, test: EvaluationSet, output: Path, environment: dict[str, str]
) -> None:
    """Write the translations of a test set to ``output``, and the tokens of fairseq-generate beside it."""
    options = [*_search_options(recipe, test), "--max-tokens", whole_number(os.environ, "MAX_TOKENS", 4096)]
    if not torch.cuda.is_available():
        options += ["--cpu"]
    if not test.subset:
        text = f"{test.raw}.{test.source}"
        # The checkpoint records its tokenizer and subwords.
        options += ["--data", data, "--output", output, "--force"]
        run_command_line("translate", checkpoint, text, *options, env=environment)
        return

    # Rare subwords are split further for training (THRESHOLD), in the binarized text only.
    options += recipe.text_options(data)
    options += ["--post-process", "sentencepiece" if "sentencepiece" in recipe.text else "subword_nmt"]
    options += ["--path", checkpoint, "--gen-subset", test.subset]
    generated = output.with_suffix(".generated")
    with atomic_write(generated) as log:
        run_command_line("generate", data, *options, stdout=log, env=environment)
    sentences = read_translations(str(generated), tokenized=True).sentences
    # prepare.sh joins split hyphens in the tokens of the reference, too.
    tokens = [join_compounds(sentence) for sentence in sentences]
    text_lines = detokenize(tokens, test.target) if "--tokenizer" in recipe.text else tokens
    for path, lines in ((output.with_suffix(".tok"), tokens), (output, text_lines)):
        with atomic_write(path) as file:
            file.writelines(f"{line}\n".encode() for line in lines)
