"""The settings of a queue: read late, checked once, kept in frozen objects.

A setting is looked up in this order: the call, ``@task``, ``queue_options``, ``OPTIONS``, the default below. For a job
``policy_of`` in tasks/task.py does so.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property, lru_cache, partial
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import import_string

from .core import copies
from .core.allowed import (
    Backoff,
    Check,
    Invalid,
    attempts,
    backoff_of,
    count,
    duration,
    flag,
    one_of,
    or_none,
    path_or_none,
    positive_duration,
    rate_of,
    text_or_none,
    texts,
)
from .core.backoff import backoff_delay
from .core.clock import microseconds, microseconds_or_none
from .core.rates import RateLimit, rate_for
from .core.unique import DONE, ERROR, KEEP, REPLACE, START

DEFAULT_BACKOFF = 2.0
SHORTEST_SHARED = 300.0  # seconds of a lease with shared_disk: an NFS server that starts keeps locks back for 90
MOST_AT_ONCE = 10_000  # threads, or processes
RAISE, WAIT = "raise", "wait"  # what a full queue makes of a publish


def option(default: Any, check: Check) -> Any:
    """Return a field of Policy or Options that may be set."""
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the jobs of one queue share; durations in seconds, None for "for ever"."""

    visibility_timeout: float = option(60, positive_duration)
    heartbeat: bool = option(True, flag)
    max_attempts: int = option(10, attempts)
    backoff: Backoff = option(DEFAULT_BACKOFF, backoff_of)  # noqa: RUF009
    backoff_max: float = option(3600, duration)
    timeout: float | None = option(None, or_none(positive_duration))
    hard_timeout: float | None = option(None, or_none(positive_duration))
    max_runtime: float = option(86400, positive_duration)
    result_ttl: float | None = option(86400, or_none(duration))
    dead_letter_ttl: float | None = option(None, or_none(duration))
    max_payload_bytes: int = option(1_000_000, count)
    max_steps_bytes: int = option(1_000_000, count)
    max_depth: int | None = option(None, or_none(count))
    on_full: str = option(RAISE, one_of(RAISE, WAIT))
    full_timeout: float = option(5, duration)
    exempt_workers: bool = option(True, flag)
    immediate: bool = option(False, flag)
    handler: str | None = option(None, text_or_none)
    overflow: bool = option(False, flag)
    copies: int = option(2, count)
    concurrency: int | None = option(None, or_none(count))
    rate: str | None = option(None, or_none(rate_of))
    burst: int = option(1, count)

    @property
    def rate_limit(self) -> RateLimit | None:
        """How often jobs of the queue may start; None: without a limit."""
        return rate_for(self.rate, self.burst)

    def delay(self, times: int, backoff: Backoff | None = None) -> float:
        """Return the seconds until the next try after so many failures; a function as backoff is not called."""
        chosen = self.backoff if backoff is None else backoff
        chosen = DEFAULT_BACKOFF if callable(chosen) else chosen
        return backoff_delay(chosen, self.backoff_max, times, random.random())

    def renews(self, copies_in_row: str | None) -> bool:
        """Return whether the lease of a job is kept up; ``copies_in_row``: as text, as it is stored.

        With ``overflow`` it is only once no more of them may run.
        """
        return len(copies.read(copies_in_row)) >= self.copies if self.overflow and copies_in_row else self.heartbeat


