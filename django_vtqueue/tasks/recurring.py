"""``@recurring``: what code declares about the times at which a task is run. A worker writes it down at its start."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import FunctionType, MappingProxyType
from typing import Any, Literal, TypeVar

from django.utils import timezone

from ..core.allowed import Invalid, duration, flag, one_of, text_or_none
from ..core.clock import microseconds
from ..core.encoding import encode, normalize
from ..core.ticks import ALL, EVERY, ONE, SKIP, checked
from ..core.ticks import every as expression_of
from .compat import Task
from .lookup import loaded_task

T = TypeVar("T")

ATTRIBUTE = "vtqueue_recurring"
LONGEST_SCHEDULE_NAME = 200  # characters: with a prefix it is a unique key
NOTHING: Mapping[str, Any] = MappingProxyType({})

_functions: dict[str, Callable[..., Any]] = {}  # by path, those that have declarations


@dataclass(frozen=True)
class Declaration:
    """One ``@recurring``. ``path``: of what stands below it; ``time_zone``: None for ``TIME_ZONE``, "" for a period."""

    path: str
    given_name: str | None
    expression: str
    time_zone: str | None
    missed: str
    overlap: bool
    jitter_us: int
    args: list[Any]
    kwargs: dict[str, Any]

    @property
    def task(self) -> Task | None:
        """The task; None if the function below it is none."""
        return loaded_task(self.path)

    @property
    def zone_name(self) -> str:
        """The time zone of the fields; "" for a period."""
        return timezone.get_default_timezone_name() if self.time_zone is None else self.time_zone


def recurring(
    expression: str | None = None,
    /,
    *,
    every: float | timedelta | None = None,
    tz: str | None = None,
    missed: Literal["one", "all", "skip"] = "one",
    overlap: bool = True,
    jitter: float | timedelta = 0,
    name: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] = NOTHING,
) -> Callable[[T], T]:
    """Have the workers enqueue a task again and again; it stands above ``@task``, as often as wanted.

    ``expression``: the five fields of cron, in the time zone ``tz`` (default: ``TIME_ZONE``). ``every``: instead of it,
    whole seconds, counted from 1970. ``missed``: what becomes of ticks at which no worker ran: ``"one"`` job for all of
    them, ``"all"`` (a job for each, of the last 100), ``"skip"`` (none; but the last one is run if it is no more than a
    minute late). ``overlap=False``: no job as long as the last one is unfinished. ``jitter``: up to so many seconds by
    which a job is due later than its tick. ``name``: in lists and commands (default: the path of the task). ``args``,
    ``kwargs``: of each call, JSON.

    Raise TypeError or ValueError for what is not allowed; ``manage.py check`` finds the rest.
    """
    if (expression is None) == (every is None):
        raise TypeError("@recurring takes a cron expression or every=timedelta(...), one of them.")
    if expression is not None and not isinstance(expression, str):
        raise TypeError(f"@recurring got {expression!r:.100}, but takes an expression: @recurring('0 3 * * *').")
    text = checked_cron(str(expression)) if every is None else expression_of(every)
    if every is not None and tz is not None:
        raise TypeError("@recurring(every=...) takes no tz: a period is counted from 1970, UTC.")
    values = {
        "given_name": checked_name(name),
        "expression": text,
        "time_zone": allowed("tz", tz, text_or_none) if every is None else "",
        "missed": allowed("missed", missed, one_of(ONE, ALL, SKIP)),
        "overlap": allowed("overlap", overlap, flag),
        "jitter_us": microseconds(allowed("jitter", jitter, duration)),
        "args": as_json("args", list(allowed("args", args, positional))),
        "kwargs": as_json("kwargs", dict(allowed("kwargs", kwargs, by_name))),
    }

    def declare(below: T) -> T:
        # A task may be frozen: its function bears it. Without @task below it is declared too, and a check finds it.
        function = below.func if isinstance(below, Task) else below
        if not isinstance(function, FunctionType):
            raise TypeError(f"@recurring stands above @task, not above {below!r:.100}.")
        path = f"{function.__module__}.{function.__qualname__}"
        known = vars(function).setdefault(ATTRIBUTE, [])
        known.insert(0, Declaration(path=path, **values))
        _functions[path] = function
        return below

    return declare


def checked_cron(expression: str) -> str:
    """Return a cron expression in its stored form; raise ValueError for any other text."""
    if expression.startswith(EVERY):
        raise ValueError(f"@recurring got {expression!r:.100}: say every=timedelta(...).")
    return checked(expression)


def checked_name(name: Any) -> str | None:
    """Return the name of a schedule, None for the default; raise ValueError for what is none."""
    if name is None:
        return None
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_SCHEDULE_NAME or not name.isprintable():
        raise ValueError(
            f"The name of a schedule is one line of 1 to {LONGEST_SCHEDULE_NAME} characters, not {name!r:.100}."
        )
    if name in (".", ".."):
        raise ValueError(f"The name of a schedule cannot be {name!r}: browsers take it out of the address of its page.")
    return name


def allowed(name: str, value: Any, check: Callable[[Any], Any]) -> Any:
    """Return an argument in its final form; raise ValueError that says what is allowed."""
    try:
        return check(value)
    except Invalid as what:
        raise ValueError(f"@recurring: {name} is {value!r:.100}, but must be {what}.") from None


def positional(value: Any) -> Any:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise Invalid("a list: [7] for one argument")
    return value


def by_name(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise Invalid("a dictionary by the names of arguments")
    return value


def as_json(name: str, value: Any) -> Any:
    """Return arguments as they are stored; raise TypeError, with the place of it, for what is not JSON."""
    encode(value, name)
    return normalize(value)


def declarations() -> Iterator[tuple[str, Declaration]]:
    """Yield all that is declared in loaded modules, each with its name: that of its task, if none was given.

    Several of one task without names have their expressions in them.
    """
    for path, function in list(_functions.items()):
        known: list[Declaration] = vars(function)[ATTRIBUTE]
        alone = len([each for each in known if each.given_name is None]) == 1
        for each in known:
            yield each.given_name or (path if alone else f"{path} {each.expression}"), each
