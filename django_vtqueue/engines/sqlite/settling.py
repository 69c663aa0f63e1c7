"""Settling on SQLite: what is done, what is given back, and what is moved to the dead letters."""

import json
from collections.abc import Sequence
from dataclasses import replace

from ...core import states
from ...core.failures import Failure
from ...core.job import Key, Settlement
from .connection import SQLiteConnection
from .statements import GUARD, GUARD_OF_BURIAL, guard

LARGE = 20_000  # characters of a result that becomes an argument of its own: its JSON would be parsed for each column

# Most jobs end by this statement, and each json_extract parses its value anew, so its argument is small: the guard is
# GUARD with the id as a key, and one holder for all. The holder knows attempts and start, the row of a job that was
# claimed ahead does not.
ACK = """
UPDATE vtqueue_job
SET state = 'SUCCESSFUL', attempts = json_extract(mine.value, '$[1]'), finished_at = json_extract(mine.value, '$[2]'),
    expires_at = json_extract(mine.value, '$[3]'), result = coalesce(:result, json_extract(mine.value, '$[4]')),
    started_at = json_extract(mine.value, '$[5]'), lease_until = NULL
FROM json_each(:done) AS mine
WHERE vtqueue_job.id = mine.key AND vtqueue_job.claims = json_extract(mine.value, '$[0]')
  AND +vtqueue_job.worker_id = :worker_id AND +vtqueue_job.state = 'RUNNING'"""

# For nack and release; without a new time the job keeps its place in the line. A job that was asked to stop is not
# given back.
GIVE_BACK = f"""
UPDATE vtqueue_job
SET state = 'READY', worker_id = '', copies = NULL, lease_until = json_extract(mine.value, '$[9]'),
    attempts = json_extract(mine.value, '$[4]'), due_at = coalesce(json_extract(mine.value, '$[5]'), due_at),
    history = coalesce(json_extract(mine.value, '$[7]'), history), started_at = json_extract(mine.value, '$[8]')
FROM json_each(:settlements) AS mine WHERE {GUARD} AND cancelled_at IS NULL"""

NOT_GIVEABLE = f"""
SELECT json_group_array(json_array(json_extract(mine.value, '$[0]'), json_extract(mine.value, '$[1]')))
FROM json_each(:held) AS mine
WHERE NOT EXISTS (SELECT 1 FROM vtqueue_job WHERE {GUARD} AND cancelled_at IS NULL)"""

# Run if ACK or GIVE_BACK has changed fewer rows than it was given. A row that is exactly as the settlement leaves it
# was settled by it, now or by a commit whose answer never came. The claim number alone does not prove that: a row that
# was given back, buried or requeued otherwise has it too. A release leaves no trace in the row, so NOT_GIVEABLE is run
# before it.
NOT_SETTLED = """
SELECT json_group_array(json_array(json_extract(mine.value, '$[0]'), json_extract(mine.value, '$[1]')))
FROM json_each(:settlements) AS mine
WHERE NOT EXISTS (
    SELECT 1 FROM vtqueue_job
    WHERE id = json_extract(mine.value, '$[0]') AND claims = json_extract(mine.value, '$[1]')
      AND state = json_extract(mine.value, '$[3]') AND attempts = json_extract(mine.value, '$[4]')
      AND finished_at IS json_extract(mine.value, '$[6]') AND CASE
          WHEN json_extract(mine.value, '$[5]') IS NOT NULL THEN due_at = json_extract(mine.value, '$[5]')
          WHEN json_extract(mine.value, '$[7]') IS NOT NULL THEN history = json_extract(mine.value, '$[7]')
          ELSE 1
      END
)"""

REMOVE_EXPIRED = """
DELETE FROM vtqueue_job
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'SUCCESSFUL' AND expires_at = finished_at"""

# OR REPLACE: there is a letter of that id already only if its job was copied into the queue by hand.
BURY = f"""
INSERT OR REPLACE INTO vtqueue_deadletter (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key, unique_until,
    enqueued_at, started_at, expires_at, died_at, exception_class, message, fingerprint, payload, history
) SELECT
    vtqueue_job.id, queue_name, task_path, priority, claims, json_extract(mine.value, '$[9]'), max_attempts, worker_id,
    lease_us, unique_key, unique_until, enqueued_at, json_extract(mine.value, '$[10]'),
    json_extract(mine.value, '$[4]'), json_extract(mine.value, '$[3]'), json_extract(mine.value, '$[6]'),
    json_extract(mine.value, '$[7]'), json_extract(mine.value, '$[8]'), payload, json_extract(mine.value, '$[5]')
FROM json_each(:settlements) AS mine CROSS JOIN vtqueue_job WHERE {GUARD_OF_BURIAL}"""

