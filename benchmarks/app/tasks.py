"""The tasks that are measured."""

import time

from django_vtqueue import task


@task
def noop():
    """Do nothing."""


@task(unique_key="noop:{number}")
def unique(number):
    """Do nothing, once for each number."""


@task
def stamp():
    """Return when it began, in nanoseconds."""
    return time.time_ns()


@task
def nap(seconds):
    """Sleep; return when it began and ended, in seconds."""
    began = time.time()
    time.sleep(seconds)
    return [began, time.time()]


@task
def compute(rounds):
    """Keep a core busy, without ever waiting for anything."""
    total = 0
    for number in range(rounds):
        total += number * number
    return total


@task
def echo(text):
    """Return the argument."""
    return text


@task(concurrency=1, concurrency_key="tenant:{tenant}")
def of_tenant(tenant: int) -> None:
    pass


@task(concurrency=100, concurrency_key="tenant:{tenant}", rate="1000000/s", burst=1000, rate_key="host:{tenant}")
def limited(tenant: int) -> None:
    pass
