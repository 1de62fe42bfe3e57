"""The commands of ``docs/analysis.md``, and the page around what they printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis_texts import HEAD, TEXTS

#: How the three models are called in the page; their names are those of their folders.
MODELS = {
    "transformer": "stock fairseq's pre-norm `transformer`",
    "depthwise": "`depthwise_lstm_transformer` with `--log-gates`",
    "grown": "`sdt_transformer`, grown from half of its encoder's depth half-way",
}
LAST = "checkpoint_last.pt"


@dataclass(frozen=True)
class Section:
    """One subcommand: what is run, what of it is shown.

    Attributes:
        name: of the subcommand; its text is in ``analysis_texts.py``.
        title: of the section.
        commands: to run; ``{target}`` stands for the target language.
        hidden: commands that only prepare, run before these.
        shown: files that the commands printed to.
        figures: file of the work folder -> file of the page's figures.
    """

    name: str
    title: str
    commands: Sequence[str]
    hidden: Sequence[str] = ()
    shown: Sequence[str] = ()
    figures: Mapping[str, str] = field(default_factory=dict)

    def commands_for(self, target: str) -> list[str]:
        """All commands, in order."""
        return [command.format(target=target) for command in (*self.hidden, *self.commands)]


def _translations() -> list[str]:
    return [
        f"fairseq-depthwise generate data-bin --path {name}/{LAST} --beam 4 --lenpen 0.6 --max-tokens 4000 "
        f"--remove-bpe --cpu > {name}.generated"
        for name in MODELS
    ]


_CHECKPOINTS = " ".join(f"{name}/{LAST}" for name in MODELS)

SECTIONS = (
    Section(
        "probe",
        "What a layer's non-linearity is worth",
        (
            f"fairseq-depthwise probe transformer/{LAST} --compare depthwise/{LAST} --data data-bin --output probe "
            "--max-tokens-used 200000 --processes 2 --no-checkpoints > probe.txt",
        ),
        shown=("probe.txt",),
        figures={"probe/figure.svg": "analysis_probe.svg"},
    ),
    Section(
        "similarity",
        "How alike the layers' outputs are",
        (
            f"fairseq-depthwise similarity {_CHECKPOINTS} --data data-bin --output similarity.svg --force "
            "> similarity.txt",
        ),
        shown=("similarity.txt",),
        figures={"similarity.svg": "analysis_similarity.svg"},
    ),
    Section(
        "gates",
        "What the depth-wise cell does",
        (f"fairseq-depthwise gates depthwise/{LAST} --data data-bin --output gates.svg --force > gates.txt",),
        shown=("gates.txt",),
        figures={"gates.svg": "analysis_gates.svg"},
    ),
    Section(
        "score",
        "Scores",
        (
            *_translations(),
            "fairseq-depthwise score --ref test.{target} --detokenize {target} "
            + " ".join(f"{name}.generated" for name in MODELS)
            + " > sacrebleu.txt",
            *(
                f"fairseq-depthwise score --ref test.tok.{{target}} --metric {metric} depthwise.generated "
                f"> {metric}.txt"
                for metric in ("tokenized", "compound-split")
            ),
        ),
        shown=("sacrebleu.txt", "tokenized.txt", "compound-split.txt"),
    ),
    Section(
        "compare",
        "Is a difference more than chance?",
        (
            "fairseq-depthwise compare --ref test.{target} --detokenize {target} "
            + " ".join(f"{name}.generated" for name in MODELS)
            + " > compare.txt",
        ),
        shown=("compare.txt",),
    ),
    Section(
        "report",
        "A page of training runs",
        (
            "fairseq-depthwise report " + " ".join(f"{name}.log" for name in MODELS) + " --output report.html --force "
            "> report.txt",
        ),
        shown=("report.txt",),
    ),
)


def page(setup: Mapping[str, Any], trainings: Mapping[str, str], read: Callable[[str], str]) -> str:
    """The page as Markdown.

    Args:
        setup: options, sizes of the text, machine and versions.
        trainings: name of a model -> its command.
        read: the text of a file of the work folder.
    """
    return "\n".join(_lines(setup, trainings, read))


def _lines(setup: Mapping[str, Any], trainings: Mapping[str, str], read: Callable[[str], str]) -> Iterator[str]:
    source, target = setup["languages"]
    yield HEAD
    yield f"- Text: `$CORPORA/{setup['corpus']}`, {source} -> {target}; {setup['train']:,} pairs to train,"
    yield f"  {setup['valid']:,} to validate, {setup['test']:,} to test; joined dictionary of {setup['dictionary']:,}."
    layers = f"{setup['layers']} + {setup['layers']} layers"
    yield f"- Models: {layers}, width {setup['width']}, {setup['updates']} updates of at most {setup['max-tokens']}"
    yield f"  tokens, seed {setup['seed']}, one run of each: far too little training to say anything about the papers'"
    yield "  models."
    yield from (f"  `{name}` is {what}." for name, what in MODELS.items())
    yield f"- Machine: {setup['machine']}; threads of PyTorch: {setup['threads']}."
    yield f"- Versions: {setup['versions']}."
    yield ""
    yield "<details><summary>Trainings</summary>\n\n```sh"
    yield from trainings.values()
    yield "```\n\n</details>"
    for section in SECTIONS:
        yield f"\n## {section.title}\n"
        yield TEXTS[section.name]
        yield "\n```sh"
        yield from (command.format(target=target) for command in section.commands)
        yield "```"
        for name in section.shown:
            yield f"\n```text\n{_shortened(read(name))}```"
        for name in section.figures.values():
            yield f"\n![{section.title}](figures/{name})"
    yield ""


def _shortened(text: str) -> str:
    """Without trailing blanks, which tables have."""
    return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").split("\n"))
