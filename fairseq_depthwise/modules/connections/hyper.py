"""Several residual streams, which each layer reads, writes and mixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import permutations, product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_depthwise.modules.connections.sources import source_names
from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape


class HyperState(NamedTuple):
    """``streams``: T x B x n x d; ``stream``, ``write``, ``mixed``: what the next layer reads (T x B x d), how its
    result is written (T x B x n), and what the streams are without it (T x B x n x d); None above the last layer."""

    streams: Tensor
    stream: Tensor
    write: Tensor
    mixed: Tensor


class HyperConnection(Connection):
    """Hyper-connections: of n streams X, layer F makes ``H_res X + H_post F(H_pre X)``.

    Source: "Hyper-Connections" (Zhu et al. 2024, arXiv 2409.19606), Equations 2 to 13, with dynamic weights; with
    ``shape.manifold`` "mHC: Manifold-Constrained Hyper-Connections" (arXiv 2512.24880), where H_res is doubly
    stochastic. F is what a layer adds to what it reads. Every stream starts as the embedding, and the output is the
    layer norm of their mean. At first the streams are equal and stay so, which is the plain pre-norm Transformer.
    """

    has_units = True

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.streams = shape.streams
        kind = Mixing if shape.manifold == "none" else partial(ManifoldMixing, shape.manifold)
        self.of_layers = {"mixings": OfLayers(units=self.units)}
        self.mixings = nn.ModuleList(kind(shape.embed_dim, shape.streams, index) for index in range(shape.layers))

    def initial_state(self, embedded: Tensor) -> HyperState:
        return self._read(embedded.unsqueeze(-2).expand(*embedded.shape[:-1], self.streams, -1), 0)

    def update(self, state: HyperState, index: int, output: Tensor) -> HyperState:
        added = (output - state.stream).unsqueeze(-2)
        return self._read(torch.addcmul(state.mixed, state.write.unsqueeze(-1), added), index + 1)

    def representation(self, state: HyperState) -> Tensor:
        return state.streams.mean(dim=-2)

    def source_weights(self, states: Sequence[HyperState]) -> dict[str, Tensor]:
        """Return the weight of the embedding and of what each layer below has added, T x B each, over all streams."""
        held = [torch.ones_like(states[0].streams[..., 0])]  # of each source in each stream: T x B x n
        for mixing, state in zip(self.mixings, states[:-1], strict=False):
            _, write, mix = mixing(state.streams)
            held = [*(part if mix is None else (mix @ part.unsqueeze(-1)).squeeze(-1) for part in held), write]
        read = torch.full_like(held[0], 1 / self.streams)  # of the stack's output
        if len(states) <= len(self.mixings):
            read, _, _ = self.mixings[len(states) - 1](states[-1].streams)
        return dict(zip(source_names(len(held), units=self.units), ((read * one).sum(-1) for one in held), strict=True))

    def source_parts(self, states: Sequence[HyperState]) -> dict[str, Tensor]:
        """Return what is read of the embedding, and of what each layer below has added: H_pre H_res ... H_post F."""
        held = [states[0].streams]  # of each source in each stream: T x B x n x d
        for mixing, state, above in zip(self.mixings, states, states[1:], strict=False):
            _, _, mix = mixing(state.streams)
            held = [*(part if mix is None else mix @ part for part in held), above.streams - state.mixed]
        read = torch.full_like(held[0][..., 0], 1 / self.streams)  # of the stack's output
        if len(states) <= len(self.mixings):
            read, _, _ = self.mixings[len(states) - 1](states[-1].streams)
        parts = ((read.unsqueeze(-2) @ part).squeeze(-2) for part in held)
        return dict(zip(source_names(len(held), units=self.units), parts, strict=True))

    def _read(self, streams: Tensor, index: int) -> HyperState:
        if index == len(self.mixings):
            return HyperState(streams, streams[..., 0, :], streams[..., 0], streams)
        read, write, mix = self.mixings[index](streams)
        mixed = streams if mix is None else mix @ streams
        return HyperState(streams, (read.unsqueeze(-2) @ streams).squeeze(-2), write, mixed)


class Mixing(nn.Module):
    """H_pre, H_post and H_res of a layer: static, and ``s * tanh(LN(X) W)`` on top, with W 0 and s 0.01 at first.

    Layer ``index`` reads stream ``index mod n`` at first, and writes to all.
    """

    def __init__(self, embed_dim: int, streams: int, index: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        #: Columns: read, write, and n of the matrix; a row for each stream.
        self.weight = nn.Parameter(torch.zeros(streams + 2, embed_dim))
        self.scales = nn.Parameter(torch.full((2,), 0.01))
        read = F.one_hot(torch.tensor(index % streams), streams).float()
        self.static = nn.Parameter(torch.cat([read[:, None], torch.ones(streams, 1), torch.eye(streams)], dim=1))

    def forward(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return H_pre and H_post, T x B x n each, and H_res, T x B x n x n, for streams T x B x n x d."""
        dynamic = F.linear(self.norm(streams), self.weight).tanh()  # T x B x n x (n + 2)
        reading, writing = self.scales.unbind()
        scale = torch.cat([reading[None], writing[None], reading.expand(streams.size(-2))])
        weights = self.static + dynamic * scale
        # Row i of the static matrix says where stream i goes.
        return weights[..., 0], weights[..., 1], weights[..., 2:].transpose(-1, -2)


