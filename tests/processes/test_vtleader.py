"""``manage.py vtleader``: real commands, real signals."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from django.core.management import CommandError, call_command

from django_vtqueue.core import clock
from django_vtqueue.patterns import guard_process
from django_vtqueue.patterns.guarded_command import Guarded

from ..waiting import PROMPT, wait_until
from .database import Database
from .instance import Term, overlaps, terms
from .running import MANAGE, Running, Start, children, python

TTL = 4.0  # seconds: a leader that is not to lose it may be late for half of it
LONG = 20.0  # seconds: a ttl whose end is not waited for


@pytest.fixture
def lead(start: Start) -> Callable[..., Running]:
    """Return a function that starts a vtleader with a command."""

    def lead(*command: str, ttl: float = TTL, **variables: str) -> Running:
        return start(MANAGE, "vtleader", "shop", "--ttl", str(ttl), "--", *command, **variables)

    return lead


@pytest.fixture
def pair(lead: Callable[..., Running], tmp_path: Path) -> Callable[..., tuple[Running, Running]]:
    """Return a function that starts two of them: the first one runs its command, the second one waits."""

    def pair(*options: str, ttl: float = TTL) -> tuple[Running, Running]:
        command = python("-m", "tests.processes.commanded", str(tmp_path / "ran"), *options)
        commands = [lead(*command, ttl=ttl) for _ in range(2)]
        wait_until(lambda: terms(tmp_path / "ran"))
        for each in commands:
            each.wait_for("waits for lease 'shop'")
        commands.sort(key=lambda each: "token" not in each.log)
        return commands[0], commands[1]

    return pair


def guard_of(leader: Running) -> int:
    [pid] = children(leader.pid)
    return pid


def command_of(leader: Running) -> int:
    """Return the pid of what it runs, as that has said last."""
    leader.wait_for("runs ")
    wait_until(lambda: re.search(r"^runs \d+ \d+$", leader.log, re.MULTILINE))
    return int(re.findall(r"^runs (\d+) \d+$", leader.log, re.MULTILINE)[-1])


def ran(folder: Path) -> list[Term]:
    """Return when the command has run, a term for each token; fail if two overlap."""
    told = sorted(terms(folder / "ran"), key=lambda term: term.begin)
    assert overlaps(told) == []
    assert [term.token for term in told] == sorted(term.token for term in told)
    return told


def gone(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


# -- a command ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 7", 7), ("exit 0", 0), ("kill -KILL $$", 137), ("kill -TERM $$", 143), ("./nothing.here", 127)],
)
def test_exit_code(lead: Callable[..., Running], command: str, code: int) -> None:
    """It exits with the command's code, 128 + N if signal N has ended it."""
    leader = lead("sh", "-c", command)
    assert leader.wait() == code, leader.log


def test_a_command_that_cannot_be_run(lead: Callable[..., Running], tmp_path: Path) -> None:
    """What is not there is 127, what cannot be executed 126, as of a shell, and it is said which."""
    (tmp_path / "text").write_text("no program")
    missing, text = lead("./nothing.here"), lead(str(tmp_path / "text"))
    assert (missing.wait(), text.wait()) == (127, 126)
    assert "vtleader: ./nothing.here: No such file or directory" in missing.log
    assert "Permission denied" in text.log


def test_the_command_and_its_surroundings(lead: Callable[..., Running]) -> None:
    """The command has its arguments as they were given, the token, standard input and output, usual signal actions."""
    said = "echo token $VTQUEUE_TOKEN; echo args $0 $@; read line; echo line $line.; grep SigIgn /proc/self/status"
    for number in (1, 2):
        leader = lead("sh", "-c", said, "--ttl", "a b", "--")
        assert leader.wait() == 0, leader.log
        for line in (f"token {number}", "args --ttl a b --", "line ."):
            assert line in leader.log.splitlines()
        assert ignored(leader.log) == set()


def ignored(log: str) -> set[int]:
    """Return which signals a command ignores, of those that this depends on vtleader for."""
    [mask] = re.findall(r"^SigIgn:\s*(\w+)$", log, re.MULTILINE)
    looked_at = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ}
    return {number for number in looked_at if int(mask, 16) >> (number - 1) & 1}