@dataclass(frozen=True, kw_only=True)
class Options(Policy):
    """The ``OPTIONS`` of one backend, and its ``QUEUES``."""

    database: str | None = option(None, text_or_none)
    shared_disk: bool = option(False, flag)
    threads: int = option(4, partial(count, most=MOST_AT_ONCE))
    processes: int = option(1, partial(count, most=MOST_AT_ONCE))
    task_modules: Sequence[str] = option((), texts)
    mask: Sequence[str] = option(("password", "token", "secret"), texts)
    doorbells: str | None = option(None, path_or_none)
    queue_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    queues: frozenset[str] = frozenset()

    def policy(self, queue_name: str) -> Policy:
        """Return what holds for one queue."""
        return _policy(self, queue_name)

    def letter_ttl(self, queue_name: str) -> int | None:
        """Return the microseconds for which a queue's dead letters are kept; None for ever."""
        return microseconds_or_none(self.policy(queue_name).dead_letter_ttl)

    @cached_property
    def overflowing(self) -> Mapping[str, tuple[int, int]]:
        """For how many microseconds a copy counts as one that runs, and how many may, by queue ("": in all others).

        0 microseconds: jobs of this queue have no copies. Empty if none have.
        """
        policies = {name: self.policy(name) for name in ("", *self.queue_options)}
        if not any(each.overflow for each in policies.values()):
            return {}
        return {name: (each.overflow * microseconds(each.max_runtime), each.copies) for name, each in policies.items()}

    @cached_property
    def limited(self) -> Mapping[str, Policy]:
        """The queues with a ``concurrency`` or a ``rate``."""
        policies = {name: self.policy(name) for name in self.queue_options}
        return {name: policy for name, policy in policies.items() if policy.concurrency or policy.rate}

    def serves(self, queue_name: str) -> bool:
        """Return whether jobs of a queue are this backend's."""
        return not self.queues or queue_name in self.queues or queue_name in self.queue_options

    def handler_queues(self) -> list[str]:
        """Return the queues whose raw jobs a worker hands to a function."""
        return sorted(name for name in self.queue_options if self.policy(name).handler)

    __hash__ = object.__hash__  # of itself, not of all that it has


def checks_of(kind: type[Policy]) -> dict[str, Check]:
    """Return the options that may be set, and what checks each."""
    return {item.name: item.metadata["check"] for item in fields(kind) if item.metadata}


OF_QUEUE = ("handler", "concurrency", "rate", "burst")  # in ``queue_options`` only
QUEUE = checks_of(Policy)  # in ``queue_options``
BACKEND = {name: check for name, check in checks_of(Options).items() if name not in OF_QUEUE}  # in ``OPTIONS``
NAMES = (*BACKEND, "queue_options")  # of what may stand in ``OPTIONS``
POLICY = {name: check for name, check in QUEUE.items() if name not in OF_QUEUE}  # in both
UNIQUE = {"unique_until": one_of(DONE, START), "on_duplicate": one_of(KEEP, REPLACE, ERROR)}  # of a task, or a call
ENTRY = ("BACKEND", "QUEUES", "OPTIONS")  # of ``TASKS``
ELSEWHERE = {  # what other frameworks call an option, or where it is another key, and what to say here
    "queues": "say QUEUES, beside OPTIONS.",
    "rate_limit": "say rate.",
    "soft_time_limit": "say timeout.",
    "time_limit": "say hard_timeout.",
    **dict.fromkeys(("retries", "max_retries"), "say max_attempts, which counts the first attempt too."),
    **dict.fromkeys(("default_retry_delay", "retry_backoff"), "say backoff."),
}


def nearest(word: str, words: Sequence[str]) -> str:
    """Return the end of an error text: the word that was probably meant, or all that are known."""
    close = get_close_matches(word, words, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(words))}."


def checked(given: Mapping[str, Any], known: Mapping[str, Check], where: str) -> dict[str, Any]:
    """Return ``given`` with each value in its final form; raise ValueError that lists all that is wrong with it."""
    wrong: list[str] = []
    values = _checked(given, known, where, wrong)
    if wrong:
        raise ValueError("\n".join(wrong))
    return values


def _checked(given: Mapping[str, Any], known: Mapping[str, Check], where: str, wrong: list[str]) -> dict[str, Any]:
    """Return what is right of ``given``; add what is wrong with it to ``wrong``."""
    values = {}
    for key, value in given.items():
        if key not in known:
            say = f"say it of single queues, in queue_options: {{'emails': {{{key!r}: ...}}}}."
            names = NAMES if known is BACKEND else tuple(known)
            say = say if key in OF_QUEUE else ELSEWHERE.get(key) or nearest(str(key), names)
            wrong.append(f"{where} has no option {key!r}: {say}")
            continue
        try:
            values[key] = known[key](value)
        except Invalid as allowed:
            wrong.append(f"{where}: {key} is {value!r}, but must be {allowed}.")
    return values


