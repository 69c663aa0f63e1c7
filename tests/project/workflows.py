"""The calls of the workflows that the tests make."""

import os
import signal
from pathlib import Path
from typing import Any

from django_vtqueue import GiveUp, JobContext, task

from .durable import note

BROKEN: set[str] = set()  # what these fail at, as tests want it


@task
def fetch(url: str) -> list[str]:
    note(f"fetch {url}")
    return [url, "page"]


@task(backoff=0)
def parse(page: list[str], upper: bool = False) -> str:
    note("parse")
    if "parse" in BROKEN:
        raise GiveUp("no page")
    text = " ".join(page)
    return text.upper() if upper else text


@task
def store(text: str, /, *tags: str) -> dict[str, Any]:
    note("store")
    return {"text": text, "tags": tags}


@task
def send(number: int) -> int:
    note(f"send {number}")
    if str(number) in BROKEN:
        raise GiveUp(f"{number} is broken")
    return number * 10


@task
def report(results: list[int], title: str = "") -> str:
    note("report")
    if "report" in BROKEN:
        raise GiveUp("no paper")
    return f"{title}{sum(results)}"


@task
def alarm(failures: list[dict[str, Any]], to: str) -> list[dict[str, Any]]:
    note(f"alarm {to}")
    return failures


@task
def login(user: str, password: str) -> str:
    return user


@task(expires=60)
def soon(number: int) -> None:
    """Not later."""


@task(unique_key="only")
def only_one() -> None: ...


@task(takes_context=True)
def killed_once(context: JobContext, value: int, folder: str) -> int:
    """Kill the worker in the first attempt, and count the attempts."""
    with (Path(folder) / "attempts").open("a") as file:
        file.write(f"{value}\n")
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return value + 1


@task
def opened(number: int, folder: str) -> int:
    """Note each execution, and give up as long as there is no file ``open``."""
    with (Path(folder) / "tried").open("a") as file:
        file.write(f"{number}\n")
    if not (Path(folder) / "open").exists():
        raise GiveUp("closed")
    return number


@task
def add_one(value: int) -> int:
    note("add_one")
    return value + 1