def test_bad_arguments() -> None:
    """What is wrong is said in a sentence."""
    for arguments, said in (
        (["", "--", "true"], "The name is a text of 1 to 249 characters"),
        (["x", "--ttl", "0", "--", "true"], "ttl is 0.0, but must be 0.1 seconds or more"),
        (["x", "--using", "nowhere", "--", "true"], "There is no database 'nowhere'"),
        (["x"], "required: COMMAND"),
    ):
        with pytest.raises(CommandError, match=re.escape(said)):
            call_command("vtleader", *arguments)


# -- signals -----------------------------------------------------------------------------------------------------------

TRAPS = """
for name in HUP INT QUIT TERM USR1 USR2; do trap "echo got $name" $name; done
echo listening
while true; do sleep 0.05; done
"""


def test_signals_are_forwarded(lead: Callable[..., Running]) -> None:
    """Each signal reaches the command, which does with it what it likes."""
    leader = lead("sh", "-c", TRAPS)
    leader.wait_for("listening")
    for name in ("HUP", "INT", "TERM", "USR1", "USR2"):  # a shell in the background has all else ignore SIGQUIT
        leader.signal(getattr(signal, f"SIG{name}"))
        leader.wait_for(f"got {name}")
    assert not leader.ended()


def test_term_ends_both(lead: Callable[..., Running]) -> None:
    """A command without a handler ends by SIGTERM, and vtleader with 128 + 15; no part of the command is left."""
    leader = lead("sh", "-c", "sleep 1000 & echo child $!; sleep 1000; true")
    leader.wait_for("child")
    child = int(leader.lines("child")[0].split()[1])
    assert leader.terminate() == 143
    wait_until(lambda: gone(child))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_waits_leaves(pair: Callable[..., tuple[Running, Running]], number: int) -> None:
    """SIGTERM and SIGINT end one that waits, with 128 + N; other signals are for a command only."""
    first, second = pair()
    second.signal(signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    second.signal(number)
    assert second.wait() == 128 + number, second.log
    assert not first.ended()


def test_nohup(lead: Callable[..., Running]) -> None:
    """A signal that is ignored when it starts, as by nohup, is ignored by the command too."""
    leader = lead("sh", "-c", "grep SigIgn /proc/self/status")
    assert leader.wait() == 0
    ignoring = subprocess.run(
        ["nohup", *leader.process.args],  # type: ignore[misc]
        env=leader.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ignored(ignoring.stdout) == {signal.SIGHUP}


# -- the leadership passes ---------------------------------------------------------------------------------------------


def test_the_next_one_follows(pair: Callable[..., tuple[Running, Running]], tmp_path: Path) -> None:
    """When the command of one ends, the next one runs its own at once."""
    first, second = pair(ttl=LONG)
    assert first.terminate() == 143
    ended = clock.since_boot()
    command_of(second)
    wait_until(lambda: len(ran(tmp_path)) == 2)
    assert ran(tmp_path)[1].begin - ended < LONG / 2


@pytest.mark.parametrize("ignoring", [False, True])
def test_vtleader_is_killed(pair: Callable[..., tuple[Running, Running]], tmp_path: Path, ignoring: bool) -> None:
    """The command of a killed vtleader gets SIGTERM, and SIGKILL if it does not end; only then the next one begins."""
    first, second = pair(*["ignoring"][:ignoring], ttl=LONG)
    command, guard, grace = command_of(first), guard_of(first), LONG / 5
    first.kill()
    killed = clock.since_boot()
    command_of(second)
    assert gone(command)
    wait_until(lambda: gone(guard))
    first_ran, next_ran = wait_until(lambda: ran(tmp_path)[1:] and ran(tmp_path))
    assert next_ran.begin - killed < grace + LONG / 2
    assert (first_ran.end > killed + grace / 2) is ignoring


@pytest.mark.parametrize("ignoring", [False, True])
def test_vtleader_is_stopped(
    database: Database, pair: Callable[..., tuple[Running, Running]], tmp_path: Path, ignoring: bool
) -> None:
    """While vtleader is stopped its command is ended before another one begins; when it goes on it waits again."""
    first, second = pair(*["ignoring"][:ignoring])
    command = command_of(first)
    database.stop(first)
    stopped = clock.since_boot()
    command_of(second)
    assert gone(command)
    first.go_on()
    first.wait_for("may pass")
    assert wait_until(lambda: ran(tmp_path)[1:])[0].begin - stopped < TTL + PROMPT
    assert second.terminate() == 143 if not ignoring else second.kill() is None
    wait_until(lambda: len(ran(tmp_path)) >= 3)


def test_vtleader_and_its_guard_are_killed(pair: Callable[..., tuple[Running, Running]], tmp_path: Path) -> None:
    """If the guard is killed too, the system kills the command with it."""
    first, second = pair("ignoring")
    command, guard = command_of(first), guard_of(first)
    first.stop()
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: gone(command))
    first.kill()
    command_of(second)
    ran(tmp_path)


def test_the_guard_is_killed(pair: Callable[..., tuple[Running, Running]], tmp_path: Path) -> None:
    """If only the guard is killed, its command ends with it, and vtleader gives the leadership up and waits again."""
    first, second = pair("ignoring")
    command = command_of(first)
    os.kill(guard_of(first), signal.SIGKILL)
    wait_until(lambda: len(ran(tmp_path)) >= 2)
    assert gone(command)
    first.wait_for("may pass")
    assert not first.ended()
    assert not second.ended()


def test_the_database_is_locked(
    pair: Callable[..., tuple[Running, Running]], tmp_path: Path, database: Database
) -> None:
    """If the lease cannot be renewed, the command is ended before it is over; then one of both starts it anew."""
    ttl = 6.0  # the command is ended half a second before its end
    first, _ = pair("ignoring", ttl=ttl)
    command = command_of(first)
    with database.locked():
        began = clock.since_boot()
        wait_until(lambda: gone(command))
        assert ran(tmp_path)[0].end - began < ttl
    wait_until(lambda: len(ran(tmp_path)) >= 2)


def test_held_through_a_short_lock(
    pair: Callable[..., tuple[Running, Running]], tmp_path: Path, database: Database
) -> None:
    """A lock that leaves time for a renewal is not noticed."""
    ttl = 9.0
    pair(ttl=ttl)
    with database.locked():
        until = clock.since_boot() + ttl  # then a lease that was not renewed after the lock is over
        time.sleep(2)
    wait_until(lambda: ran(tmp_path)[0].end > until)
    assert len(ran(tmp_path)) == 1


def test_the_row_is_taken_by_force(
    pair: Callable[..., tuple[Running, Running]], tmp_path: Path, database: Database
) -> None:
    """A leadership that was ended by hand is noticed at the next renewal, and the command is killed."""
    first, _ = pair("ignoring")
    command = command_of(first)
    database.write("UPDATE vtqueue_job SET claims = claims + 1, worker_id = 'x:1:1' WHERE queue_name = 'lease:shop'")
    wait_until(lambda: gone(command))
    wait_until(lambda: len(terms(tmp_path / "ran")) >= 2)
    ran(tmp_path)


def test_what_a_command_leaves_behind(lead: Callable[..., Running]) -> None:
    """What a command has started in the background does not outlive it."""
    leader = lead("sh", "-c", "sleep 1000 & echo child $!")
    assert leader.wait() == 0
    assert gone(int(leader.lines("child")[0].split()[1]))


def test_what_a_command_leaves_behind_when_vtleader_is_killed(lead: Callable[..., Running]) -> None:
    """Nor does it outlive the command if it ignores SIGTERM and vtleader is dead."""
    leader = lead("sh", "-c", "(trap '' TERM; echo child; exec sleep 1000) & echo pid $!; wait")
    leader.wait_for("child")
    leader.wait_for("pid")
    leader.kill()
    wait_until(lambda: gone(int(leader.lines("pid")[0].split()[1])))


# -- what no signal reaches, orphans, a guard that cannot run ----------------------------------------------------------


def runs_as_another_user(program: str) -> bool:
    """Return whether this process is root's, and another user may run a program: its folder may be closed to others."""
    if os.getuid() != 0 or not shutil.which("setpriv"):
        return False
    command = ["setpriv", "--reuid", "65534", "--clear-groups", program, "-I", "-S", "-c", ""]
    return subprocess.run(command, capture_output=True).returncode == 0


PYTHON: str = sys._base_executable  # type: ignore[attr-defined]


@pytest.mark.skipif(not runs_as_another_user(PYTHON), reason="no command can be run here that changes its user")
def test_the_guard_of_a_command_that_changes_its_user() -> None:
    """A guard that may not kill its command stays with it, and says nothing before that has ended."""
    with TemporaryDirectory(prefix="vtq-") as folder, ExitStack() as stack:
        os.chmod(folder, 0o755)
        changes_user, copy = f"{folder}/setpriv", shutil.copy(guard_process.__file__, folder)
        shutil.copy(shutil.which("setpriv") or "", changes_user)
        os.chmod(changes_user, 0o4755)
        (control, said), (status, told) = os.pipe(), os.pipe()
        stack.callback(os.close, status)
        words = [PYTHON, "-I", "-S", copy, str(control), str(told), "0.2"]
        running = subprocess.Popen(
            ["setpriv", "--reuid", "65534", "--clear-groups", *words, changes_user, "--reuid", "0", "sleep", "1000"],
            pass_fds=[control, told],
            start_new_session=True,
            stderr=subprocess.PIPE,
        )
        stack.callback(running.wait)
        assert running.stderr
        stack.enter_context(running.stderr)
        os.close(control)
        os.close(told)
        os.write(said, f"until {clock.since_boot() + 60}\n".encode())
        wait_until(lambda: any("sleep" in Path(f"/proc/{pid}/comm").read_text() for pid in children(running.pid)))
        os.write(said, f"until {clock.since_boot() + 0.3}\n".encode())
        assert b"has changed its user, and cannot be ended" in running.stderr.readline()
        os.close(said)
        [command] = children(running.pid)
        assert not select.select([status], [], [], 1.5)[0]
        assert not gone(command)
        os.kill(command, signal.SIGKILL)
        assert os.read(status, 100) == b"-9 1"


def test_what_no_signal_reaches_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the guard is dead, and a process of its group may not be killed, the command has not ended."""
    killpg = os.killpg

    def refused(group: int, number: int) -> None:
        raise PermissionError

    with Guarded(["sleep", "1000"], 0.2, -1, dict(os.environ)) as running:
        running.keep(clock.since_boot() + 60)
        wait_until(lambda: children(running._guard.pid))
        monkeypatch.setattr(os, "killpg", refused)
        os.kill(running._guard.pid, signal.SIGKILL)
        assert not any(running.ended(0.1) for _ in range(5))
        monkeypatch.setattr(os, "killpg", killpg)
        wait_until(lambda: running.ended(0.1))
        assert running.exit_code() is None


def test_orphans_of_the_command(lead: Callable[..., Running]) -> None:
    """What the command leaves without a parent is vtleader's child, and vanishes when it ends: it may be process 1."""
    leader = lead("sh", "-c", "(setsid sleep 1000 & echo orphan $!) & sleep 1000")
    leader.wait_for("orphan")
    orphan = int(leader.lines("orphan")[0].split()[1])
    wait_until(lambda: orphan in children(leader.pid))
    os.kill(orphan, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{orphan}").exists())
    assert not leader.ended()


def test_a_guard_that_dies_at_once(lead: Callable[..., Running]) -> None:
    """A guard that is killed again and again, as by a lack of memory, is started once a second, not in a busy loop."""
    leader, began = lead("sh", "-c", "kill -KILL $PPID; sleep 1000"), time.monotonic()
    wait_until(lambda: len(re.findall("runs sh", leader.log)) == 3)
    assert time.monotonic() - began > 2.0
    assert leader.terminate() == 143
