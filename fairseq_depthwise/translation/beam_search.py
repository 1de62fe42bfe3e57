"""fairseq's beam search with models in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.iterative_refinement_generator import IterativeRefinementGenerator
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from fairseq.token_generation_constraints import pack_constraints
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.backends.graph_search import Graphs, GraphSearch, SearchLimits
from fairseq_depthwise.translation.alignment import cross_attention
from fairseq_depthwise.translation.constraints import ConstrainedSearch
from fairseq_depthwise.translation.languages import target_end, target_start
from fairseq_depthwise.translation.translation_options import BeamOptions


class Search:
    """A beam search over graphs; ``hidden`` are the tokens that are not text: ends of sentences, and languages."""

    def __init__(self, dictionary: Dictionary, limits: SearchLimits, graphs: Graphs | None) -> None:
        self.dictionary = dictionary
        self.limits = limits
        self._graphs = graphs
        self.hidden = {dictionary.bos(), dictionary.eos(), limits.start, *limits.prefix}

    def text(self, tokens: Tensor, post_process: str | None = None) -> str:
        """Return the text of a hypothesis (its tokens, T); fairseq's ``post_process`` joins subwords into words."""
        text: str = self.dictionary.string(tokens.int().cpu(), post_process, extra_symbols_to_ignore=self.hidden)
        return text

    def hypotheses(
        self, batch: dict[str, Any], constraints: Sequence[Sequence[Tensor]] | None = None
    ) -> list[list[dict[str, Any]]]:
        """Return the hypotheses of each sentence of a batch as fairseq does, the best first.

        Raises:
            UserError: there are constraints, which a search over graphs cannot obey.
        """
        if constraints is not None:
            raise UserError("--constraints is for checkpoints, and an exported folder has graphs; leave it out")
        assert self._graphs is not None
        search = GraphSearch(self._graphs, eos=self.dictionary.eos(), vocabulary=len(self.dictionary))
        return search(batch["net_input"]["src_tokens"], self.limits)


class BeamSearch(Search):
    """fairseq's search with one model, or several whose probabilities are averaged.

    The models are prepared for inference, after which they cannot be trained. If there are ``graphs`` of them, these
    are used, except for constraints. Models that refine whole translations iteratively, such as the Levenshtein
    Transformer, have one hypothesis per sentence.
    """

    def __init__(
        self,
        task: FairseqTask,
        models: Sequence[BaseFairseqModel],
        options: BeamOptions,
        device: torch.device,
        graphs: Graphs | None = None,
    ) -> None:
        cfg = options.cfg()
        for model in models:
            model.prepare_for_inference_(cfg)  # has no effect the second time
        self._task = task
        self._models = list(models)
        self._device = device
        self._options = options
        self._generator: Any = task.build_generator(self._models, cfg.generation)
        self.refines = isinstance(self._generator, IterativeRefinementGenerator)
        if self.refines:
            longest = min(model.max_decoder_positions() for model in models) - 1
        else:
            # fairseq's limit with --max-len-a 0; one position is kept for the end of the sentence.
            longest = int(min(self._generator.max_len_b, self._generator.max_len - 1))
        start, prefix = target_start(task)
        limits = SearchLimits(options.beam, options.length_penalty, longest, start, tuple(prefix))
        super().__init__(task.target_dictionary, limits, graphs)
        # mBART ends translations with a language token.
        self.hidden.add(target_end(task))

    @torch.no_grad()
    def hypotheses(
        self, batch: dict[str, Any], constraints: Sequence[Sequence[Tensor]] | None = None
    ) -> list[list[dict[str, Any]]]:
        """Return what :meth:`Search.hypotheses` does; those that meet all constraints, possibly none for a sentence."""
        # Graphs run on the CPU, so there is nothing to move.
        if constraints is None and self._graphs is not None:
            return super().hypotheses(batch)
        batch = self._moved(batch)
        if constraints is not None:
            return self._constrained_hypotheses(batch, constraints)
        hypotheses: list[list[dict[str, Any]]] = self._task.inference_step(self._generator, self._models, batch)
        return hypotheses

    def _constrained_hypotheses(
        self, batch: dict[str, Any], constraints: Sequence[Sequence[Tensor]]
    ) -> list[list[dict[str, Any]]]:
        """Search for hypotheses that meet all constraints.

        The generator is called directly, because fairseq's multilingual task refuses constraints or ignores them. It
        serves one batch only, because the search keeps a state for each hypothesis.
        """
        if self.refines:
            raise UserError("--constraints are for models that translate word by word; this one refines translations")
        prefix = self.limits.prefix
        generator: Any = self._task.build_generator(self._models, self._options.cfg().generation)
        order = self._options.constraints or "ordered"
        generator.search = ConstrainedSearch(self.dictionary, order, prefix=len(prefix), beam=generator.beam_size)
        generator.search.eos = target_end(self._task)
        source = batch["net_input"]["src_tokens"]
        prefix_tokens = source.new_tensor([prefix]).expand(len(source), -1) if prefix else None
        hypotheses: list[list[dict[str, Any]]] = generator.generate(
            self._models,
            batch,
            constraints=pack_constraints(constraints),
            bos_token=self.limits.start,
            prefix_tokens=prefix_tokens,
        )
        return hypotheses

    def attention(self, batch: dict[str, Any], hypotheses: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
        """Return :func:`cross_attention` of the tokens of a batch's hypotheses."""
        return cross_attention(self._models, self._moved(batch), hypotheses, self.limits.start)

    def _moved(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self._device.type != "cuda":
            return batch
        moved: dict[str, Any] = utils.move_to_cuda(batch, self._device)
        return moved
