"""Hosts that meet in a folder to test it."""

import json
from pathlib import Path

import pytest

from django_vtqueue.engines.sqlite import hosts
from django_vtqueue.engines.sqlite.hosts import FOLDER, Hosts


class HaveMet(Exception):
    """They would tell each other what they know now."""


def test_a_host_lives_when_it_has_said_so_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file may be there before its first line: else one of two would wait for the other, which says no more."""
    mine = Hosts(str(tmp_path))
    other, looks = tmp_path / FOLDER / "host.other", 0
    other.touch()

    def look(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks in (2, 4):
            other.write_text(json.dumps(["alive", looks]) + "\n")

    def exchange(self: Hosts, key: str, value: object) -> None:
        raise HaveMet

    monkeypatch.setattr(hosts.time, "sleep", look)
    monkeypatch.setattr(Hosts, "exchange", exchange)
    with pytest.raises(HaveMet):
        mine.meet(2, 60)
    assert looks == 4
