"""The task that is measured."""

from django_vtqueue import task


@task
def noop():
    """Do nothing."""
