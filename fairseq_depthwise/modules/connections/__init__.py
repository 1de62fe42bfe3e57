"""What connects the layers of a stack: a class in a file of its own for each choice of ``--encoder-connection``.

A new one is a file here with a subclass of :class:`~fairseq_depthwise.modules.stack.Connection`, and a line in
``CONNECTIONS``; docs/connections.md has an example.
"""

from __future__ import annotations

from fairseq_depthwise.modules.connections.attention import AttentionConnection
from fairseq_depthwise.modules.connections.average import AverageConnection
from fairseq_depthwise.modules.connections.blocks import BlockConnection
from fairseq_depthwise.modules.connections.hyper import HyperConnection
from fairseq_depthwise.modules.connections.value_residual import ValueResidualConnection
from fairseq_depthwise.modules.stack import Connection

#: Name on the command line -> class.
CONNECTIONS: dict[str, type[Connection]] = {
    "residual": Connection,
    "blocks": BlockConnection,
    "average": AverageConnection,
    "attention": AttentionConnection,
    "hyper": HyperConnection,
    "value-residual": ValueResidualConnection,
}
