"""Every task of fairseq, and every format of data: both are trained with, resumed, validated and generated from."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import sentencepiece
from fairseq.models.transformer import TransformerModel
from fairseq.tasks import TASK_REGISTRY
from training_states import assert_same_state, hypotheses

RunCommand = Callable[..., CompletedProcess[str]]

#: Sentences of each part. A batch has eight, so that an epoch has three updates.
SENTENCES = {"train": 24, "valid": 8, "test": 4}

#: Updates after which a training stops, and goes on: in the second and in the third epoch.
STOPS = (4, 7)

RUN = [
    "--optimizer=adam", "--lr=0.005", "--batch-size=8", "--cpu", "--num-workers=0", "--data-buffer-size=0",
    "--no-progress-bar", "--no-epoch-checkpoints",
]  # fmt: skip

#: Tasks that are not run here, and why.
NOT_RUN = {
    **dict.fromkeys(
        ("audio_pretraining", "audio_finetuning", "hubert_pretraining", "speech_to_text", "simul_speech_to_text"),
        "reads sounds",
    ),
    **dict.fromkeys(
        ("text_to_speech", "frm_text_to_speech", "speech_to_speech", "speech_unit_modeling"), "reads or writes sounds"
    ),
    "simul_text_to_text": "needs a package of the folder `examples` of fairseq's source",
    **dict.fromkeys(("dummy_lm", "dummy_masked_lm", "dummy_mt"), "has no data, but numbers to measure speed with"),
}


def sides(*names: str) -> str:
    """Options of the sizes of a small model's encoder or decoder, or both."""
    sizes = []
    for side in names:
        sizes += [f"--{side}-{size} 16" for size in ("embed-dim", "ffn-embed-dim")]
        sizes += [f"--{side}-layers 1", f"--{side}-attention-heads 2"]
    return " ".join(sizes)


TRANSFORMER = f"--arch transformer {sides('encoder', 'decoder')} --criterion cross_entropy"
BART = f"--arch bart_base {sides('encoder', 'decoder')} --criterion cross_entropy"
LANGUAGE_MODEL = f"--arch transformer_lm {sides('decoder')} --criterion cross_entropy"
ROBERTA = f"--arch roberta_base {sides('encoder')}"
BLOCKS = "--tokens-per-sample 16 --sample-break-mode eos"
BOTH = "--source-lang src --target-lang tgt"
PAIRS = "--lang-pairs src-tgt,tgt-src"
SUBWORDS = (
    "--tokens-per-sample 32 --sample-break-mode eos --bpe sentencepiece --sentencepiece-model {text}/pieces.model"
)


@dataclass(frozen=True)
class Case:
    """What a task is trained with, and which commands its model is for.

    Attributes:
        task: its name.
        data: the function that makes its data.
        training: options of ``fairseq-train``, with model and criterion.
        generation: options of ``fairseq-generate``, which has to be given the task's; None where it generates nothing.
        evaluated: whether it is for ``fairseq-eval-lm``.
    """

    task: str
    data: Callable[..., None]
    training: str
    generation: str | None = None
    evaluated: bool = False


# Data. Each function writes a folder.


def pairs(preprocess: Callable[..., None], text: Path, folder: Path, *more: str) -> None:
    """Sentence pairs with one dictionary."""
    preprocess(text, folder, "", BOTH, "--joined-dictionary", *more)


def monolingual(preprocess: Callable[..., None], text: Path, folder: Path, *more: str) -> None:
    preprocess(text, folder, ".src", "--only-source", *more)


def documents(preprocess: Callable[..., None], text: Path, folder: Path) -> None:
    """Sentences with an empty line after each document, and the special symbols of BERT."""
    preprocess(text, folder, ".documents", "--only-source --task legacy_masked_lm")


def pieces(preprocess: Callable[..., None], text: Path, folder: Path) -> None:
    """Sentences of SentencePiece's pieces."""
    preprocess(text, folder, ".pieces", "--only-source")


