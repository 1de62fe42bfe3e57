"""Connections over depth of other papers, a class in a file of its own for each.

``sdt_transformer`` offers them in ``--encoder-connection`` and ``--decoder-connection``; no other model needs this
folder. A new one is a file here with a subclass of :class:`~fairseq_depthwise.modules.stack.Connection`, and a line in
``DEPTH_CONNECTIONS``; docs/connections.md has an example.
"""

from __future__ import annotations

from fairseq_depthwise.modules.depth_connections.attention_residual import AttentionConnection
from fairseq_depthwise.modules.depth_connections.average import AverageConnection
from fairseq_depthwise.modules.depth_connections.hyper import HyperConnection
from fairseq_depthwise.modules.depth_connections.value_residual import ValueResidualConnection
from fairseq_depthwise.modules.stack import Connection

#: Name on the command line -> class.
DEPTH_CONNECTIONS: dict[str, type[Connection]] = {
    "average": AverageConnection,
    "attention": AttentionConnection,
    "hyper": HyperConnection,
    "value-residual": ValueResidualConnection,
}
