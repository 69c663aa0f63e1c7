"""What is public is written down with its signatures; all else may change from one version to the next."""

import difflib

import django_vtqueue

from .public_api import PAGE, written


def test_public_names_have_the_signatures_that_are_written_down() -> None:
    """docs/reference/public-api.md says what the code has. After a decision: ``make api`` writes the page."""
    page = PAGE.read_text()
    assert "\n".join(difflib.unified_diff(page.splitlines(), written(page).splitlines(), lineterm="")) == ""


def test_each_public_name_is_there() -> None:
    """Also those that are imported when they are first used; each stays the same object."""
    assert set(django_vtqueue.__all__) <= set(dir(django_vtqueue))
    for name in django_vtqueue.__all__:
        assert getattr(django_vtqueue, name) is getattr(django_vtqueue, name)
