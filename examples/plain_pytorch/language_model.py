"""A decoder-only model of text with the depth-wise LSTM, without fairseq: ``python language_model.py STEPS < TEXT``."""

import sys

import torch
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell, DepthwiseState, Gates, HiddenNet
from fairseq_depthwise.modules.attention import MultiheadAttention


class LanguageModel(nn.Module):
    """Predicts each byte from those before it; the cells of all layers share their gates, as in the paper."""

    def __init__(self, width: int, layers: int, longest: int) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(longest, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.attentions = nn.ModuleList(MultiheadAttention(embed_dim=width, heads=4) for _ in range(layers))
        gates = Gates(input_dim=2 * width, embed_dim=width)
        nets = [HiddenNet(input_dim=2 * width, embed_dim=width, hidden_dim=4 * width) for _ in range(layers)]
        self.cells = nn.ModuleList(DepthwiseLSTMCell(gates=gates, hidden_net=net) for net in nets)
        self.output = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256))

    def forward(self, text: Tensor) -> Tensor:
        """Compute scores of the byte after each (T x B x 256) of ``text`` (T x B)."""
        embedded = self.bytes(text) + self.places.weight[: len(text), None]
        state = DepthwiseState(output=embedded, cell=embedded)
        for norm, attention, cell in zip(self.norms, self.attentions, self.cells, strict=True):
            normalized = norm(state.output)
            state = cell(attention(normalized, normalized, causal=True)[0], state)
        return self.output(state.output)


if __name__ == "__main__":
    text, length = torch.tensor(list(sys.stdin.buffer.read())), 64
    model = LanguageModel(width=64, layers=4, longest=length)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for step in range(int(sys.argv[1])):
        piece = text[torch.randint(len(text) - length, (16,)) + torch.arange(length + 1)[:, None]]
        loss = nn.functional.cross_entropy(model(piece[:-1]).flatten(0, 1), piece[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step} {loss.item():.3f}")
