"""Texts as they are stored and shown."""

from hypothesis import given
from hypothesis import strategies as st

from django_vtqueue.core.text import shorten, storable

from .texts import texts


@given(texts, st.integers(2, 100))
def test_shorten(text: str, limit: int) -> None:
    """Head and tail are kept, and it is said how much is missing; what is short enough is left alone."""
    short = shorten(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        half = limit // 2
        assert short.startswith(text[:half])
        assert half == 0 or short.endswith(text[-half:])
        assert f"[... {len(text) - 2 * half} characters left out ...]" in short
        assert len(short) < limit + 50


@given(texts)
def test_storable(text: str) -> None:
    """No NUL, no lone surrogates: what any database stores; anything else is left as it is."""
    kept = storable(text)
    assert "\0" not in kept
    assert kept.encode().decode() == kept
    if text.isprintable():
        assert kept == text
