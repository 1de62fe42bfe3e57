"""Backends, which compute the two graphs of a beam search, and the search that runs them.

Without a backend the model itself computes them. A new backend is a module with a function ``make_graphs`` and a line
in :data:`BACKENDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairseq_depthwise.backends.graph_search import Graphs

#: Name of a backend -> its module.
BACKENDS = {
    "compiled": "fairseq_depthwise.backends.compiled",
    "int8": "fairseq_depthwise.backends.onnx_files",
}


def make_graphs(
    backend: str, models: Sequence[Any], path: str, say: Callable[[str], None], *, anew: bool = True
) -> Graphs:
    """Return the graphs of models, from a backend's cache or made now.

    Args:
        backend: one of :data:`BACKENDS`.
        models: one, or several whose probabilities are averaged.
        path: name of the models in errors.
        say: called with messages about what takes long.
        anew: whether to make graphs that are not cached.

    Raises:
        UserError: the backend cannot make them.
    """
    graphs: Graphs = import_module(BACKENDS[backend]).make_graphs(models, path, say, anew=anew)
    return graphs
