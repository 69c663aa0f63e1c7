"""A move that is cut off between two of its commits, and two moves at once: each row arrives once."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import IntegrityError, connections

from django_vtqueue.engines import engine_for
from django_vtqueue.models import Job
from django_vtqueue.moving.channel import INBOX, OUTBOX, Channel, MoveRefused, Overtaken
from django_vtqueue.moving.move import Move
from django_vtqueue.moving.parts import Parts

from ..conftest import reached
from ..projects import ROOT
from .conftest import SOURCE, Pair
from .rows import held, job


def loaded(pair: Pair) -> Channel:
    """Return the channel of a move that was cut off after its first commit."""
    channel = Channel(*pair)
    channel.open()
    load(channel)
    return channel


def load(channel: Channel) -> None:
    """Do the first commit of a batch, and no more."""
    with engine_for(channel.source).atomic():
        channel.load(Parts(channel.source, channel.target).take_jobs(None).tables)


def arrive(channel: Channel) -> None:
    """Do the second commit of a batch, and no more."""
    [(number, tables)] = Job.objects.using(channel.source).filter(pk=channel.id).values_list("claims", "payload")
    channel._insert(number, tables)


def jobs(alias: str) -> list[str]:
    return [
        str(key)
        for key in Job.objects.using(alias).exclude(queue_name__startswith="move:").values_list("pk", flat=True)
    ]


def test_cut_off_after_the_first_commit(pair: Pair) -> None:
    """What was in the outbox arrives with the next run; nothing of the way is left."""
    row = job(pair.source)
    loaded(pair)
    assert (jobs(pair.source), jobs(pair.target)) == ([], [])
    Move(*pair).go()
    assert (jobs(pair.source), jobs(pair.target)) == ([], [str(row.pk)])
    assert Job.objects.using(pair.source).count() == 0
    assert Job.objects.using(pair.target).count() == 1


def rescue(source: str, target: str) -> None:
    """Do what docs/guides/moving.md says for a target that is gone."""
    text = (ROOT / "docs/guides/moving.md").read_text()
    lines = "\n".join(re.findall(r"^>>> (.*)$", text, re.MULTILINE))
    exec(lines.replace('"default"', repr(source)).replace('"postgres"', repr(target)))


def test_a_target_that_is_gone(pair: Pair, empty_file: Path, tmp_path: Path) -> None:
    """What was on its way to it arrives in another database; where it has arrived it does not arrive again."""
    row = job(pair.source)
    loaded(pair)
    with reached({"NAME": shutil.copy(empty_file, tmp_path / "other.sqlite3")}, "other"):
        with pytest.raises(MoveRefused, match=r"with 1 rows under way.*guides/moving\.html"):
            Move(pair.source, "other").go()
        rescue(pair.source, "other")
        Move(pair.source, "other").go()
        assert (jobs(pair.source), jobs("other")) == ([], [str(row.pk)])
        assert not Job.objects.using(pair.source).exists()
    job(pair.source)
    channel = loaded(pair)
    arrive(channel)
    with pytest.raises(IntegrityError):
        rescue(*pair)


def test_cut_off_after_the_second_commit(pair: Pair) -> None:
    """What has arrived does not arrive again, although it has run there, and is gone, before the next run."""
    job(pair.source)
    arrive(loaded(pair))
    Job.objects.using(pair.target).filter(queue_name="emails").delete()
    Move(*pair).go()
    assert Job.objects.using(pair.target).count() == 0


def test_what_was_refused_before_the_cut(pair: Pair) -> None:
    """What the target had refused goes back to the source with the next run, and is tried again."""
    waits, there = job(pair.source, unique_key="a"), job(pair.target, unique_key="a")
    channel = loaded(pair)
    arrive(channel)
    assert jobs(pair.source) == []
    Job.objects.using(pair.target).filter(pk=there.pk).delete()
    assert channel.deliver(lambda rows: None) == {waits.pk.hex: "another job there has its unique key"}
    assert jobs(pair.source) == [str(waits.pk)]
    Move(*pair).go()
    assert jobs(pair.target) == [str(waits.pk)]


def test_a_key_that_is_taken_on_both_sides(pair: Pair) -> None:
    """A job that is refused there, and whose key was taken here meanwhile, comes back without its claim to the key."""
    waits = job(pair.source, unique_key="a")
    job(pair.target, unique_key="a")
    channel = loaded(pair)
    job(pair.source, unique_key="a")
    channel.deliver(lambda rows: None)
    assert Job.objects.using(pair.source).get(pk=waits.pk).unique_until == "started"


@pytest.mark.parametrize("is_held", [False, True], ids=["free", "held"])
def test_a_lease_that_was_taken_on_both_sides_amid_a_move(pair: Pair, is_held: bool) -> None:
    """Whose row was under way is one of these two; its token is kept unless an instance has another one just now."""
    for _ in range(5):
        held(pair.source).release()
    channel = Channel(*pair)
    channel.open()
    with engine_for(pair.source).atomic():
        channel.load(Parts(*pair).take_reserved(None).tables)
    both = [held(alias) for alias in pair]
    if not is_held:
        both[0].release()
    Move(*pair).go()
    assert [lease.token for lease in both if lease.held] == [1] * (1 + is_held)
    rows = Job.objects.using(pair.source).filter(queue_name="lease:nightly")
    assert [(row.unique_until, row.claims) for row in rows] == [("done", 1 if is_held else 5)]
    both[0].release()
    both[1].release()
    Move(*pair).go()
    assert not Job.objects.using(pair.source).exists()
    assert Job.objects.using(pair.target).get().claims == (1 if is_held else 5)


def test_two_runs_at_once(pair: Pair) -> None:
    """A run finishes the batch of another one; the other one then does nothing, whatever it was about to do."""
    job(pair.source)
    first = loaded(pair)
    second = Channel(*pair)
    second.open()
    assert second.id == first.id
    with pytest.raises(Overtaken), engine_for(pair.source).atomic():
        second.load({"Job": []})
    [(number, tables)] = Job.objects.using(pair.source).filter(pk=first.id).values_list("claims", "payload")
    second.deliver(lambda rows: None)
    second.close()
    Job.objects.using(pair.target).all().delete()
    assert first._insert(number, tables) == ({}, {})  # it was about to insert the batch
    assert not Job.objects.using(pair.target).exists()
    with pytest.raises(MoveRefused, match="Another run of this move has ended"):
        first.deliver(lambda rows: None)


def test_two_runs_that_have_begun_at_once(pair: Pair) -> None:
    """Each has found no way, and made one of its own: the next run goes on with the one on which a batch is."""
    idle, cut_off = Channel(*pair), Channel(*pair)
    for channel in (idle, cut_off):
        channel._create(pair.target, INBOX)
        channel._create(pair.source, OUTBOX)
    row = job(pair.source)
    with engine_for(pair.source).atomic():
        cut_off.load(Parts(*pair).take_jobs(None).tables)
    Move(*pair).go()
    assert jobs(pair.target) == [str(row.pk)]


def test_two_directions_that_were_both_cut_off(pair: Pair) -> None:
    """Each goes on when it is run again: none waits for the end of the other."""
    rows = {str(job(alias).pk) for alias in pair}
    channels = Channel(*pair), Channel(*pair.back)
    for channel in channels:
        channel.open()
    for channel in channels:
        load(channel)
    assert not jobs(pair.source) + jobs(pair.target)
    Move(*pair).go()
    Move(*pair.back).go()
    assert {*jobs(pair.source)} == rows
    assert Job.objects.using(pair.target).count() == 0
    assert Job.objects.using(pair.source).count() == 2


def test_a_source_that_is_a_backup(pair: Pair) -> None:
    """Numbers go on behind those that have arrived: that of a restored source is not taken for an old one."""
    job(pair.source)
    channel = loaded(pair)
    channel.deliver(lambda rows: None)
    Job.objects.using(pair.source).filter(pk=channel.id).update(claims=0)
    row = job(pair.source)
    Move(*pair).go()
    assert str(row.pk) in jobs(pair.target)


@contextmanager
def again(pair: Pair) -> Iterator[str]:
    """Reach the source by another alias."""
    with reached(connections.settings[SOURCE], "again") as alias:
        yield alias


def test_the_same_database(pair: Pair) -> None:
    """A database cannot be moved to itself, by whatever names it is reached; nothing is left of the try."""
    with pytest.raises(MoveRefused, match="are the same database"):
        Move(pair.source, pair.source).go()
    with again(pair) as alias, pytest.raises(MoveRefused, match="are the same database"):
        Move(pair.source, alias).go()
    assert not Job.objects.using(pair.source).exists()


@pytest.mark.parametrize("pair", [("sqlite", "sqlite")], indirect=True)
def test_the_same_file_by_a_hard_link(pair: Pair, tmp_path: Path) -> None:
    """A file with two paths is one database."""
    other = tmp_path / "link.sqlite3"
    other.hardlink_to(connections[pair.source].settings_dict["NAME"])
    connections[pair.source].cursor().execute("PRAGMA journal_mode=DELETE")
    link = {"NAME": str(other), "OPTIONS": {}}
    with reached(link, "again") as alias, pytest.raises(MoveRefused, match="are the same database"):
        Move(pair.source, alias).go()
    assert not Job.objects.using(pair.source).exists()


def test_another_target(pair: Pair, tmp_path: Path) -> None:
    """With a batch under way nothing is moved to a third database, nor back, before it has arrived."""
    row = job(pair.source)
    loaded(pair)
    with pytest.raises(MoveRefused, match=r"--from source --to target"):
        Move(*pair.back).go()
    Job.objects.using(pair.target).filter(queue_name="move:in").update(queue_name="move:other")
    with pytest.raises(MoveRefused, match="to another database than 'target' was interrupted, with 1 rows under way"):
        Move(*pair).go()
    Job.objects.using(pair.target).filter(queue_name="move:other").update(queue_name="move:in")
    Move(*pair).go()
    assert jobs(pair.target) == [str(row.pk)]
    Move(*pair.back).go()
    assert jobs(pair.source) == [str(row.pk)]
