"""Exceptions that fail when they are looked at, and tasks that raise them."""

from typing import Any

from django_vtqueue import ClaimedJob, task


class Text(str):
    def __len__(self) -> int:
        raise RuntimeError("no length")


class WithoutLength(Exception):
    """Its text is of a kind of its own."""

    def __str__(self) -> str:
        return Text("text")


class WithoutTraceback(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no traceback")


class Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "__qualname__":
            raise RuntimeError("no name")
        return super().__getattribute__(name)

    def __hash__(cls) -> int:
        raise RuntimeError("no hash")


class WithoutName(Exception, metaclass=Nameless):
    pass


class WithoutClass(Exception):
    def __str__(self) -> str:
        return "text"

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class WithoutText(Exception):
    """To print it is to leave."""

    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


class Hollow(Exception):
    """It is false, as one with an empty list of errors."""

    def __len__(self) -> int:
        return 0


BROKEN = {
    "hollow": Hollow,
    "stop": StopIteration,
    "length": WithoutLength,
    "traceback": WithoutTraceback,
    "name": WithoutName,
    "class": WithoutClass,
    "text": WithoutText,
}


@task(max_attempts=1)
def raise_broken(kind: str) -> None:
    raise BROKEN[kind]("text")


@task(max_attempts=1)
async def araise_broken(kind: str) -> None:
    raise BROKEN[kind]("text")


async def ahandle_broken(job: ClaimedJob) -> None:
    raise BROKEN[job.payload]("text")


def handle_broken(job: ClaimedJob) -> None:
    raise BROKEN[job.payload]("text")
