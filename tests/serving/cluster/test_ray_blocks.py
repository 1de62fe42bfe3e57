"""Which actor translates which block, and what is done about actors that are lost, with an imitation of Ray."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.serving.cluster import ray_blocks
from fairseq_depthwise.serving.cluster.ray_blocks import TRIES, ActorPool, Demand, Loaded
from fairseq_depthwise.text_files import Block


class FakeRayError(Exception):
    pass


class FakeRay:
    """Computes what an actor is asked for when the answer is taken, or loses the actor.

    Args:
        cpus: of the cluster.
        is_lost: whether an actor, by its number from 0, is lost over what it is asked for.
    """

    exceptions = SimpleNamespace(RayError=FakeRayError)

    def __init__(self, cpus: int, is_lost: Callable[[int, Any], bool] = lambda number, asked: False) -> None:
        self.cpus = cpus
        self.is_lost = is_lost
        self.started = 0
        self.given: list[tuple[int, Any]] = []
        self._killed: set[int] = set()
        self._answers: dict[int, tuple[int, Any, Callable[[], Any]]] = {}

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cpus}

    def remote(self, kind: type) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda folder: self._start(kind, folder)))

    def _start(self, kind: type, folder: str) -> Any:
        actor, number = kind(folder), self.started
        self.started += 1

        def method(name: str) -> Any:
            def ask(asked: Any = None) -> int:
                self.given.append((number, asked))
                function = getattr(actor, name)
                arguments = () if asked is None else (asked,)
                self._answers[len(self.given)] = (number, asked, lambda: function(*arguments))
                return len(self.given)

            return SimpleNamespace(remote=ask)

        node = SimpleNamespace(remote=lambda: self._ask(number, lambda: f"node{number}"))
        return SimpleNamespace(number=number, node=node, load=method("load"), translate=method("translate"))

    def _ask(self, number: int, answer: Callable[[], Any]) -> int:
        self.given.append((number, None))
        self._answers[len(self.given)] = (number, None, answer)
        return len(self.given)

    def wait(self, answers: list[int], **_: object) -> tuple[list[int], list[int]]:
        return answers[-1:], answers[:-1]

    def get(self, answer: int, **_: object) -> Any:
        number, asked, compute = self._answers[answer]
        if number in self._killed or self.is_lost(number, asked):
            self._killed.add(number)
            raise FakeRayError("The actor died.\nmore")
        return compute()

    def kill(self, handle: Any) -> None:
        self._killed.add(handle.number)


BLOCKS = [Block("text", 0, number, 2 * number + 1, ("a", f"b{number}")) for number in range(12)]


def load() -> Loaded:
    return Loaded(lambda block: (" ".join(block.lines).encode(), [f"odd {block.number}"]), {"model": "1"})


def translated(
    ray: FakeRay, load: Callable[[], Loaded] = load, *, actors: int | None = None
) -> tuple[dict[int, bytes], list[str]]:
    """The translations by block, each of which must come once, and what was said."""
    found: dict[int, bytes] = {}
    said: list[str] = []
    pool = ActorPool(ray, Demand(actors), load, said.append)
    assert pool.first_load() == {"model": "1"}

    def done(block: Block, text: bytes) -> None:
        assert found.setdefault(block.number, text) is text

    for _ in pool.translate(iter(BLOCKS), done):
        assert len(ray.given) < 1000
    return found, said


EXPECTED = {block.number: " ".join(block.lines).encode() for block in BLOCKS}


@pytest.mark.parametrize(("cpus", "actors", "started"), [(1, None, 1), (3, None, 3), (3, 2, 2), (100, None, 12)])
def test_as_many_actors_as_there_is_work_and_place_for(cpus: int, actors: int | None, started: int) -> None:
    ray = FakeRay(cpus)
    found, said = translated(ray, actors=actors)
    assert found == EXPECTED
    assert sorted(sentence for sentence in said if sentence) == sorted(f"odd {block.number}" for block in BLOCKS)
    assert ray.started <= started
    assert ray.started > 1 or started == 1


def test_nodes_that_join_get_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_blocks, "_LOOK", 0.0)
    ray, working = FakeRay(1), list[int]()
    pool = ActorPool(ray, Demand(), load, print)
    pool.first_load()
    for step, _ in enumerate(pool.translate(iter(BLOCKS * 9), lambda block, text: None)):
        working.append(pool.working)
        ray.cpus = 3 if step > 10 else 1
    assert set(working) == {1, 2, 3}


def test_blocks_are_read_a_few_ahead() -> None:
    ray, read = FakeRay(2), 0

    def blocks() -> Any:
        nonlocal read
        for read in range(1, 1001):
            yield Block("text", 0, read, read, ("a",))

    pool, done = ActorPool(ray, Demand(), load, print), list[Block]()
    pool.first_load()
    for _ in pool.translate(blocks(), lambda block, text: done.append(block)):
        assert read - len(done) <= 3 * 2
    assert len(done) == 1000


def test_blocks_of_a_lost_actor_are_given_to_others() -> None:
    unlucky: list[int] = []

    def is_lost(number: int, asked: Any) -> bool:
        if asked is BLOCKS[3] and not unlucky:
            unlucky.append(number)
        return number in unlucky

    ray = FakeRay(2, is_lost)
    found, said = translated(ray)
    assert found == EXPECTED
    (lost,) = [sentence for sentence in said if "lost" in sentence]
    assert f"node{unlucky[0]}" in lost
    assert "The actor died" in lost
    # At most the two blocks that it had are translated twice.
    assert len([asked for _, asked in ray.given if isinstance(asked, Block)]) <= len(BLOCKS) + 2


def test_block_that_costs_actors_is_named() -> None:
    ray = FakeRay(2, lambda number, asked: asked is BLOCKS[5])
    with pytest.raises(UserError, match=rf"text, lines 11 to 12: {TRIES} actors were lost .*--buffer-lines"):
        translated(ray)
    assert [asked for _, asked in ray.given].count(BLOCKS[5]) == TRIES


def test_what_actors_cannot_be_started_for() -> None:
    ray = FakeRay(2, lambda number, asked: callable(asked))
    with pytest.raises(UserError, match=f"{TRIES} actors in a row"):
        translated(ray)

    def refused() -> Loaded:
        raise FileNotFoundError(2, "No such file", "gone.pt")

    with pytest.raises(UserError, match=r"gone\.pt does not exist.* on node0"):
        translated(FakeRay(2), refused)


def test_what_a_block_is_refused_for() -> None:
    def fails(block: Block) -> tuple[bytes, list[str]]:
        if block.number == 4:
            raise UserError("text, line 9: too odd")
        if block.number == 2 and not broken:
            broken.append(block)
            raise ValueError("a surprise")
        return b"", []

    broken: list[Block] = []
    with pytest.raises(UserError, match=r"^text, line 9: too odd$"):
        translated(FakeRay(1), lambda: Loaded(fails, {"model": "1"}))
    assert len(broken) == 1


def test_nodes_with_another_model() -> None:
    models = iter("12")
    with pytest.raises(UserError, match=r"model: not the same on node1"):
        translated(FakeRay(2), lambda: Loaded(load().translate, {"model": next(models)}))


def test_no_place_for_an_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(1)
    ray.wait = lambda answers, **_: ([], answers)  # type: ignore[method-assign]
    monkeypatch.setattr(ray_blocks, "_PLACE", 0.0)
    with pytest.raises(UserError, match="no node had 1 CPU free"):
        translated(ray)
