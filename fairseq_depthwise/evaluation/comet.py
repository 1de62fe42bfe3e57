"""COMET (Rei et al. 2020): what a trained model thinks of translations, given their sources.

unbabel-comet computes it, an optional dependency. It loads models with PyTorch Lightning, which can run code in a
model's file; nothing here makes that safe. Nothing is downloaded.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from fairseq_compat.errors import UserError, first_line


@dataclass(frozen=True)
class CometScore:
    """A system's score.

    Attributes:
        score: as the model gives it, for current models mostly from 0 to 1; the mean over sentences.
        signature: the library's version and the model.
        sentence_scores: of each sentence.
    """

    score: float
    signature: str
    sentence_scores: list[float]


def comet_checkpoint(path: str) -> Path:
    """Return the checkpoint of a COMET model: a file, or that of a folder with ``checkpoints/model.ckpt``.

    Raises:
        UserError: there is none, or no ``hparams.yaml`` where the library looks for it.
    """
    if not os.path.exists(path):
        raise UserError(
            f"--comet-model {path} is not a file or folder, and nothing is downloaded; fetch the model first, as with "
            "`python -c \"import comet; print(comet.download_model('Unbabel/wmt22-comet-da'))\"`, and give the path"
        )
    checkpoint = Path(path, "checkpoints", "model.ckpt") if os.path.isdir(path) else Path(path)
    if not checkpoint.is_file():
        raise UserError(f"--comet-model {path} has no checkpoints/model.ckpt")
    options = checkpoint.absolute().parent.parent / "hparams.yaml"
    if not options.is_file():
        raise UserError(f"--comet-model {path}: {options} is missing; it belongs to the model")
    return checkpoint


class CometMetric:
    """A loaded COMET model.

    Args:
        path: of the model; a file that is trusted.

    Raises:
        UserError: the library is missing, or cannot load the model.
    """

    def __init__(self, path: str) -> None:
        checkpoint = comet_checkpoint(path)
        # Read by the libraries when they are imported: models name others, whose tokenizers they use.
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of its own dependencies
                comet = import_module("comet")
            load: Callable[..., Any] = comet.load_from_checkpoint
        except (ImportError, AttributeError) as error:
            raise UserError(
                "--metric comet needs unbabel-comet: pip install 'fairseq-depthwise[comet]', for Python up to 3.12 "
                f"({error})"
            ) from error
        for name in ("comet", "pytorch_lightning"):
            logging.getLogger(name).setLevel(logging.WARNING)
        try:
            self._model = load(str(checkpoint), local_files_only=True)
        except Exception as error:  # of every library that is below
            raise UserError(f"--comet-model {path} cannot be loaded: {first_line(error)}") from error
        name = checkpoint.absolute().parent.parent.name
        self.signature = f"comet:{getattr(comet, '__version__', 'unknown')}|model:{name}"

    @property
    def needs_reference(self) -> bool:
        """Whether sentences are compared with references; some models judge without."""
        return bool(self._model.requires_references())

    def score(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str] | None) -> CometScore:
        """Score a system, on a GPU if there is one.

        Args:
            sources: of the translations.
            hypotheses: the translations.
            references: for models that use them.
        """
        import torch  # not needed by other metrics

        samples = [{"src": source, "mt": text} for source, text in zip(sources, hypotheses, strict=True)]
        if references is not None:
            samples = [{**sample, "ref": text} for sample, text in zip(samples, references, strict=True)]
        found = self._model.predict(samples, batch_size=16, gpus=int(torch.cuda.is_available()), progress_bar=False)
        return CometScore(float(found.system_score), self.signature, list(map(float, found.scores)))