def parse(params: Mapping[str, Any], alias: str = "default") -> Options:
    """Return one entry of ``TASKS`` as Options; raise ValueError that lists all that is wrong with it."""
    where = f"TASKS[{alias!r}]['OPTIONS']"
    wrong = misplaced(params, alias)
    if not isinstance(given := params.get("OPTIONS") or {}, Mapping):
        wrong.append(f"{where} is {given!r}, but must be {{option: value}}.")
        given = {}
    per_queue = given.get("queue_options", {})
    given = {name: value for name, value in given.items() if name != "queue_options"}
    try:
        queues = texts(params.get("QUEUES", ["default"]))
    except Invalid as allowed:
        queues = ()
        wrong.append(f"TASKS[{alias!r}]: QUEUES is {params['QUEUES']!r}, but must be {allowed}; [] allows any queue.")
    values = _checked(given, BACKEND, where, wrong)
    if not isinstance(per_queue, Mapping) or not all(isinstance(options, Mapping) for options in per_queue.values()):
        wrong.append(f"{where}: queue_options is {per_queue!r}, but must be {{queue name: {{option: value}}}}.")
        per_queue = {}
    queue_options = {
        name: _checked(options, QUEUE, f"{where}['queue_options'][{name!r}]", wrong)
        for name, options in per_queue.items()
    }
    options = Options(**values, queue_options=queue_options, queues=frozenset(queues))
    if wrong := wrong or [*contradictions(options, where)]:
        raise ValueError("\n".join(wrong))
    return options


def contradictions(options: Options, where: str) -> Iterator[str]:
    """Yield an error for each queue whose limits do not go together with the rest."""
    for name, given in options.queue_options.items():
        policy = options.policy(name)
        of_queue = f"{where}['queue_options'][{name!r}]"
        if policy.overflow and name in options.limited:
            yield (
                f"{of_queue}: overflow has several workers run one job, so it does not go together with concurrency "
                "or rate. Remove one of them."
            )
        if "burst" in given and policy.rate is None:
            yield f"{of_queue} has burst without rate: give that too, or neither."


def misplaced(params: Mapping[str, Any], alias: str) -> list[str]:
    """Return an error for each key of an entry of ``TASKS`` that Django does not know."""
    return [
        f"TASKS[{alias!r}] has {key!r}, which belongs into its OPTIONS."
        if key in NAMES
        else f"TASKS[{alias!r}] has no key {key!r}: {nearest(str(key), ENTRY)}"
        for key in params
        if key not in ENTRY
    ]


@lru_cache(maxsize=1000)
def _policy(options: Options, queue_name: str) -> Policy:
    shared = {name: getattr(options, name) for name in QUEUE}
    return Policy(**{**shared, **options.queue_options.get(queue_name, {})})


def configured() -> dict[str, Options]:
    """Return the options of each entry of ``TASKS`` that is one of our backends; raise ValueError for a wrong one.

    An entry that cannot be imported is left out: it is no reason for the others to fail. The checks tell of it.
    """
    found, unknown = _configured()
    if unknown:  # perhaps it is just being imported
        _configured.cache_clear()
    return found


@lru_cache(maxsize=1)
def _configured() -> tuple[dict[str, Options], dict[str, Exception]]:
    """Return the options of each entry that is one of ours, and why those that are left out cannot be imported."""
    found, unknown = {}, {}
    for alias, params in getattr(settings, "TASKS", {}).items():
        try:
            kind = import_string(params["BACKEND"])
        except Exception as error:
            unknown[alias] = error
            continue
        if getattr(kind, "vtqueue_backend", False):
            found[alias] = parse(params, alias)
    return found, unknown


@receiver(setting_changed)
def forget(*, setting: str, **kwargs: Any) -> None:
    """Read the settings anew after a test has changed them."""
    if setting == "TASKS":
        _configured.cache_clear()
        _policy.cache_clear()