def by_language(
    preprocess: Callable[..., None], text: Path, folder: Path, *more: str, suffix: str = "", languages: str = "src tgt"
) -> None:
    """A folder for each language, and beside them the dictionary of all."""
    preprocess(text, folder, f".all{suffix}", "--only-source --dict-only", *more)
    for language in languages.split():
        dictionary = f"--srcdict {folder}/dict.txt"
        preprocess(text, folder / language, f".{language}{suffix}", "--only-source", dictionary, *more)


def pieces_by_language(preprocess: Callable[..., None], text: Path, folder: Path) -> None:
    by_language(preprocess, text, folder, suffix=".pieces")


def of_xlm(preprocess: Callable[..., None], text: Path, folder: Path) -> None:
    """The files of each language have its name."""
    by_language(preprocess, text, folder, "--task cross_lingual_lm")
    for language in ("src", "tgt"):
        for path in (folder / language).glob("*.???"):
            part, ending = path.name.split(".")
            path.rename(folder / f"{part}.{language}.{ending}")


def pairs_of_xlm(preprocess: Callable[..., None], text: Path, folder: Path) -> None:
    pairs(preprocess, text, folder, "--task translation_from_pretrained_xlm")


def classified(preprocess: Callable[..., None], text: Path, folder: Path) -> None:
    """Pairs of sentences, each with a label."""
    by_language(preprocess, text, folder)
    for language, name in (("src", "input0"), ("tgt", "input1")):
        (folder / language).rename(folder / name)
    preprocess(text, folder / "label", ".label", "--only-source")


