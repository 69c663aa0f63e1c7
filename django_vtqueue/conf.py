"""The settings of a queue: read late, checked once, kept in frozen objects.

A setting is looked up in this order: the call, ``@task``, ``queue_options``, ``OPTIONS``, the default below.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import import_string

from .core.clock import LONGEST, microseconds


@lru_cache(maxsize=1000)
def setting_in_microseconds(seconds: float) -> int:
    """Return a duration of the settings in microseconds; there are few of them, and each job needs some."""
    return microseconds(seconds)


def microseconds_or_none(seconds: float | None) -> int | None:
    """Return a duration of the settings in microseconds, None for ever."""
    return None if seconds is None else setting_in_microseconds(seconds)


Backoff = float | Sequence[float] | Callable[..., float | None]
DEFAULT_BACKOFF = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the jobs of one queue share; durations in seconds, None for "for ever"."""

    visibility_timeout: float = 60
    heartbeat: bool = True
    max_attempts: int = 10
    backoff: Backoff = DEFAULT_BACKOFF
    backoff_max: float = 3600
    timeout: float | None = None
    hard_timeout: float | None = None
    max_runtime: float = 86400
    result_ttl: float | None = 86400
    dead_letter_ttl: float | None = None
    max_payload_bytes: int = 1_000_000
    handler: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Policy):
    """The ``OPTIONS`` of one backend, and its ``QUEUES``."""

    database: str | None = None
    threads: int = 4
    processes: int = 1
    task_modules: Sequence[str] = ()
    mask: Sequence[str] = ("password", "token", "secret")
    doorbells: str | None = None
    queue_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    queues: frozenset[str] = frozenset()

    def policy(self, queue_name: str) -> Policy:
        """Return what holds for one queue."""
        return _policy(self, queue_name)

    def letter_ttl(self, queue_name: str) -> int | None:
        """Return the microseconds for which a queue's dead letters are kept; None for ever."""
        return microseconds_or_none(self.policy(queue_name).dead_letter_ttl)

    def serves(self, queue_name: str) -> bool:
        """Return whether jobs of a queue are this backend's."""
        return not self.queues or queue_name in self.queues or queue_name in self.queue_options

    def handler_queues(self) -> list[str]:
        """Return the queues whose raw jobs a worker hands to a function."""
        return sorted(name for name in self.queue_options if self.policy(name).handler)

    def __hash__(self) -> int:
        return id(self)


class Invalid(Exception):
    """A value is not allowed; its text says what is."""


def _duration(value: Any) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LONGEST:
        raise Invalid("a number of seconds (0 or more) or a timedelta")
    return float(value)


def _positive_duration(value: Any) -> float:
    if (seconds := _duration(value)) < 0.001:
        raise Invalid("a number of seconds above 0, or a timedelta")
    return seconds


def _duration_or_none(value: Any) -> float | None:
    return None if value is None else _duration(value)


