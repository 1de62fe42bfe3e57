"""The decoder's cache of keys and values between the steps of a beam search.

A search has B sentences with k hypotheses (beams) each: N = B * k rows, and row ``b * k + j`` is beam j of sentence b.
The beams of a sentence are treated as k queries over one set of keys:

- Encoder keys and values are computed and stored once per sentence, not per beam.
- The keys and values of earlier target positions are written once and never moved. All k keys of each step stay in the
  cache, and a mask shows a beam those of its own ancestors: when the search reorders beams, only the numbers of the
  ancestors are reordered. (fairseq's own decoder copies every key and value of every layer at every step.)

On a CPU everything is stored in float32, even for models in 16 bits: PyTorch's matrix multiplications for a few queries
take longer in 16 bits there, although they read half as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.attention import KeysValues, additive_mask

#: Target positions that are allocated at first; the buffer doubles when it is full.
_FIRST_STEPS = 32


class StepCache:
    """The interface of attention to the cache of a decoding step; subclasses decide how keys and values are stored.

    Attributes:
        sentences: B.
        beams: k.
        dtype: type of keys, values and masks.
        use_matmul: whether attention is faster by matrix multiplications than by PyTorch's fused kernel.
        source_mask: additive, B x 1 x 1 x S; None without padding.
        ancestor_mask: additive, B x 1 x k x keys: shows each beam only its ancestors; None where nothing is hidden.
        newest: the newest position, counted from 0; a tensor of one number.
        positions: the position of each key of :meth:`append`.
    """

    sentences: int
    beams: int
    dtype: torch.dtype
    use_matmul: bool
    source_mask: Tensor | None
    ancestor_mask: Tensor | None
    newest: Tensor
    positions: Tensor

    def __init__(self) -> None:
        self._shared: dict[tuple[str, int], Tensor] = {}

    def group_beams(self, projected: Tensor, heads: int) -> Tensor:
        """Reshape 1 x N x C to B x heads x k x head_dim: the beams of a sentence become its positions."""
        split = projected.view(self.sentences, self.beams, heads, projected.size(2) // heads)
        return split.transpose(1, 2).to(self.dtype)

    def compute_once(self, name: tuple[str, int], compute: Callable[[], Tensor]) -> Tensor:
        """Return ``compute()``, which is the same in all layers; only the first layer of a step computes it."""
        if name not in self._shared:
            self._shared[name] = compute()
        return self._shared[name]

    def append(self, attention: nn.Module, newest: KeysValues) -> Sequence[KeysValues]:
        """Add the newest position of every row (B x heads x k x head_dim) and return all, in parts."""
        raise NotImplementedError  # abstract: a search's cache grows, that of graphs has a fixed shape

    def encoder(self, attention: nn.Module, compute: Callable[[Tensor], KeysValues]) -> KeysValues:
        """Return keys and values of the encoder's output, which ``compute`` makes of it (S x B x C)."""
        raise NotImplementedError  # abstract: a search's cache grows, that of graphs has a fixed shape