def ranked(preprocess: Callable[..., None], text: Path, folder: Path) -> None:
    """Sentences, each with two possible continuations and the number of the right one."""
    classified(preprocess, text, folder)
    shutil.copytree(folder / "input1", folder / "input2")
    for part, size in SENTENCES.items():
        (folder / f"label/{part}.label").write_text("0\n1\n" * (size // 2), encoding="utf-8")


def pairs_and_languages(preprocess: Callable[..., None], text: Path, folder: Path) -> None:
    """Sentence pairs to validate with, and sentences of each language."""
    by_language(preprocess, text, folder)
    preprocess(text, folder, "", BOTH, f"--joined-dictionary --srcdict {folder}/dict.txt")


def pairs_and_sentences(preprocess: Callable[..., None], text: Path, folder: Path) -> None:
    """The same, with all files in one folder."""
    pairs(preprocess, text, folder)
    for language in ("src", "tgt"):
        dictionary = f"--srcdict {folder}/dict.src.txt"
        preprocess(text, folder, "", f"--only-source --source-lang {language} {dictionary}")


CASES = {
    "translation": Case("translation", pairs, TRANSFORMER, ""),
    "translation with alignments": Case(
        "translation",
        lambda preprocess, text, folder: pairs(preprocess, text, folder, "--align-suffix align"),
        f"{TRANSFORMER} --load-alignments --arch transformer_align --alignment-heads 1 --alignment-layer 0 "
        "--criterion label_smoothed_cross_entropy_with_alignment",
        "--print-alignment hard",
    ),
    "translation_lev": Case(
        "translation_lev", pairs, f"{TRANSFORMER} --arch levenshtein_transformer --criterion nat_loss", ""
    ),
    "translation_from_pretrained_bart": Case(
        "translation_from_pretrained_bart", pairs, f"{TRANSFORMER} --langs src,tgt {BOTH}", f"--langs src,tgt {BOTH}"
    ),
    "translation_from_pretrained_xlm": Case("translation_from_pretrained_xlm", pairs_of_xlm, TRANSFORMER, ""),
    "translation_multi_simple_epoch": Case(
        "translation_multi_simple_epoch", pairs, f"{TRANSFORMER} {PAIRS} --decoder-langtok",
        f"{PAIRS} --decoder-langtok {BOTH}",
    ),
    "multilingual_translation": Case(
        "multilingual_translation", pairs, f"{TRANSFORMER} --arch multilingual_transformer {PAIRS}", f"{PAIRS} {BOTH}"
    ),
    "semisupervised_translation": Case(
        "semisupervised_translation", pairs_and_sentences,
        f"{TRANSFORMER} --arch multilingual_transformer {PAIRS} --lambda-otf-bt-config 1 --lambda-denoising-config 1 "
        "--dropout 0",  # what it translates in training has dropout, too, and random numbers of that moment
        f"{PAIRS} {BOTH}",
    ),
    "online_backtranslation": Case(
        "online_backtranslation", pairs_and_languages,
        f"{TRANSFORMER} --share-all-embeddings --mono-langs src,tgt --valid-lang-pairs src-tgt",
    ),
    "language_modeling": Case("language_modeling", monolingual, f"{LANGUAGE_MODEL} {BLOCKS}", BLOCKS, evaluated=True),
    "multilingual_language_modeling": Case(
        "multilingual_language_modeling", by_language, f"{LANGUAGE_MODEL} {BLOCKS}", None, evaluated=True
    ),
    "masked_lm": Case("masked_lm", monolingual, f"{ROBERTA} --criterion masked_lm {BLOCKS}"),
    "masked_lm of words": Case("masked_lm", pieces, f"{ROBERTA} --criterion masked_lm {SUBWORDS} --mask-whole-words"),
    "multilingual_masked_lm": Case("multilingual_masked_lm", by_language, f"{ROBERTA} --criterion masked_lm {BLOCKS}"),
    "multilingual_masked_lm of words": Case(
        "multilingual_masked_lm", pieces_by_language, f"{ROBERTA} --criterion masked_lm {SUBWORDS} --mask-whole-words"
    ),
    "legacy_masked_lm": Case(
        "legacy_masked_lm", documents,
        f"--arch bert_base {sides('encoder')} --criterion legacy_masked_lm_loss --tokens-per-sample 16",
    ),
    "cross_lingual_lm": Case(
        "cross_lingual_lm", of_xlm,
        f"--arch xlm_base {sides('encoder')} --criterion legacy_masked_lm_loss --masked-lm-only "
        "--monolingual-langs src,tgt --num-segment 2 --tokens-per-sample 16",
    ),
    "denoising": Case(
        "denoising", monolingual, f"{BART} {BLOCKS} --mask 0.3 --replace-length 1 --permute-sentences 0.5 --insert 0.1"
    ),
    "denoising of words": Case(
        "denoising", pieces, f"{BART} {SUBWORDS} --mask 0.3 --mask-length span-poisson"
    ),
    "multilingual_denoising": Case(
        "multilingual_denoising", by_language, f"{BART} {BLOCKS} --mask 0.3 --replace-length 1 --add-lang-token"
    ),
    "sentence_prediction": Case(
        "sentence_prediction", classified,
        f"{ROBERTA} --criterion sentence_prediction --num-classes 2 --max-positions 32 --separator-token 2",
    ),
    "sentence_prediction_adapters": Case(
        "sentence_prediction_adapters", classified,
        f"--arch xmod_base_13 {sides('encoder')} --criterion sentence_prediction_adapters --num-classes 2 "
        "--max-positions 32",
    ),
    "sentence_ranking": Case(
        "sentence_ranking", ranked, f"{ROBERTA} --criterion sentence_ranking --num-classes 2 --max-positions 32"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small texts: sentences, their translations, alignments, labels and so on."""
    folder = tmp_path_factory.mktemp("text")
    for part, size in SENTENCES.items():
        sources, targets, alignments = [], [], []
        for number in range(size):
            words = [f"w{(3 * number + place) % 10}" for place in range(3 + number % 4)]
            sources.append(" ".join(words))
            targets.append(" ".join(reversed(words)))
            alignments.append(" ".join(f"{place}-{len(words) - 1 - place}" for place in range(len(words))))
        documents = [f"{line}\n" if number % 3 == 2 else line for number, line in enumerate(sources)]
        lines = {"src": sources, "tgt": targets, "all": sources + targets, "align": alignments, "documents": documents}
        lines["label"] = [str(number % 2) for number in range(size)]
        for ending, of_part in lines.items():
            (folder / f"{part}.{ending}").write_text("".join(f"{line}\n" for line in of_part), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "train.all"), model_prefix=str(folder / "pieces"), model_type="char", minloglevel=2
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "pieces.model"))
    for part in SENTENCES:
        for ending in ("src", "tgt", "all"):
            lines = (folder / f"{part}.{ending}").read_text(encoding="utf-8").splitlines()
            split = "".join(" ".join(model.encode(line, out_type=str)) + "\n" for line in lines)
            (folder / f"{part}.{ending}.pieces").write_text(split, encoding="utf-8")
            if ending == "src":
                (folder / f"{part}.pieces").write_text(split, encoding="utf-8")
    return folder


def preprocessed(run_command: RunCommand, text: Path, folder: Path, ending: str, *options: str) -> None:
    """Make a folder of data of the texts whose names have an ending."""
    words = " ".join(options).split()
    parts = ["train"] if "--dict-only" in words else SENTENCES
    prefixes = [f"--{part}pref={text / part}{ending}" for part in parts]
    run_command("fairseq-preprocess", *prefixes, "--destdir", folder, *words)


@pytest.fixture(scope="module")
def data_of(
    run_command: RunCommand, text: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Callable[..., None]], Path]:
    """``data_of(function)``: the folder that a function writes, made once."""

    @cache
    def folder_of(make: Callable[..., None]) -> Path:
        folder = tmp_path_factory.mktemp("data") / "data-bin"
        make(partial(preprocessed, run_command), text, folder)
        return folder

    return folder_of


def test_every_task_is_run_or_has_a_reason_why_not() -> None:
    # Tests beside this one may have registered those of this plugin.
    of_fairseq = {name for name, task in TASK_REGISTRY.items() if task.__module__.startswith("fairseq.")}
    assert {case.task for case in CASES.values()} | set(NOT_RUN) == of_fairseq


def chosen(names: Iterable[str], *short: str) -> list[Any]:
    """Return parameters of which all but a few are left to the long tests."""
    return [pytest.param(name, marks=() if name in short else pytest.mark.long) for name in names]


@pytest.mark.parametrize("name", chosen(CASES, "denoising of words", "masked_lm of words"))
def test_a_task_trains_goes_on_validates_and_generates(
    name: str, run_command: RunCommand, data_of: Callable[..., Path], text: Path, tmp_path: Path
) -> None:
    case = CASES[name]
    data = data_of(case.data)
    options = case.training.format(text=text).split()

    def train(folder: str, *more: Any) -> Path:
        run_command("fairseq-train", data, "--task", case.task, *options, *RUN, "--save-dir", tmp_path / folder, *more)
        return tmp_path / folder / "checkpoint_last.pt"

    whole = train("whole", "--max-update", STOPS[-1])
    for stop in STOPS:
        last = train("parts", "--max-update", stop)
    assert_same_state(whole, last)
    reading = [data, "--path", last, "--cpu", "--batch-size", 8, "--num-workers", 0]
    validated = run_command("fairseq-validate", *reading)
    assert "valid on 'valid' subset | " in validated.stdout + validated.stderr
    if case.generation is not None:
        given = ["--task", case.task, *case.generation.split(), "--max-len-b", 9]
        generated = run_command("fairseq-generate", *reading, *given)
        assert len(hypotheses(generated.stdout)) == SENTENCES["test"]
    if case.evaluated:
        evaluated = run_command("fairseq-eval-lm", *reading, "--task", case.task, "--tokens-per-sample", 16)
        assert "Perplexity: " in evaluated.stdout + evaluated.stderr


# Formats of data.


def aligned_pairs(preprocess: Callable[..., None], text: Path, folder: Path, *more: str) -> None:
    """Sentence pairs with a dictionary for each language, and alignments."""
    preprocess(text, folder, "", BOTH, "--align-suffix align", *more)


FORMATS: dict[str, tuple[Callable[..., None], str]] = {
    "pairs": (aligned_pairs, CASES["translation with alignments"].training),
    "sentences": (monolingual, f"--task language_modeling {LANGUAGE_MODEL} {BLOCKS}"),
}


@pytest.fixture(scope="module")
def trained_with(
    run_command: RunCommand, text: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Path]:
    """``trained_with(kind, impl)``: the checkpoint of a training on data of a format, which was stopped."""

    @cache
    def checkpoint(kind: str, impl: str) -> Path:
        folder = tmp_path_factory.mktemp(impl)
        make, training = FORMATS[kind]
        chosen = ["--dataset-impl", impl]
        make(partial(preprocessed, run_command), text, folder / "data-bin", *chosen, "--workers 2")
        for stop in STOPS:
            run_command(
                "fairseq-train", folder / "data-bin", *training.split(), *RUN, *chosen, "--save-dir", folder,
                "--max-update", stop, "--num-workers", 2,
            )  # fmt: skip
        return folder / "checkpoint_last.pt"

    return checkpoint


@pytest.mark.parametrize("impl", chosen(["lazy", "cached", "raw"], "raw", "cached"))
@pytest.mark.parametrize("kind", chosen(FORMATS, "pairs"))
def test_a_format_of_data_trains_as_the_usual_one(
    kind: str, impl: str, trained_with: Callable[[str, str], Path]
) -> None:
    assert_same_state(trained_with(kind, "mmap"), trained_with(kind, impl))


# Translating in Python.

LANGUAGES = {
    "translation_multi_simple_epoch": f"{PAIRS} --lang-dict languages --decoder-langtok",
    "translation_from_pretrained_bart": "--langs src,tgt",
}


@pytest.mark.parametrize("task", chosen(LANGUAGES, "translation_multi_simple_epoch"))
def test_tokens_of_languages_are_no_text_and_files_are_beside_a_model(
    task: str, run_command: RunCommand, data_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_of(pairs)
    (tmp_path / "languages").write_text("src\ntgt\n", encoding="utf-8")
    options = ["--task", task, *LANGUAGES[task].split()]
    training = [*TRANSFORMER.split(), *RUN, "--max-update", 1, "--save-dir", "run"]
    run_command("fairseq-train", data, *options, *training, cwd=tmp_path)
    path = tmp_path / "run/checkpoint_last.pt"
    run_command("fairseq-validate", data, "--path", path, "--cpu", "--batch-size", 8)

    lines = ["w1 w2 w3", "w4 w5"]
    reading = [data, *options, "--path", path, "--cpu", *BOTH.split(), "--max-len-b", 9]
    output = run_command("fairseq-interactive", *reading, stdin="\n".join(lines), cwd=tmp_path).stdout
    monkeypatch.chdir("/")
    model = TransformerModel.from_pretrained(
        str(path.parent), path.name, str(data), source_lang="src", target_lang="tgt"
    )
    assert model.translate(lines, beam=5, max_len_b=9) == list(hypotheses(output).values())
    if task == "translation_multi_simple_epoch":
        output = run_command(
            "fairseq-interactive", *reading, "--keep-inference-langtok", stdin="\n".join(lines), cwd=tmp_path
        ).stdout
        assert all(text.startswith("__tgt__ ") for text in hypotheses(output).values())


# What is refused.


def test_subwords_that_do_not_tell_where_words_begin(
    refusal: Callable[..., str], data_of: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "codes").write_text("#version: 0.2\nw 1\n", encoding="utf-8")
    options = f"--task masked_lm {CASES['masked_lm'].training} --mask-whole-words --bpe subword_nmt --bpe-codes".split()
    sentence = refusal(
        "fairseq-train", data_of(monolingual), *options, tmp_path / "codes", *RUN, "--save-dir", tmp_path / "run"
    )
    assert "--bpe subword_nmt" in sentence
    assert "sentencepiece" in sentence


def test_alignments_that_are_not_there(
    refusal: Callable[..., str], data_of: Callable[..., Path], tmp_path: Path
) -> None:
    options = CASES["translation with alignments"].training.split()
    sentence = refusal("fairseq-train", data_of(pairs), *options, *RUN, "--save-dir", tmp_path)
    assert "--load-alignments" in sentence
    assert "--align-suffix" in sentence
