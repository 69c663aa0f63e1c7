"""All that reaches the control loop, from threads, bells and signals."""

from dataclasses import dataclass

from ..jobs import Key
from ..outcomes import Outcome


@dataclass(frozen=True, slots=True)
class Wake:
    """Somebody has rung; ``asked``: for something that this worker shall do."""

    asked: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Claim nothing more and end when what runs has ended; a second one: give it back and leave."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Whether the time of a transactional job runs: not before its transaction begins."""

    key: Key
    runs: bool


Message = Outcome | Wake | Stop | Timed
