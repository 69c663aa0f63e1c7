"""Due jobs, run in the caller's own thread and transaction: for tests, and where other threads do not see the rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from ..backend import VTQueueBackend
from ..core import clock
from ..core.ids import new_worker_id
from ..core.job import HeldJob, Scope
from ..core.settlement import released
from ..engines import Engine, engine_for
from ..engines.savepoints import contained
from ..execution.execute import execute
from ..execution.outcomes import Outcome, Settled, announce, burial
from ..queue.claims import Claims, collect
from ..queue.limits import Limits
from ..queue.settling import settle


@dataclass
class Line:
    """The jobs of one backend in these scopes; ``given``: the limits of a worker (None: of the backend).

    ``until``: an instant up to which scheduled jobs and retries run as well, as if their time had come.
    """

    backend: VTQueueBackend
    scopes: Sequence[Scope]
    until: int = 0
    given: Limits | None = None
    worker_id: str = field(default_factory=new_worker_id)

    @property
    def engine(self) -> Engine:
        return engine_for(self.backend.database)

    @property
    def limits(self) -> Limits:
        return self.given or self.backend.limits

    def wait(self) -> int | None:
        """Return in how many microseconds its first job is due; None if none is, until then."""
        first, now = self.limits.earliest(self.engine, self.scopes), self.engine.now()
        return max(first - now, 0) if first is not None and first <= max(now, self.until) else None

    def run_next(self) -> list[Outcome]:
        """Run the job that is due first, and store what came of it; return that, if the job was run."""
        engine, backend = self.engine, self.backend
        with engine.transaction():
            taken = Claims(engine, self.limits).claim(self.scopes, 1, self.worker_id, engine.now())
        for settlement in taken.buried:
            announce(burial(settlement, backend), backend)
        outcomes = [self.run(job) for job in collect(engine, taken)]
        return [outcome for outcome in outcomes if not outcome.has_only_loaded]

    def run(self, job: HeldJob) -> Outcome:
        """Run a job, store its outcome, and announce it; KeyboardInterrupt gives the job back and goes through."""
        engine, backend = self.engine, self.backend
        try:
            with contained():
                outcome = execute(job, backend, inline=True)
        except KeyboardInterrupt:
            with engine.transaction():
                settle(engine, [released(job)])
            raise
        if outcome.settled is Settled.OPEN:
            with engine.transaction():
                lost = settle(engine, [outcome.settlement])
            if outcome.settlement.cancelled:
                outcome = burial(outcome.settlement, backend)
            outcome.settled = Settled.LOST if lost else Settled.DONE
        if outcome.settled is Settled.DONE and not outcome.has_only_loaded:
            announce(outcome, backend)
        return outcome


def run_due(lines: Sequence[Line], limit: int | None = None) -> Iterator[Outcome]:
    """Run what is due, one job after the other, and what that publishes; yield each outcome once it is stored.

    Jobs that are due later run in the order of their times, and meanwhile it is so late for all that they do.
    ``limit``: the most jobs to run.
    """
    done = offset = 0
    while limit is None or done < limit:
        with clock.with_offset(offset):
            waits = [(wait, line) for line in lines if (wait := line.wait()) is not None]
        if not waits:
            return
        wait, line = min(waits, key=itemgetter(0))
        offset += wait
        with clock.with_offset(offset):
            outcomes = line.run_next()
        done += len(outcomes)
        yield from (outcome for outcome in outcomes if outcome.settled is Settled.DONE)
