"""Several residual streams, which each layer reads, writes and mixes."""

from __future__ import annotations

import math
from functools import partial
from itertools import permutations
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape

#: Number of Sinkhorn iterations in mHC.
_SINKHORN_ROUNDS = 20

#: Initial logit of the identity among the matrices that mix the streams; the others have 0.
_IDENTITY_LOGIT = 8


class HyperState(NamedTuple):
    """What runs up the stack. Above the last layer only ``streams`` means anything.

    Attributes:
        streams: X, T x B x n x d.
        stream: H_pre X, what the next layer reads, T x B x d.
        write: H_post, how much of the next layer's result each stream gets, T x B x n.
        mixed: H_res X, the streams without that result, T x B x n x d.
    """

    streams: Tensor
    stream: Tensor
    write: Tensor
    mixed: Tensor


class HyperConnection(Connection):
    """Hyper-connections: of n streams X, layer F makes ``H_res X + H_post F(H_pre X)``.

    Source: "Hyper-Connections" (Zhu et al. 2024, arXiv 2409.19606), Equations 2 to 13, with dynamic weights; with
    ``shape.manifold`` "mHC: Manifold-Constrained Hyper-Connections" (arXiv 2512.24880), where H_res is doubly
    stochastic. F is what a layer adds to what it reads. Every stream starts as the embedding, and the output is the
    layer norm of their mean. Initially all streams are equal and stay so, which is the plain pre-norm Transformer.
    """

    has_sublayers = True

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.streams = shape.streams
        build_mixing = Mixing if shape.manifold == "none" else partial(ManifoldMixing, shape.manifold)
        self.of_layers = {"mixings": OfLayers(sublayers=shape.sublayers)}
        self.mixings = nn.ModuleList(
            build_mixing(shape.embed_dim, shape.streams, index) for index in range(shape.layers)
        )

    def initial_state(self, embedded: Tensor) -> HyperState:
        streams = embedded.unsqueeze(-2).expand(*embedded.shape[:-1], self.streams, -1)  # T x B x n x d
        return self._prepare(streams, 0)

    def update(self, state: HyperState, index: int, output: Tensor) -> HyperState:
        added = (output - state.stream).unsqueeze(-2)  # T x B x 1 x d
        streams = torch.addcmul(state.mixed, state.write.unsqueeze(-1), added)
        return self._prepare(streams, index + 1)

    def representation(self, state: HyperState) -> Tensor:
        return state.streams.mean(dim=-2)

    def _prepare(self, streams: Tensor, index: int) -> HyperState:
        """Return the state below layer ``index``, from its streams."""
        if index == len(self.mixings):
            return HyperState(streams, stream=streams[..., 0, :], write=streams[..., 0], mixed=streams)
        read, write, matrix = self.mixings[index](streams)
        stream = (read.unsqueeze(-2) @ streams).squeeze(-2)
        mixed = streams if matrix is None else matrix @ streams
        return HyperState(streams, stream, write, mixed)


