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


BROKEN = {
    "length": WithoutLength,
    "traceback": WithoutTraceback,
    "name": WithoutName,
    "class": WithoutClass,
    "text": WithoutText,
}


@task(max_attempts=1)
def raise_broken(kind: str) -> None:
    raise BROKEN[kind]


def handle_broken(job: ClaimedJob) -> None:
    raise BROKEN[job.payload]