class ManifoldMixing(nn.Module):
    """The same of mHC: H_pre between 0 and 1, H_post between 0 and 2, H_res doubly stochastic.

    All are made of ``a * RMSNorm(vec X) W + b``, with W 0 and a 0.01 at first; b is such that H_pre is 1/n, H_post 1
    and H_res close to the identity. H_res goes through twenty rounds of Sinkhorn's normalization; or is the mean of all
    n! permutations, weighed by a softmax (mHC-lite, arXiv 2601.05732); or is the identity.
    """

    places: Tensor

    def __init__(self, kind: str, embed_dim: int, streams: int, index: int) -> None:
        super().__init__()
        self.kind = kind
        starts = [torch.full((streams,), -math.log(max(streams - 1, 1e-4))), torch.zeros(streams)]
        if kind != "identity":
            self.identity_on_top = "--hyper-manifold"  # at first H_res is not quite it, but keeps the mean of streams
        if kind == "sinkhorn":
            starts.append(8 * torch.eye(streams).flatten())
        elif kind == "permutations":
            orders = list(enumerate(permutations(range(streams))))  # the identity first
            starts.append(8 * torch.eye(1, len(orders))[0])
            cells = product(range(streams), repeat=2)
            #: For each number of H_res, row by row, the (n - 1)! permutations that have a 1 there.
            places = [number for row, column in cells for number, order in orders if order[row] == column]
            self.register_buffer("places", torch.tensor(places), persistent=False)
        self.sizes = [len(start) for start in starts]
        self.weight = nn.Parameter(torch.zeros(sum(self.sizes), streams * embed_dim))
        self.scales = nn.Parameter(torch.full((len(starts),), 0.01))
        self.bias = nn.Parameter(torch.cat(starts))

    def forward(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return what :meth:`Mixing.forward` does, None in place of the identity."""
        square, dtype = 2 * (streams.size(-2),), streams.dtype
        flat = streams.flatten(-2)
        dynamic = F.linear(F.rms_norm(flat, flat.shape[-1:]), self.weight)
        dynamic = dynamic.to(torch.promote_types(dynamic.dtype, torch.float32))
        scale = torch.cat([scale.expand(size) for scale, size in zip(self.scales, self.sizes, strict=True)])
        read, write, *mix = (dynamic * scale + self.bias).split(self.sizes, dim=-1)
        matrix = None
        if self.kind == "sinkhorn":
            logits = mix[0].unflatten(-1, square)
            for _ in range(20):
                logits = logits - logits.logsumexp(dim=-1, keepdim=True)
                logits = logits - logits.logsumexp(dim=-2, keepdim=True)
            matrix = logits.exp().to(dtype)
        elif self.kind == "permutations":
            weights = mix[0].softmax(dim=-1).index_select(-1, self.places)
            matrix = weights.unflatten(-1, (*square, -1)).sum(dim=-1).to(dtype)
        return read.sigmoid().to(dtype), (2 * write.sigmoid()).to(dtype), matrix
