"""Where the benchmark works: on empty copies of the tables of a claim, and in a folder beside the database file.

Both are gone when it ends. What a killed one has left is removed by the next, which knows by a lock that no other runs.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_vtqueue.engines.sqlite.engine import SQLiteEngine

TABLES = {name: name.replace("vtqueue_", "vtqueue_bench_") for name in ("vtqueue_job", "vtqueue_queuestate")}
DEFINITIONS = """
SELECT json_group_array(sql) FROM (
    SELECT sql FROM sqlite_master
    WHERE tbl_name = :original AND type IN ('table', 'index') AND name GLOB :original || '*' AND sql IS NOT NULL
    ORDER BY type = 'index'
)"""
DROP = [f"DROP TABLE IF EXISTS {copy}" for copy in TABLES.values()]
EMPTY = f"DELETE FROM {TABLES['vtqueue_job']}"


@lru_cache(maxsize=100)
def renamed(sql: str) -> str:
    """Return a statement of the queue as one on the copies of its tables."""
    for original, copy in TABLES.items():
        sql = sql.replace(original, copy)
    return sql


class Copy(SQLiteEngine):
    """The queue's own code, on the copies."""

    def definitions(self) -> list[str]:
        """Return the statements that make the copies with their indexes, after one for a file of such pages."""
        page = f"PRAGMA page_size = {self._value('PRAGMA page_size', {})}"
        made = [sql for original in TABLES for sql in self._list(DEFINITIONS, {"original": original})]
        return [page, *map(renamed, made)]

    def empty(self) -> None:
        with self.transaction():
            self._run(EMPTY, {})

    def make(self) -> None:
        with self.transaction():
            for sql in [*DROP, *self.definitions()[1:]]:
                self._run(sql, {})

    def drop(self) -> None:
        self.disconnect()  # Ctrl-C may have left a transaction open
        with self.transaction():
            for sql in DROP:
                self._run(sql, {})

    def _execute(self, connection: BaseDatabaseWrapper, sql: str, *given: Any) -> Any:
        return super()._execute(connection, renamed(sql), *given)


@contextmanager
def copied(alias: str) -> Iterator[Copy]:
    """Have the copy during the block; raise CommandError where it would be seen by this process only."""
    engine = Copy(alias, traced=False)
    if engine.private() or not engine.path():
        raise CommandError(
            f"The database {alias!r} is in memory, or inside a transaction: there is no disk to measure. "
            "Run the benchmark on a database file, outside of transactions."
        )
    with folder_beside(engine.path()):
        engine.make()
        try:
            yield engine
        finally:
            engine.drop()


def folder_of(path: str) -> Path:
    return Path(f"{path}-vtqueue-bench")


@contextmanager
def folder_beside(path: str) -> Iterator[Path]:
    """Have an empty folder on the same disk during the block; raise CommandError if another benchmark has it."""
    folder = folder_of(path)
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(f"Another benchmark runs on {path}; wait for its end.") from None
        try:
            for left in set(folder.iterdir()) - {folder / "lock"}:
                left.unlink()
            yield folder
        finally:
            shutil.rmtree(folder)
