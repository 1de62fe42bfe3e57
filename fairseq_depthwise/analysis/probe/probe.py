"""The linearization probe: fit linear layers, replace one layer at a time, translate and score.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Sections 4 and 5.5, Tables 6 and 7.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.belonging import file_digest
from fairseq_depthwise.analysis.loaded_model import LoadedModel, load_trained
from fairseq_depthwise.analysis.probe.fit import ModelMoments, choose_batches, fits_of, merge_moments
from fairseq_depthwise.analysis.probe.record import NONE, Fits, ProbeRecord, ProbeRow
from fairseq_depthwise.analysis.probe.workers import ProbeOptions, Run, running_workers
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.models.linearized.model import SIDES, depths_of, layers_named, passes_pairs, width_of
from fairseq_depthwise.serving.text_codec import post_process_for

#: Options that finished rows depend on. More layers or states may be requested later.
_SETTINGS = (
    *("train_subset", "max_tokens_used", "subset", "beam", "length_penalty", "post_process", "metric", "tokenize"),
)

#: The data is cut into at least so many shares, after each of which progress is reported.
_SHARES = 10


@dataclass(frozen=True)
class ProbedModel:
    """The results of a probe.

    Attributes:
        checkpoint: the file.
        architecture: as given in training.
        depths: number of layers of each side.
        rows: the first without a replaced layer; then each layer, for each state.
    """

    checkpoint: str
    architecture: str
    depths: dict[str, int]
    rows: tuple[ProbeRow, ...]

    @property
    def states(self) -> tuple[str, ...]:
        """The states of the rows: "" for models whose layers have one output."""
        return tuple(dict.fromkeys(row.state for row in self.rows[1:]))

    def change(self, row: ProbeRow) -> float | None:
        """Return the change of the score relative to the intact model, in per cent; negative for a loss."""
        intact = self.rows[0].score
        return 100 * (row.score - intact) / intact if intact else None


@dataclass(frozen=True)
class PreparedProbe:
    """A model and its data, checked before hours of work.

    Attributes:
        checkpoint: the file.
        options: how to probe, with ``post_process``.
        loaded: the model with the data.
        depths: number of layers of each side.
        layers: names of the layers to replace.
        states: which of their states to replace, each in rows of its own.
        metric: how to score.
        references: of the sentences to translate.
    """

    checkpoint: str
    options: ProbeOptions
    loaded: LoadedModel
    depths: dict[str, int]
    layers: tuple[str, ...]
    states: tuple[str, ...]
    metric: TranslationMetric
    references: list[str]

    def open(self, folder: str, *, force: bool = False) -> ProbeRecord:
        """Begin in a folder, or continue in that of an earlier call; with ``force`` remove its results.

        Raises:
            UserError: the folder cannot be used.
        """
        settings = {
            "checkpoint": os.path.basename(self.checkpoint),
            "checksum": file_digest(self.checkpoint),
            "data": os.path.abspath(self.options.data),
            **{name: getattr(self.options, name) for name in _SETTINGS},
        }
        return ProbeRecord.open(folder, settings, force=force)


def prepare(checkpoint: str, options: ProbeOptions) -> PreparedProbe:
    """Load a model and its data, and check everything that can be checked.

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
    post_process = options.post_process or post_process_for(loaded.task.target_dictionary)
    return PreparedProbe(
        checkpoint=checkpoint,
        options=replace(options, post_process=post_process),
        loaded=loaded,
        depths=depths,
        layers=tuple(layers),
        states=options.states if passes_pairs(loaded.model) else ("",),
        metric=TranslationMetric(options.metric, tokenize=options.tokenize),
        references=_references(loaded, options.subset, post_process),
    )


def probe(ready: PreparedProbe, record: ProbeRecord, say: Callable[[str], None] = lambda line: None) -> ProbedModel:
    """Probe a model, without repeating what an earlier call finished in the folder.

    Args:
        ready: the model.
        record: of its folder.
        say: called with a line about each finished step.

    Raises:
        UserError: the model computes values that are not finite, or a process died.
    """
    keys = [(NONE, ""), *((layer, state) for state in ready.states for layer in ready.layers)]
    with running_workers(ready.loaded, ready.layers, ready.options) as run:
        fits = record.fits()
        if not {layer for layer, _ in fits}.issuperset(ready.layers):
            fits = _fit(ready, run, say) | fits  # finished rows have the earlier fits
            record.write_fits(fits)
        if ready.options.checkpoints:
            folder = record.write_checkpoints(ready.checkpoint, {key: fits[key] for key in keys[1:]})
            say(f"checkpoints with one layer replaced are in {folder}")
        missing = [key for key in keys if record.row(*key) is None]
        translated = run("translate", [(*key, fits.get(key)) for key in missing])
        for (layer, state), hypotheses in zip(missing, translated, strict=True):
            score = ready.metric.score(hypotheses, [ready.references])
            row = ProbeRow(layer, state, score.score, score.name, score.signature)
            if (fit := fits.get((layer, state))) is not None:
                row = replace(row, error=fit.error, unexplained=fit.unexplained, positions=fit.positions)
            record.add(row, hypotheses)
            say(f"{layer}{f', {state}' if state else ''}: {score.name} {score.score:.2f}")
    rows = {(row.layer, row.state): row for row in record.rows}
    return ProbedModel(ready.checkpoint, ready.loaded.architecture, ready.depths, tuple(map(rows.__getitem__, keys)))


def _fit(ready: PreparedProbe, run: Run, say: Callable[[str], None]) -> Fits:
    """Fit linear layers in one pass over the data."""
    options, loaded = ready.options, ready.loaded
    batches = choose_batches(
        loaded, options.train_subset, max_tokens_used=options.max_tokens_used, max_tokens=options.max_tokens
    )
    count = options.processes * -(-_SHARES // options.processes)
    shares = [share for number in range(count) if (share := batches[number::count])]
    sizes: Any = loaded.sentences(options.train_subset).tgt_sizes
    tokens = [int(sum(sizes[number] for batch in share for number in batch)) for share in shares]
    say(f"fitting {len(ready.layers)} layers on {sum(tokens):,} target tokens of {options.train_subset}")
    moments: ModelMoments = {}
    for number, part in enumerate(run("collect", [(share,) for share in shares]), start=1):
        merge_moments(moments, part)
        say(f"  {sum(tokens[:number]):,} of {sum(tokens):,} tokens")
    return fits_of(moments, {side: width_of(loaded.model, side) for side in SIDES}, loaded.path)


def _references(loaded: LoadedModel, subset: str, post_process: str | None) -> list[str]:
    """Return the target side of a part of the data as words; unknown ones are ``<<unk>>``, which no translation has."""
    dataset: Any = loaded.sentences(subset)
    if getattr(dataset, "tgt", None) is None:
        raise UserError(f"--subset {subset} of {loaded.data} has no references, so nothing can be scored")
    dictionary = loaded.task.target_dictionary
    return [
        dictionary.string(dataset[index]["target"].int(), post_process, escape_unk=True)
        for index in range(len(dataset))
    ]
