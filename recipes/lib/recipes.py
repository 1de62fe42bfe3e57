"""The recipes: their language pair, their systems, and how they are scored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from systems import System, read_systems

from fairseq_compat import UserError


@dataclass(frozen=True)
class Recipe:
    """What the scripts of a recipe need to know.

    Attributes:
        systems: by name.
        metrics: of ``fairseq-depthwise score``, the paper's first.
        languages: source and target; ``SOURCE`` and ``TARGET`` say otherwise where ``prepare.sh`` takes them.
        text: options that say how raw text becomes tokens, beside the file of subwords; they are saved in checkpoints,
            so that ``fairseq-depthwise translate`` needs to be told nothing.
        subwords: that option and its file in ``data-bin``; None for text whose words are the vocabulary.
        beam, length_penalty: of evaluation.
        needs_gpu: whether a CPU would take more than days.
        many: whether it is one model for many languages.
    """

    systems: dict[str, System]
    metrics: tuple[str, ...]
    languages: tuple[str, str]
    text: tuple[str, ...] = ("--tokenizer", "moses_normalized", "--bpe", "subword_nmt")
    subwords: tuple[str, str] | None = ("--bpe-codes", "bpe.codes")
    beam: int = 4
    length_penalty: float = 0.6
    needs_gpu: bool = True
    many: bool = False

    def text_options(self, data: Path) -> list[str]:
        """Return the options that say how raw text becomes tokens, with the subwords of ``data``, a ``data-bin``.

        Text that came as tokens has its own options in ``data``, where ``prepare.sh`` left them.
        """
        options = list(self.text)
        file_of_options = data / "text_options.txt"
        if file_of_options.exists():
            options = file_of_options.read_text(encoding="utf-8").split()
        if self.subwords:
            option, file = self.subwords
            options += [option, str(data / file)]
        return options


_SENTENCEPIECE = ("--bpe", "sentencepiece")

_DEPTHWISE, _SDT, _MUTE = (read_systems(name) for name in ("depthwise", "shallow_to_deep", "multi_unit"))
_GERMAN = ("tokenized", "compound-split", "sacrebleu")


def _published_in(recipe: str, systems: dict[str, System]) -> dict[str, System]:
    """Return the systems with numbers for a recipe, and their baselines."""
    with_numbers = [system for system in systems.values() if recipe in system.published]
    baselines = {system.baseline for system in with_numbers}
    return {name: system for name, system in systems.items() if recipe in system.published or name in baselines}


def _small(name: str, languages: tuple[str, str], *, needs_gpu: bool) -> Recipe:
    metrics = ("sacrebleu", "tokenized-lc", "chrf")
    systems = read_systems("small", size=name)
    return Recipe(systems, metrics, languages, beam=5, length_penalty=1.0, needs_gpu=needs_gpu)


def _hops() -> Recipe:
    """Return the recipe of a made corpus, whose words need no tokenizer and whose answers are right or wrong."""
    names = ["transformer", "transformer_post_norm", "transformer_relative", "depthwise_lstm", "depthwise_lstm_open"]
    names += ["deep", "deep_blocks", "sdt"]
    systems = read_systems("small", size="hops")
    return Recipe(
        {name: systems[name] for name in names},
        ("accuracy",),
        ("pairs", "answer"),
        text=(),
        subwords=None,
        beam=1,
        length_penalty=1.0,
        needs_gpu=False,
    )


RECIPES: dict[str, Recipe] = {
    "wmt14_en_de": Recipe({**_DEPTHWISE, **_SDT, **_MUTE}, _GERMAN, ("en", "de")),
    "wmt14_en_fr": Recipe(
        _published_in("wmt14_en_fr", {**_DEPTHWISE, **_SDT}), ("tokenized", "sacrebleu"), ("en", "fr")
    ),
    "wmt15_cs_en": Recipe(_published_in("wmt15_cs_en", _DEPTHWISE), ("tokenized", "sacrebleu"), ("cs", "en")),
    "wmt18_zh_en": Recipe(
        {name: system for name, system in _MUTE.items() if name in ("mute_big", "mute", "mute_biased")}
        | _published_in("wmt18_zh_en", _MUTE),
        ("sacrebleu",),
        ("zh", "en"),
        _SENTENCEPIECE,
        ("--sentencepiece-model", "pieces.zh.model"),
    ),
    "nist_zh_en": Recipe(_MUTE, ("tokenized-lc", "sacrebleu"), ("zh", "en")),
    "opus100": Recipe(
        read_systems("opus100"),
        ("sacrebleu",),
        ("en", "xx"),
        _SENTENCEPIECE,
        ("--sentencepiece-model", "pieces.model"),
        many=True,
    ),
    "iwslt14_de_en": Recipe(
        read_systems("iwslt"),
        ("tokenized-lc",),
        ("de", "en"),
        ("--tokenizer", "moses", "--moses-no-dash-splits", "--bpe", "subword_nmt"),
        beam=5,
        length_penalty=1.0,
    ),
    "multi30k": _small("multi30k", ("en", "de"), needs_gpu=False),
    "tatoeba_de_en": _small("tatoeba_de_en", ("de", "en"), needs_gpu=False),
    "mixed_de_en": _small("mixed_de_en", ("de", "en"), needs_gpu=True),
    "hops": _hops(),
}


def system_of(recipe: str, name: str) -> System:
    """Return the system as it is in a recipe.

    Raises:
        UserError: the recipe has no such system.
    """
    systems = RECIPES[recipe].systems
    if name not in systems:
        raise UserError(f"{recipe} has no system {name!r}; train.sh {recipe} --list names all {len(systems)}")
    return systems[name].within(recipe)


def baselines_of(recipe: str, system: System) -> list[str]:
    """Return the system's baseline, that one's own baseline, and so on."""
    baselines = []
    while system.baseline is not None:
        baselines.append(system.baseline)
        system = system_of(recipe, system.baseline)
    return baselines