class Mixing(nn.Module):
    """H_pre, H_post and H_res of a layer: static, plus ``s * tanh(LN(X) W)``, with W 0 and s 0.01 at first.

    Initially layer ``index`` reads stream ``index mod n``, and writes to all.
    """

    def __init__(self, embed_dim: int, streams: int, index: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        #: Rows: H_pre, H_post, and n of H_res.
        self.weight = nn.Parameter(torch.zeros(streams + 2, embed_dim))
        #: s of what is read, which H_pre and H_res share, and of what is written.
        self.scales = nn.Parameter(torch.full((2,), 0.01))
        #: A row for each stream; columns: H_pre, H_post, and n of H_res.
        read = F.one_hot(torch.tensor(index % streams), streams).float()
        self.static = nn.Parameter(torch.cat([read[:, None], torch.ones(streams, 1), torch.eye(streams)], dim=1))

    def forward(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return H_pre and H_post, T x B x n each, and H_res, T x B x n x n, for streams T x B x n x d."""
        dynamic = F.linear(self.norm(streams), self.weight).tanh()  # T x B x n x (n + 2)
        reading, writing = self.scales.unbind()
        scale = torch.cat([reading[None], writing[None], reading.expand(streams.size(-2))])
        weights = self.static + dynamic * scale
        # Row i of the last n columns says where stream i goes; in H_res that is column i.
        return weights[..., 0], weights[..., 1], weights[..., 2:].transpose(-1, -2)


class ManifoldMixing(nn.Module):
    """:class:`Mixing` as in mHC: H_pre between 0 and 1, H_post between 0 and 2, H_res doubly stochastic.

    All are computed from ``a * RMSNorm(vec X) W + b``, with W 0 and a 0.01 at first; b is such that H_pre is 1/n,
    H_post 1 and H_res close to the identity.

    ``manifold`` says how H_res becomes doubly stochastic: "sinkhorn", by Sinkhorn normalization; "permutations", as the
    mean of all n! permutations, weighted by a softmax (mHC-lite, arXiv 2601.05732); or it is the "identity".
    """

    places: Tensor

    def __init__(self, manifold: str, embed_dim: int, streams: int, index: int) -> None:
        super().__init__()
        self.manifold = manifold
        if manifold != "identity":
            # The initial H_res is not exactly the identity, but it keeps the mean of the streams.
            self.identity_only_on_top_option = "--hyper-manifold"

        # b of H_pre, whose sigmoid is 1/n; of H_post, whose sigmoid is 1/2; and of H_res.
        biases = [torch.full((streams,), -math.log(max(streams - 1, 1e-4))), torch.zeros(streams)]
        if manifold == "sinkhorn":
            biases.append(_IDENTITY_LOGIT * torch.eye(streams).flatten())
        elif manifold == "permutations":
            orders = list(permutations(range(streams)))
            identity_is_first = torch.eye(1, len(orders))[0]
            biases.append(_IDENTITY_LOGIT * identity_is_first)
            self.register_buffer("places", _permutations_of_cells(orders), persistent=False)

        self.sizes = [len(bias) for bias in biases]
        self.weight = nn.Parameter(torch.zeros(sum(self.sizes), streams * embed_dim))
        self.scales = nn.Parameter(torch.full((len(biases),), 0.01))
        self.bias = nn.Parameter(torch.cat(biases))

    def forward(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return what :meth:`Mixing.forward` does, with None in place of the identity."""
        # a * RMSNorm(vec X) W + b, for all three at once: T x B x (sum of sizes), at least in float32.
        flat = streams.flatten(-2)  # T x B x (n d)
        dynamic = F.linear(F.rms_norm(flat, flat.shape[-1:]), self.weight)
        dynamic = dynamic.to(torch.promote_types(dynamic.dtype, torch.float32))
        scale = torch.cat([scale.expand(size) for scale, size in zip(self.scales, self.sizes, strict=True)])
        read, write, *logits = (dynamic * scale + self.bias).split(self.sizes, dim=-1)

        matrix = None
        if logits:
            matrix = self._doubly_stochastic(logits[0], streams.size(-2)).to(streams.dtype)
        return read.sigmoid().to(streams.dtype), (2 * write.sigmoid()).to(streams.dtype), matrix

    def _doubly_stochastic(self, logits: Tensor, streams: int) -> Tensor:
        """Compute H_res, T x B x n x n, from T x B x (n n), or from T x B x n! for permutations."""
        if self.manifold == "permutations":
            weights = logits.softmax(dim=-1).index_select(-1, self.places)  # T x B x (n n (n - 1)!)
            return weights.unflatten(-1, (streams, streams, -1)).sum(dim=-1)
        # Sinkhorn normalization, in the log domain.
        logits = logits.unflatten(-1, (streams, streams))
        for _ in range(_SINKHORN_ROUNDS):
            logits = logits - logits.logsumexp(dim=-1, keepdim=True)
            logits = logits - logits.logsumexp(dim=-2, keepdim=True)
        return logits.exp()


def _permutations_of_cells(orders: list[tuple[int, ...]]) -> Tensor:
    """Return for each cell of H_res, row by row, the numbers of the (n - 1)! permutations that have a 1 there."""
    streams = len(orders[0])
    numbers: list[int] = []
    for row in range(streams):
        for column in range(streams):
            numbers += [number for number, order in enumerate(orders) if order[row] == column]
    return torch.tensor(numbers)
