"""fairseq's beam search with models that are in memory already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from fairseq.token_generation_constraints import pack_constraints
from fairseq_cli.generate import get_symbols_to_strip_from_output
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.modules.decoding.graph_search import Graphs, GraphSearch, SearchLimits
from fairseq_depthwise.serving.directions import target_start
from fairseq_depthwise.serving.options import BeamOptions as BeamOptions
from fairseq_depthwise.serving.search.alignment import cross_attention
from fairseq_depthwise.serving.search.constraints import ConstrainedSearch


class _Search:
    """What is done with hypotheses: ``hidden`` are tokens that are no text, ends and those that name a language."""

    def __init__(self, dictionary: Dictionary, hidden: set[int]) -> None:
        self.dictionary, self.hidden = dictionary, hidden

    def text(self, tokens: Tensor, post_process: str | None = None) -> str:
        """Return the symbols of a hypothesis (its tokens, T) with spaces between them.

        ``post_process`` is fairseq's name for what makes words of subwords; None leaves the tokens as they are.
        """
        text: str = self.dictionary.string(tokens.int().cpu(), post_process, extra_symbols_to_ignore=self.hidden)
        return text


class BeamSearch(_Search):
    """One model or several whose probabilities are averaged, made ready for search; they can be trained no more."""

    def __init__(
        self, task: FairseqTask, models: Sequence[BaseFairseqModel], options: BeamOptions, device: torch.device
    ) -> None:
        cfg = options.cfg()
        for model in models:
            model.prepare_for_inference_(cfg)  # does nothing the second time
        self.task = task
        self.models = list(models)
        self.device = device
        self._options = options
        self._generator: Any = task.build_generator(self.models, cfg.generation)
        dictionary = task.target_dictionary
        stripped = get_symbols_to_strip_from_output(self._generator)
        super().__init__(dictionary, {dictionary.bos(), dictionary.eos(), *stripped})

    @property
    def longest(self) -> int:
        """Target tokens of a hypothesis at most, its end not counted: of the options, or of the models."""
        return int(min(self._generator.max_len_b, self._generator.max_len - 1))

    def hypotheses(self, batch: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """Return fairseq's hypotheses of each sentence of a batch, the best first: ``tokens``, ``score`` and so on.

        The batch is what a data set's ``collater`` made: ``net_input`` with ``src_tokens`` (B x T).
        """
        found: list[list[dict[str, Any]]] = self.task.inference_step(self._generator, self.models, self._moved(batch))
        return found

    @torch.no_grad()
    def constrained_hypotheses(
        self, batch: dict[str, Any], constraints: Sequence[Sequence[Tensor]]
    ) -> list[list[dict[str, Any]]]:
        """Return what :meth:`hypotheses` does, with all constraints in each; none where the search comes to none.

        Each sentence has at least one constraint, some tokens; the beam may be too large (UserError).
        """
        # fairseq's task of many languages refuses constraints, or leaves them out.
        start, prefix = target_start(self.task)
        # The search keeps a state for each hypothesis, so a generator is for one batch.
        generator: Any = self.task.build_generator(self.models, self._options.cfg().generation)
        order = self._options.constraints or "ordered"
        generator.search = ConstrainedSearch(
            self.task.target_dictionary, order, prefix=len(prefix), beam=generator.beam_size
        )
        moved = self._moved(batch)
        source = moved["net_input"]["src_tokens"]
        found: list[list[dict[str, Any]]] = generator.generate(
            self.models,
            moved,
            prefix_tokens=source.new_tensor([prefix]).expand(len(source), -1) if prefix else None,
            constraints=pack_constraints(constraints),
            bos_token=start,
        )
        return found

    def attention(self, batch: dict[str, Any], hypotheses: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
        """Return what :func:`cross_attention` does of the tokens of a batch's hypotheses."""
        start, _ = target_start(self.task)
        return cross_attention(self.models, self._moved(batch), hypotheses, start)

    def _moved(self, batch: dict[str, Any]) -> dict[str, Any]:
        moved: dict[str, Any] = utils.move_to_cuda(batch, self.device) if self.device.type == "cuda" else batch
        return moved


class GraphBeamSearch(_Search):
    """The same over graphs; ``models`` search where constraints or attention are asked for, None where there are graphs
    alone.
    """

    def __init__(
        self, graphs: Graphs, dictionary: Dictionary, limits: SearchLimits, models: BeamSearch | None = None
    ) -> None:
        self.longest = limits.max_length
        super().__init__(dictionary, {dictionary.bos(), dictionary.eos(), limits.start, *limits.prefix})
        self._limits, self._models = limits, models
        self._search = GraphSearch(graphs, eos=dictionary.eos(), vocabulary=len(dictionary))

    def hypotheses(self, batch: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """Return what :meth:`BeamSearch.hypotheses` does."""
        return [
            [
                {
                    "tokens": torch.tensor(hypothesis.tokens),
                    "score": hypothesis.score,
                    "positional_scores": torch.tensor(hypothesis.token_scores),
                }
                for hypothesis in sentence
            ]
            for sentence in self._search(batch["net_input"]["src_tokens"], self._limits)
        ]

    def constrained_hypotheses(self, *given: Any) -> list[list[dict[str, Any]]]:
        """Return what :meth:`BeamSearch.constrained_hypotheses` does."""
        return self._with_models().constrained_hypotheses(*given)

    def attention(self, *given: Any) -> list[list[Tensor]]:
        """Return what :meth:`BeamSearch.attention` does."""
        return self._with_models().attention(*given)

    def _with_models(self) -> BeamSearch:
        if self._models is None:
            raise UserError("constraints and alignments are for checkpoints, and the model was exported")
        return self._models