class DecodingCache(StepCache):
    """Keys and values of every attention of a decoder, for one beam search.

    It begins with the encoder's output (S x B x C, once per sentence), its padding (B x S, True at padding) or None,
    and the sentence that each row of the search belongs to (N).
    """

    def __init__(self, source: Tensor, padding: Tensor | None, rows: Tensor) -> None:
        super().__init__()
        beams = rows.size(0) // max(source.size(1), 1)
        in_order = torch.arange(source.size(1), device=rows.device).repeat_interleave(beams)
        if not torch.equal(rows, in_order):
            # Not k neighboring rows for each sentence: every row becomes a sentence of its own.
            source, beams = source.index_select(1, rows), 1
            padding = None if padding is None else padding.index_select(0, rows)
        self.sentences, self.beams = source.size(1), beams
        self.source = source
        on_cpu = source.device.type == "cpu"
        self.dtype = torch.promote_types(source.dtype, torch.float32) if on_cpu else source.dtype
        self.source_mask = None if padding is None else additive_mask(padding, self.dtype)[:, None, None, :]
        #: The number of target positions so far, the newest included.
        self.steps = 0
        #: N x steps: which beam of its sentence held row n's hypothesis at each step; of several beams.
        self.ancestors = torch.empty(rows.size(0), 0, dtype=torch.long, device=source.device)
        self.ancestor_mask = None
        self._self_attention: dict[nn.Module, KeysValues] = {}
        self._encoder: dict[nn.Module, KeysValues] = {}

    def begin_step(self) -> None:
        """Extend the buffers by the next target position of every row."""
        # The fused CPU kernel works on blocks of at least 32 queries, more than a sentence has beams. For several
        # sentences, matrix multiplications take a third to two thirds of its time.
        self.use_matmul = self.source.device.type == "cpu" and self.sentences > 1
        self.steps += 1
        self.positions = torch.arange(self.steps * self.beams, device=self.source.device) // self.beams
        self.newest = self.positions[-1:]
        self._shared.clear()
        if self.beams > 1:
            beam = torch.arange(self.beams, device=self.ancestors.device).repeat(self.sentences)
            self.ancestors = torch.cat([self.ancestors, beam[:, None]], dim=1)
            hidden = torch.ones(*self.ancestors.shape, self.beams, dtype=torch.bool, device=self.ancestors.device)
            hidden.scatter_(2, self.ancestors[:, :, None], False)
            hidden = hidden.view(self.sentences, 1, self.beams, self.steps * self.beams)
            self.ancestor_mask = additive_mask(hidden, self.dtype)

    def append(self, attention: nn.Module, newest: KeysValues) -> Sequence[KeysValues]:
        """Return one part, B x heads x (steps * k) x head_dim each: step by step, and in each beam by beam."""
        start, end = (self.steps - 1) * self.beams, self.steps * self.beams
        stored = self._self_attention.get(attention)
        if stored is None or stored.keys.size(2) < end:
            stored = self._self_attention[attention] = KeysValues(
                *(self._extend_buffer(stored, index, newest.keys) for index in (0, 1))
            )
        for buffer, new in zip(stored, newest, strict=True):
            buffer.narrow(2, start, self.beams).copy_(new)
        return (KeysValues(stored.keys.narrow(2, 0, end), stored.values.narrow(2, 0, end)),)

    def _extend_buffer(self, stored: KeysValues | None, index: int, like: Tensor) -> Tensor:
        steps = _FIRST_STEPS if stored is None else 2 * stored[index].size(2) // self.beams
        buffer = like.new_empty(self.sentences, like.size(1), steps * self.beams, like.size(3))
        if stored is not None:
            buffer[:, :, : stored[index].size(2)] = stored[index]
        return buffer

    def encoder(self, attention: nn.Module, compute: Callable[[Tensor], KeysValues]) -> KeysValues:
        if attention not in self._encoder:
            self._encoder[attention] = KeysValues(*(tensor.to(self.dtype) for tensor in compute(self.source)))
        return self._encoder[attention]

    def reorder(self, new_order: Tensor) -> None:
        """Follow the search: row n continues the old row ``new_order[n]`` (N', on the cache's device).

        Every row must stay with its sentence, as in all of fairseq's searches.
        """
        by_sentence = new_order.view(-1, self.beams) // self.beams
        if self.beams > 1:
            if not bool((by_sentence == by_sentence[:, :1]).all()):
                raise ValueError("a hypothesis continues one of another sentence")
            self.ancestors = self.ancestors.index_select(0, new_order)
        unfinished = by_sentence[:, 0]
        if not torch.equal(unfinished, torch.arange(self.sentences, device=unfinished.device)):
            self._select_sentences(unfinished)

    def _select_sentences(self, sentences: Tensor) -> None:
        """Drop all sentences but these; the search has finished the others."""
        self.source, self.sentences = self.source.index_select(1, sentences), sentences.size(0)
        if self.source_mask is not None:
            self.source_mask = self.source_mask.index_select(0, sentences)
        for stored in (self._self_attention, self._encoder):
            for attention, pair in stored.items():
                stored[attention] = KeysValues(*(tensor.index_select(0, sentences) for tensor in pair))
