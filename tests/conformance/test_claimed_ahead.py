"""Jobs that a worker claims ahead of its free slots: they have no attempt until they begin."""

from tests.fake_clock import at

from .bench import Bench, Held, success


def claim(bench: Bench, limit: int, ahead: int, now: float = 0) -> list[Held]:
    return bench.claim(now, limit, ahead=ahead)


def test_what_is_claimed_ahead_has_no_attempt(bench: Bench) -> None:
    """Behind those that are started at once, so many further ones are held, in order, their attempts uncounted."""
    ids = bench.publish(*"abcdef")
    jobs = claim(bench, limit=2, ahead=3)
    assert [job.id for job in jobs] == ids[:5]
    assert [(job.claims, job.attempts, job.started_at is not None) for job in jobs] == [(1, 1, True)] * 2 + [
        (1, 0, False)
    ] * 3
    assert claim(bench, limit=5, ahead=5)[0].id == ids[5]


def test_only_fresh_jobs_are_claimed_ahead(bench: Bench) -> None:
    """Up to the first that was claimed before or may begin only once: a crash must not run it uncounted."""
    bench.publish("retried")
    bench.nack(bench.one(), delay=0)
    bench.publish("fresh", now=2)
    assert len(claim(bench, limit=0, ahead=5, now=3)) == 0
    assert len(claim(bench, limit=1, ahead=5, now=3)) == 2
    bench.publish("once", now=2, max_attempts=1)
    assert len(claim(bench, limit=0, ahead=5, now=3)) == 0


def test_an_attempt_begins_once_and_for_its_holder_only(bench: Bench) -> None:
    """``begin`` counts the attempt of a held row that has none; not twice, and not for a row of another holder."""
    bench.publish("mine", "others")
    mine, others = claim(bench, limit=0, ahead=2)
    bench.jobs.filter(pk=others.id).update(claims=2)
    for _ in range(2):
        bench.begin(mine, others, now=1)
    assert [bench.found(job.id).attempts for job in (mine, others)] == [1, 0]
    assert bench.found(mine.id).started_at == at(1)


def test_what_has_not_begun_costs_nothing_when_its_lease_ends(bench: Bench) -> None:
    """Its next claim counts the first attempt, and its history is empty: it was not run."""
    bench.publish("x")
    claim(bench, limit=0, ahead=1)
    job = bench.one(now=61)
    assert (job.claims, job.attempts, bench.outcomes(job.id)) == (2, 1, [])


def test_the_outcome_counts_an_attempt_that_began_unseen(bench: Bench) -> None:
    """A job that begins and ends between two turns has its attempt from its settlement."""
    bench.publish("x")
    [job] = claim(bench, limit=0, ahead=1)
    job.attempts = 1
    bench.settle(success(job))
    assert (bench.found(job.id).state, bench.found(job.id).attempts) == ("SUCCESSFUL", 1)


def test_a_claim_knows_whether_it_took_all(bench: Bench) -> None:
    """What is due and was not taken, because it may not be claimed ahead, is found by the next claim at once."""

    def all_taken(limit: int, ahead: int) -> bool:
        return bench.take(now=3, limit=limit, ahead=ahead).everything

    for _ in range(2):
        bench.publish("retried")
        bench.nack(bench.one(), delay=0)
    assert not all_taken(limit=1, ahead=5)
    assert all_taken(limit=1, ahead=5)
    bench.publish("fresh", "fresh")
    assert not all_taken(limit=1, ahead=1)
    assert all_taken(limit=1, ahead=0)


def test_what_waits_in_line_begins_unless_it_was_cancelled_or_paused(bench: Bench) -> None:
    """Of those that wait for their turn; what does not begin uses no attempt."""
    bench.publish("x", "cancelled", "paused")
    held, cancelled, paused = claim(bench, limit=0, ahead=3)
    bench.ask_to_stop(cancelled.id, 1)
    with bench.transaction():
        assert [bench.begin_in_turn(job) for job in (held, cancelled)] == [True, False]
        bench.pause("q")
        assert not bench.begin_in_turn(paused)
    assert [bench.found(job.id).attempts for job in (held, cancelled, paused)] == [1, 0, 0]
