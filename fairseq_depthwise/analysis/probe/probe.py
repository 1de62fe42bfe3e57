"""What each layer's non-linearity is worth: fit linear maps, put each in its layer's place, translate, score.

Source: "Multi-Layer Transformers with Depth-Wise LSTMs" (the first version of "Rewiring the Transformer with
Depth-Wise LSTMs"), Sections 4 and 5.5, Tables 6 and 7.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from fairseq_compat import UserError
from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.analysis.probe.checkpoint import write_linearized
from fairseq_depthwise.analysis.probe.fit import choose_batches, fits_of, merge_moments
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit
from fairseq_depthwise.analysis.probe.record import NONE, Fits, ProbeRecord, ProbeRow, digest_of
from fairseq_depthwise.analysis.probe.translating import SearchOptions, references_of
from fairseq_depthwise.analysis.probe.workers import Work, Workers, load_trained
from fairseq_depthwise.evaluation.scores import Score, TranslationMetric
from fairseq_depthwise.models.linearized.model import SIDES, depths_of, layers_named, passes_pairs, width_of
from fairseq_depthwise.serving.text_codec import post_process_for


@dataclass(frozen=True)
class ProbeOptions:
    """What to do with a model.

    Attributes:
        data: the binarised data.
        layers: which ones to replace, ``encoder.1,decoder.6`` or ``all``.
        states: for layers that pass on a pair, what of it to map, of ``linearized_layer.STATES``.
        train_subset: part of the data to fit on.
        max_tokens_used: how much of it, in target tokens; 0 takes all.
        max_tokens: size of a batch.
        subset, beam, length_penalty: what to translate, and how.
        post_process: fairseq's name for what makes words of subwords; None finds out from the dictionary.
        metric, tokenize: how to score, as ``fairseq-depthwise score``.
        checkpoints: write a checkpoint for each row.
        processes: how many.
        cpu: leave GPUs alone.
    """

    data: str
    layers: str = "all"
    states: tuple[str, ...] = ("pair", "output")
    train_subset: str = "train"
    max_tokens_used: int = 1_000_000
    max_tokens: int = 4096
    subset: str = "test"
    beam: int = 4
    length_penalty: float = 0.6
    post_process: str | None = None
    metric: str = "tokenized"
    tokenize: str = "13a"
    checkpoints: bool = True
    processes: int = 1
    cpu: bool = False


@dataclass(frozen=True)
class ProbedModel:
    """What a probe found.

    Attributes:
        checkpoint: the file.
        architecture: as given in training.
        depths: layers of each side.
        rows: the first has nothing replaced; then each layer, each state.
    """

    checkpoint: str
    architecture: str
    depths: dict[str, int]
    rows: tuple[ProbeRow, ...]

    @property
    def states(self) -> tuple[str, ...]:
        """What was mapped: "" for models whose layers pass on one vector."""
        return tuple(dict.fromkeys(row.state for row in self.rows[1:]))

    def change(self, row: ProbeRow) -> float | None:
        """The score relative to that of the whole model, in per cent; negative for a loss."""
        whole = self.rows[0].score
        return 100 * (row.score - whole) / whole if whole else None


class Progress:
    """What a probe tells of itself; says nothing unless its methods are overridden."""

    def say(self, text: str) -> None:
        """A step begins or has ended."""

    def counter(self, unit: str, *, lines: int) -> Callable[[int, int], None]:
        """What is called with how much of a step is done, and of how much.

        Args:
            unit: what is counted.
            lines: how many lines of a log file the step is worth.
        """
        return lambda done, total: None


@dataclass(frozen=True)
class PreparedProbe:
    """A model and its data, of which is known that they can be probed.

    Attributes:
        checkpoint: the file.
        options: what to do.
        loaded: the model with the data.
        depths: layers of each side.
        layers: names of those to replace.
        states: what of their states to map, each in rows of its own.
        search: how to translate.
        metric: how to score.
        references: of the sentences to translate.
    """

    checkpoint: str
    options: ProbeOptions
    loaded: LoadedModel
    depths: dict[str, int]
    layers: tuple[str, ...]
    states: tuple[str, ...]
    search: SearchOptions
    metric: TranslationMetric
    references: list[str]

    def open(self, folder: str, *, force: bool = False) -> ProbeRecord:
        """Begin in a folder, or go on in one that an earlier call left.

        Args:
            folder: where everything is written.
            force: forget what an earlier call left there.

        Raises:
            UserError: the folder cannot be used.
        """
        return ProbeRecord.open(folder, _settings(self.checkpoint, self.options, self.search), force=force)


def prepare(checkpoint: str, options: ProbeOptions) -> PreparedProbe:
    """Load a model and its data; all that is wrong with them is found here, before hours of work.

    Args:
        checkpoint: of one of our families, or of fairseq's own ``transformer``.
        options: what to do.

    Raises:
        UserError: the checkpoint or the data cannot be used, or a layer does not exist.
    """
    loaded = load_trained(checkpoint, options.data)
    depths = depths_of(loaded.model)
    layers = layers_named(options.layers, depths, f"--layers {options.layers}", checkpoint)
    try:
        loaded.sentences(options.train_subset)
    except UserError as error:
        raise UserError(str(error).replace("--subset", "--train-subset", 1)) from error
    search = _search(loaded, options)
    return PreparedProbe(
        checkpoint=checkpoint,
        options=options,
        loaded=loaded,
        depths=depths,
        layers=tuple(layers),
        states=options.states if passes_pairs(loaded.model) else ("",),
        search=search,
        metric=TranslationMetric(options.metric, tokenize=options.tokenize),
        references=references_of(loaded, search),
    )


def probe(ready: PreparedProbe, record: ProbeRecord, progress: Progress | None = None) -> ProbedModel:
    """Probe a model; what an earlier call finished in the folder is not done again.

    Args:
        ready: what to probe.
        record: of its folder.
        progress: is told of the steps.

    Raises:
        UserError: the model computes what is not a number, or a process died.
    """
    told = progress or Progress()
    options, loaded = ready.options, ready.loaded
    work = Work(ready.checkpoint, options.data, ready.layers, options.train_subset, ready.search, options.cpu)
    wanted = [(NONE, ""), *((layer, state) for state in ready.states for layer in ready.layers)]
    with Workers(work, loaded, options.processes) as workers:
        fits = _fit(record, loaded, workers, options, ready.layers, told)
        if options.checkpoints:
            _write_checkpoints(record, ready.checkpoint, {key: fits[key] for key in wanted[1:]}, told)
        missing = [key for key in wanted if record.row(*key) is None]
        rows = [(None if layer == NONE else layer, state, fits.get((layer, state))) for layer, state in missing]
        for number, hypotheses in workers.translate(rows, told.counter("sentences", lines=0)):
            layer, state = missing[number]
            record.write_hypotheses(layer, state, hypotheses)
            score = ready.metric.score(hypotheses, [ready.references])
            record.add(_row(layer, state, score, fits.get((layer, state))))
            told.say(f"{layer}{f', {state}' if state else ''}: {score.name} {score.score:.2f}")
    found = [record.row(*key) for key in wanted]
    return ProbedModel(
        ready.checkpoint, loaded.architecture, ready.depths, tuple(row for row in found if row is not None)
    )


def _fit(
    record: ProbeRecord,
    loaded: LoadedModel,
    workers: Workers,
    options: ProbeOptions,
    layers: Sequence[str],
    told: Progress,
) -> Fits:
    """The maps, from the folder or from one pass over the data."""
    fits = record.fits()
    if all(any(layer == one for one, _ in fits) for layer in layers):
        return fits
    batches = choose_batches(
        loaded, options.train_subset, max_tokens_used=options.max_tokens_used, max_tokens=options.max_tokens
    )
    sizes = loaded.sentences(options.train_subset).tgt_sizes
    total = int(sum(sizes[number] for batch in batches for number in batch))
    told.say(f"fitting {len(layers)} layers on {total:,} target tokens of {options.train_subset}")
    counter = told.counter("tokens", lines=10)
    moments = merge_moments(workers.collect(batches, lambda tokens: counter(tokens, total)))
    widths = {side: width_of(loaded.model, side) for side in SIDES}
    fits = fits_of(moments, widths, loaded.path) | fits  # finished rows are of the earlier maps
    record.write_fits(fits)
    return fits


def _write_checkpoints(record: ProbeRecord, checkpoint: str, fits: Fits, told: Progress) -> None:
    for (layer, state), fit in fits.items():
        path = record.checkpoint_of(layer, state)
        if not os.path.exists(path):
            write_linearized(checkpoint, path, layer, state, fit)
    told.say(f"checkpoints with one layer replaced are in {os.path.dirname(path)}")


def _row(layer: str, state: str, score: Score, fit: LinearFit | None) -> ProbeRow:
    of_fit = {} if fit is None else {name: getattr(fit, name) for name in ("error", "unexplained", "positions")}
    return ProbeRow(layer, state, score.score, score.name, score.signature, **of_fit)


def _search(loaded: LoadedModel, options: ProbeOptions) -> SearchOptions:
    return SearchOptions(
        subset=options.subset,
        beam=options.beam,
        length_penalty=options.length_penalty,
        max_tokens=options.max_tokens,
        post_process=options.post_process or post_process_for(loaded.task.target_dictionary),
    )


def _settings(checkpoint: str, options: ProbeOptions, search: SearchOptions) -> dict[str, object]:
    """All that a finished row or map depends on. More layers or states may be asked for later."""
    return {
        "checkpoint": os.path.basename(checkpoint),
        "checksum": digest_of(checkpoint),
        "data": os.path.abspath(options.data),
        "train_subset": options.train_subset,
        "max_tokens_used": options.max_tokens_used,
        **{name: value for name, value in asdict(search).items() if name != "max_tokens"},
        "metric": options.metric,
        "tokenize": options.tokenize,
    }