def _positive_duration_or_none(value: Any) -> float | None:
    return None if value is None else _positive_duration(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Invalid("True or False")
    return value


def _attempts(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise Invalid("a whole number, 0 for unlimited")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Invalid("a whole number, 1 or more")
    return value


def _backoff(value: Any) -> Backoff:
    if callable(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        raise Invalid("seconds, a sequence of seconds, or f(exception, task_result) -> seconds or None")
    if isinstance(value, Sequence):
        return tuple(_duration(item) for item in value)
    return _duration(value)


def _text_or_none(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise Invalid("a text or None")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise Invalid("a list of texts")
    return tuple(value)


POLICY: dict[str, Callable[[Any], Any]] = {
    "visibility_timeout": _positive_duration,
    "heartbeat": _flag,
    "max_attempts": _attempts,
    "backoff": _backoff,
    "backoff_max": _duration,
    "timeout": _positive_duration_or_none,
    "hard_timeout": _positive_duration_or_none,
    "max_runtime": _positive_duration,
    "result_ttl": _duration_or_none,
    "dead_letter_ttl": _duration_or_none,
    "max_payload_bytes": _count,
}
QUEUE = {**POLICY, "handler": _text_or_none}
BACKEND: dict[str, Callable[[Any], Any]] = {
    **POLICY,
    "database": _text_or_none,
    "threads": _count,
    "processes": _count,
    "task_modules": _texts,
    "mask": _texts,
    "doorbells": _text_or_none,
}
ENTRY = ("BACKEND", "QUEUES", "OPTIONS")  # of ``TASKS``


def nearest(word: str, words: Sequence[str]) -> str:
    """Return the end of an error text: the word that was probably meant, or all that are known."""
    close = get_close_matches(word, words, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(words))}."


def checked(given: Mapping[str, Any], known: Mapping[str, Callable[[Any], Any]], where: str) -> dict[str, Any]:
    """Return ``given`` with each value in its final form; raise ValueError that lists all that is wrong with it."""
    values, wrong = {}, []
    for key, value in given.items():
        if key not in known:
            wrong.append(f"{where} has no option {key!r}: {nearest(str(key), list(known))}")
            continue
        try:
            values[key] = known[key](value)
        except Invalid as allowed:
            wrong.append(f"{where}: {key} is {value!r}, but must be {allowed}.")
    if wrong:
        raise ValueError("\n".join(wrong))
    return values


def parse(params: Mapping[str, Any], alias: str = "default") -> Options:
    """Return one entry of ``TASKS`` as Options; raise ValueError that lists all that is wrong with it."""
    given = dict(params.get("OPTIONS") or {})
    per_queue = given.pop("queue_options", {})
    where = f"TASKS[{alias!r}]['OPTIONS']"
    wrong = misplaced(params, alias)
    try:
        queues = frozenset(_texts(params.get("QUEUES", ["default"])))
    except Invalid as allowed:
        queues = frozenset()
        wrong.append(f"TASKS[{alias!r}]: QUEUES is {params['QUEUES']!r}, but must be {allowed}; [] allows any queue.")

    def part(options: Mapping[str, Any], known: Mapping[str, Callable[[Any], Any]], place: str) -> dict[str, Any]:
        try:
            return checked(options, known, place)
        except ValueError as error:
            wrong.append(str(error))
            return {}

    values = part(given, BACKEND, where)
    if not isinstance(per_queue, Mapping) or not all(isinstance(options, Mapping) for options in per_queue.values()):
        wrong.append(f"{where}: queue_options is {per_queue!r}, but must be {{queue name: {{option: value}}}}.")
        per_queue = {}
    queue_options = {
        name: part(options, QUEUE, f"{where}['queue_options'][{name!r}]") for name, options in per_queue.items()
    }
    if wrong:
        raise ValueError("\n".join(wrong))
    return Options(**values, queue_options=queue_options, queues=queues)


def misplaced(params: Mapping[str, Any], alias: str) -> list[str]:
    """Return an error for each key of an entry of ``TASKS`` that Django does not know."""
    return [
        f"TASKS[{alias!r}] has {key!r}, which belongs into its OPTIONS."
        if key in BACKEND or key == "queue_options"
        else f"TASKS[{alias!r}] has no key {key!r}: {nearest(str(key), ENTRY)}"
        for key in params
        if key not in ENTRY
    ]


@lru_cache(maxsize=1000)
def _policy(options: Options, queue_name: str) -> Policy:
    shared = Policy(**{item.name: getattr(options, item.name) for item in fields(Policy)})
    return replace(shared, **options.queue_options.get(queue_name, {}))


@lru_cache(maxsize=1)
def configured() -> dict[str, Options]:
    """Return the options of each entry of ``TASKS`` that is one of our backends; raise ValueError for a wrong one."""
    return {
        alias: parse(params, alias)
        for alias, params in getattr(settings, "TASKS", {}).items()
        if getattr(import_string(params["BACKEND"]), "vtqueue_backend", False)
    }


@receiver(setting_changed)
def forget(*, setting: str, **kwargs: Any) -> None:
    """Read the settings anew after a test has changed them."""
    if setting == "TASKS":
        configured.cache_clear()
        _policy.cache_clear()