REMOVE_BURIED = f"""
DELETE FROM vtqueue_job WHERE rowid IN (
    SELECT vtqueue_job.rowid FROM json_each(:settlements) AS mine CROSS JOIN vtqueue_job WHERE {GUARD_OF_BURIAL}
)"""

NOT_BURIED = """
SELECT json_group_array(json_array(json_extract(mine.value, '$[0]'), json_extract(mine.value, '$[1]')))
FROM json_each(:settlements) AS mine
WHERE NOT EXISTS (
    SELECT 1 FROM vtqueue_deadletter
    WHERE id = json_extract(mine.value, '$[0]') AND claims = json_extract(mine.value, '$[1]')
      AND died_at = json_extract(mine.value, '$[3]')
)"""


def _told(failure: Failure | None) -> tuple[str, str, str]:
    return (failure.exception_class, failure.message, failure.fingerprint) if failure else ("", "", "")


def _given(settlements: Sequence[Settlement]) -> str:
    """Return the argument of the statements that settle jobs which did not die."""
    return json.dumps(
        [
            (
                *guard(s.job),
                *(s.state, s.attempts, s.visible_at, s.finished_at, s.history, s.job.started_at, s.hidden_until),
            )
            for s in settlements
        ],
        ensure_ascii=False,
    )


def _burials(settlements: Sequence[Settlement]) -> str:
    """Return the argument of the statements of a burial."""
    return json.dumps(
        [
            (*guard(s.job), s.finished_at, s.expires_at, s.history, *_told(s.failure), s.attempts, s.job.started_at)
            for s in settlements
        ],
        ensure_ascii=False,
    )


class SQLiteSettling(SQLiteConnection):
    """The part of an Engine that settles."""

    def settle(self, settlements: Sequence[Settlement]) -> set[Key]:
        dying = [item for item in settlements if item.state == states.FAILED]
        done = [item for item in settlements if item.state == states.SUCCESSFUL]
        again = [item for item in settlements if item.state == states.READY]
        large = [item for item in done if len(item.result or "") > LARGE]
        small = [item for item in done if len(item.result or "") <= LARGE] if large else done
        lost = self._bury(dying) if dying else set()
        if small:
            lost |= self._ack(small)
        if again:
            lost |= self._give_back(again)
        for item in large:
            lost |= self._ack([replace(item, result=None)], item.result)
        return lost

    def _give_back(self, again: Sequence[Settlement]) -> set[Key]:
        rows = _given(again)
        released = [(*guard(s.job),) for s in again if s.visible_at is None and s.history is None]
        refused = self._keys(NOT_GIVEABLE, {"held": json.dumps(released)}) if released else set()
        if self._run(GIVE_BACK, {"settlements": rows}) == len(again):
            return set()
        return refused | self._keys(NOT_SETTLED, {"settlements": rows})

    def _ack(self, done: Sequence[Settlement], result: str | None = None) -> set[Key]:
        """Acknowledge jobs; ``result``: that of a single one."""
        ended = {
            s.job.id: (s.job.claims, s.attempts, s.finished_at, s.expires_at, s.result, s.job.started_at) for s in done
        }
        worker_id, *others = {s.job.worker_id for s in done}
        if others or len(ended) < len(done):  # a job that was lost and claimed again is there twice
            return set().union(*(self._ack([settlement]) for settlement in done))
        values = {"done": json.dumps(ended, ensure_ascii=False), "worker_id": worker_id, "result": result}
        lost: set[Key] = set()
        if self._run(ACK, values) != len(done):
            lost = self._keys(NOT_SETTLED, {"settlements": _given(done)})
        unkept = [s.job.id for s in done if s.expires_at is not None and s.expires_at == s.finished_at]
        if unkept:
            self._run(REMOVE_EXPIRED, {"ids": json.dumps(unkept)})
        return lost

    def _bury(self, settlements: Sequence[Settlement]) -> set[Key]:
        rows = _burials(settlements)
        buried = self._run(BURY, {"settlements": rows})
        self._run(REMOVE_BURIED, {"settlements": rows})
        if buried == len(settlements):
            return set()
        return self._keys(NOT_BURIED, {"settlements": rows})
