"""Shares: queues with weights are served in proportion, whatever waits in them.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): a job of a queue moves the pass of that queue on by 1 / weight,
and next is the queue with the smallest pass. That spreads the turns as smooth weighted round robin does. A queue in
which nothing was due gains nothing by that.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class Shares:
    """Whose turn it is of queues with weights; one for each worker."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._strides = {name: 1 / weight for name, weight in weights.items()}
        self._passes = dict.fromkeys(weights, 0.0)
        # The pass of the queue that was served last, at that time: a queue that was idle goes on from there.
        self._now = 0.0

    def order(self, rows: Mapping[str, Sequence[T]], limit: int) -> list[T]:
        """Return the first ``limit`` of the rows of queues, which keep their order within a queue."""
        passes = {name: max(self._passes[name], self._now) for name in self._passes if rows.get(name)}
        ordered: list[T] = []
        used = dict.fromkeys(passes, 0)
        while passes and len(ordered) < limit:
            name = min(passes, key=passes.__getitem__)
            ordered.append(rows[name][used[name]])
            used[name] += 1
            passes[name] += self._strides[name]
            if used[name] == len(rows[name]):
                del passes[name]
        return ordered

    def note_served(self, names: Sequence[str]) -> None:
        """Note that jobs of these queues were claimed, in this order."""
        for name in names:
            began = max(self._passes[name], self._now)
            self._passes[name] = began + self._strides[name]
            self._now = max(self._now, began)
