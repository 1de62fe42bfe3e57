"""What the readers of a connection read, to be watched and changed while a stack runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from fairseq_depthwise.modules.connections.sources import source_names
from fairseq_depthwise.modules.stack import Connection


@contextmanager
def changed_readers(connection: Connection, change: Callable[[int | str, Sequence[Any], Any], Any]) -> Iterator[None]:
    """Let ``change`` return what each reader reads: each layer, and last what is above them, before the layer norm.

    It is given the reader's number, from 1, or its place ("1a"), the states up to its own, and what it would read.
    """
    states: list[Any] = []
    read: Any = None
    start, layer_input, update, output = (
        connection.initial_state, connection.layer_input, connection.update, connection.output
    )  # fmt: skip

    def begin(embedded: Tensor) -> Any:
        states.clear()
        return start(embedded)

    def changed(state: Any, given: Any) -> Any:
        nonlocal read
        states.append(state)
        place = source_names(len(states) + 1, "", connection.units)[-1].strip()
        read = change(int(place) if connection.units == 1 else place, states, given)
        return read

    def go_on(state: Any, index: int, output: Any) -> Any:
        # What a layer has added is what it gave less what it has read.
        stream = getattr(read, "stream", read)
        return update(stream if isinstance(state, Tensor) else state._replace(stream=stream), index, output)

    def finish(state: Any) -> Tensor:
        with connection.final_norm.register_forward_pre_hook(lambda _, given: (changed(state, given[0]),)):
            return output(state)

    methods = {
        "initial_state": begin,
        "layer_input": lambda state, index: changed(state, layer_input(state, index)),
        "update": go_on,
        "output": finish,
    }
    vars(connection).update(methods)
    try:
        yield
    finally:
        for name in methods:
            del vars(connection)[name]
