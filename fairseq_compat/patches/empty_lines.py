"""Patches of what fairseq does with lines that have nothing in them."""

from __future__ import annotations

from typing import Any

import torch

from fairseq_compat.patching import Overlay, patch

#: More tokens than any task puts around a sentence.
_MOST_AROUND = 4


@patch("fairseq_cli.interactive")
def empty_lines_of_interactive(module: Any) -> None:
    """``fairseq-interactive`` invents a translation for an empty line. Here an empty line's is empty."""

    def setup_task(*args: Any, **kwargs: Any) -> Any:
        return leave_empty(tasks.setup_task(*args, **kwargs))

    tasks = module.tasks
    module.tasks = Overlay(tasks, setup_task=setup_task)


@patch("fairseq.hub_utils", function="GeneratorHubInterface.__init__")
def empty_texts_of_pretrained(original: Any, self: Any, cfg: Any, task: Any, models: Any) -> None:
    """``translate`` of a model of ``from_pretrained`` invents a translation for an empty text. Here it is empty."""
    original(self, cfg, leave_empty(task), models)


def leave_empty(task: Any) -> Any:
    """Return the task, which finds nothing for a source sentence with nothing in it.

    A language model has no source sentence: it goes on from nothing as from any beginning.
    """
    search = task.inference_step

    def inference_step(generator: Any, models: Any, sample: Any, *args: Any, **kwargs: Any) -> Any:
        hypotheses = search(generator, models, sample, *args, **kwargs)
        sources = sample["net_input"].get("src_tokens")
        if sources is None or not all(hasattr(model, "encoder") for model in models):
            return hypotheses
        nothing = None
        for number, padded in enumerate(sources.cpu()):
            tokens = padded[padded != task.source_dictionary.pad()]
            if len(tokens) > _MOST_AROUND:
                continue
            if nothing is None:
                nothing = _empty_sentence(task)
            if torch.equal(tokens, nothing):
                hypotheses[number] = [_nothing_but(task.target_dictionary.eos())]
        return hypotheses

    task.inference_step = inference_step
    return task


def _empty_sentence(task: Any) -> torch.Tensor:
    """Return the tokens that a model gets for an empty sentence: its end, and perhaps that of a language."""
    end = torch.tensor([task.source_dictionary.eos()])
    dataset = task.build_dataset_for_inference([end], [len(end)])
    tokens: torch.Tensor = dataset.collater([dataset[0]])["net_input"]["src_tokens"][0]
    return tokens


def _nothing_but(end: int) -> dict[str, Any]:
    """Return a hypothesis that ends at once, for certain."""
    return {
        "tokens": torch.tensor([end]),
        "score": torch.zeros(()),
        "positional_scores": torch.zeros(1),
        "attention": None,
        "alignment": [],
    }
