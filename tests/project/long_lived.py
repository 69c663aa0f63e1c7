"""Tasks whose calls are kept in tests/upgrade: their names, arguments and options stay as they are."""

from django_vtqueue import TaskContext, task


@task
def succeed(name: str) -> str:
    return name


@task(takes_context=True, backoff=1)
def fail_once(context: TaskContext, name: str) -> str:
    if context.attempt == 1:
        raise ConnectionError(name)
    return name


@task(max_attempts=1)
def fail(name: str) -> None:
    raise LookupError(name)
