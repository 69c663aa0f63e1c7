"""The mailbox of the control loop: everything that reaches it, from threads, doorbells and signals."""

from dataclasses import dataclass

from ..core.signal_safe_queue import SignalSafeQueue
from ..execution.outcomes import Outcome
from ..execution.time_limits import Notice


@dataclass(frozen=True, slots=True)
class Wake:
    """The doorbell was rung; ``workers``: because of the rows of the workers."""

    workers: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Claim nothing more and end when what runs has ended; a second one: release it and leave."""


Message = Outcome | Wake | Stop | Notice


class Mailbox(SignalSafeQueue[Message]):
    """Takes messages from any thread, and from signal handlers."""

    def wake(self, workers: bool = False) -> None:
        self.put(Wake(workers))

    def stop(self) -> None:
        self.put(Stop())
