"""The files of docs/guides/deployment.md: their tools take them, their commands exist, and there is time to stop."""

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from cronsim import CronSim

from django_vtqueue.conf import Policy

from .projects import ROOT
from .test_readme import command_parser

PAGE = ROOT / "docs/guides/deployment.md"
FOLDER = ROOT / "docs/guides/deployment"
UNITS = sorted([*FOLDER.glob("*.service"), *FOLDER.glob("*.timer")])
KUBERNETES = sorted(FOLDER.glob("kubernetes*.yaml"))
COMPOSE = FOLDER / "compose.yaml"
PROCFILE = FOLDER / "Procfile"
HEROKU = 30  # seconds from SIGTERM to SIGKILL, which nobody can change


def name_of(path: Path) -> str:
    return path.name


def said_by(*command: str | Path) -> str:
    """Run a program that must succeed; return its output and errors."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def installed(name: str) -> Path:
    """Return the path of a program that pip has installed; skip the test without it."""
    path = Path(sysconfig.get_path("scripts")) / name
    if not path.exists():
        pytest.skip(f"missing: {name} (pip install -e '.[deployment]')")
    return path


# Their tools


def test_dockerfile() -> None:
    said_by(installed("hadolint"), FOLDER / "Dockerfile")


def test_compose_file() -> None:
    said_by(installed("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_read_the_docs() -> None:
    """The file that has the documentation built, a version for each tag."""
    said_by(installed("check-jsonschema"), "--builtin-schema", "vendor.readthedocs", ROOT / ".readthedocs.yaml")


@pytest.mark.parametrize("file", KUBERNETES, ids=name_of)
def test_kubernetes_files(file: Path) -> None:
    said_by(installed("kubernetes-validate"), "--strict", file)


def test_units(tmp_path: Path) -> None:
    """systemd knows each key and value. The project's interpreter is replaced by one that is there; of other units of
    this machine it may say what it likes."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("missing: systemd-analyze (apt-get install systemd)")
    for unit in UNITS:
        text, count = re.subn(r"^ExecStart=\S+", f"ExecStart={sys.executable}", unit.read_text(), flags=re.MULTILINE)
        assert count == (unit.suffix == ".service")
        (tmp_path / unit.name).write_text(text)
    said = said_by("systemd-analyze", "verify", *(tmp_path / unit.name for unit in UNITS))
    assert [line for line in said.splitlines() if "vtworker" in line] == []


def test_crontab() -> None:
    [line] = [line for line in (FOLDER / "crontab").read_text().splitlines() if not line.startswith("#")]
    assert next(CronSim(" ".join(line.split()[:5]), datetime(2030, 1, 1, tzinfo=UTC)))


# Their commands


def parsed(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def lists_in(value: Any) -> Iterator[list[Any]]:
    """Yield each list of a parsed file, however deep."""
    if isinstance(value, list):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from lists_in(inner)


def commands_of(file: Path) -> list[tuple[str, list[str]]]:
    """Return the management commands of a file, each with its arguments."""
    if file.suffix == ".yaml":
        found = list(lists_in(parsed(file)))
    else:
        found = [shlex.split(line, comments=True) for line in file.read_text().splitlines() if "manage.py" in line]
    after = [words[words.index("manage.py") + 1 :] for words in found if "manage.py" in words]
    return [(words[0], words[1:]) for words in after]


WITH_COMMANDS = [path for path in sorted(FOLDER.iterdir()) if "manage.py" in path.read_text()]


@pytest.mark.parametrize("file", WITH_COMMANDS, ids=name_of)
def test_commands_exist(file: Path) -> None:
    """The parser of each command takes its arguments."""
    found = commands_of(file)
    assert len(found) == file.read_text().count("manage.py")
    for name, arguments in found:
        command_parser(name).parse_args(arguments)


# The time to stop


def shutdown_timeout(words: list[str]) -> float:
    """Return the --shutdown-timeout of a command line that has a vtworker in it."""
    options = command_parser("vtworker").parse_args(words[words.index("vtworker") + 1 :])
    assert options.shutdown_timeout is not None, words
    return float(options.shutdown_timeout)


def pods(file: Path) -> Iterator[dict[str, Any]]:
    for document in parsed(file):
        if "template" in document["spec"]:
            yield document["spec"]["template"]["spec"]


def times_to_stop() -> Iterator[tuple[str, float, float]]:
    """Yield file, --shutdown-timeout, and seconds until SIGKILL of each worker."""
    for unit in UNITS:
        values = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
        if "vtworker" in values.get("ExecStart", ""):
            yield unit.name, shutdown_timeout(shlex.split(values["ExecStart"])), float(values["TimeoutStopSec"])
    for service in parsed(COMPOSE)[0]["services"].values():
        if "vtworker" in service.get("command", []):
            seconds = float(service["stop_grace_period"].removesuffix("s"))
            yield COMPOSE.name, shutdown_timeout(service["command"]), seconds
    for file in KUBERNETES:
        for pod in pods(file):
            for container in pod["containers"]:
                if "vtworker" in container.get("command", []):
                    seconds = float(pod["terminationGracePeriodSeconds"])
                    yield file.name, shutdown_timeout(container["command"]), seconds
    worker = re.search(r"^worker: (.*)$", PROCFILE.read_text(), re.MULTILINE)
    assert worker
    yield PROCFILE.name, shutdown_timeout(shlex.split(worker[1])), HEROKU


def test_there_is_time_to_stop() -> None:
    """A worker ends before it is killed: at the latest half a lease after its own time is over."""
    found = list(times_to_stop())
    told = [path.name for path in WITH_COMMANDS if re.search(r"vtworker\W.*shutdown-timeout", path.read_text())]
    assert sorted(name for name, _, _ in found) == told
    for name, own, until_killed in found:
        assert own < until_killed, name
        assert name == PROCFILE.name or until_killed - own >= Policy().visibility_timeout / 2, name


def test_the_table_of_times() -> None:
    """The page says which times are in the files."""
    rows = re.findall(r"^\| `([\w.@]+)` \| (\d+) \| .*?(\d+)\D* \|$", PAGE.read_text(), re.MULTILINE)
    times = {(name, str(int(own)), str(int(until_killed))) for name, own, until_killed in times_to_stop()}
    assert {name for name, _, _ in rows} == {"vtworker@.service", COMPOSE.name, "kubernetes.yaml", PROCFILE.name}
    assert set(rows) <= times


# The order of their processes, and their disk


def test_compose_migrates_first() -> None:
    services = parsed(COMPOSE)[0]["services"]
    assert services["migrate"]["restart"] == "no"
    for name in ("web", "worker"):
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert services[name]["volumes"] == services["migrate"]["volumes"] == ["data:/data"]


def test_sqlite_in_one_pod() -> None:
    """Whoever opens the file is in the one pod that has its volume, and no second pod is there at any time."""
    claim, deployment = parsed(FOLDER / "kubernetes-sqlite.yaml")
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]["type"]) == (1, "Recreate")
    pod = deployment["spec"]["template"]["spec"]
    containers = {each["name"]: each["volumeMounts"] for each in (*pod["initContainers"], *pod["containers"])}
    assert set(containers) == {"migrate", "web", "worker"}
    assert all({"name": "data", "mountPath": "/data"} in mounts for mounts in containers.values())


def test_the_page_has_each_file_once() -> None:
    shown = re.findall(r"^```{literalinclude} deployment/(\S+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(path.name for path in FOLDER.iterdir())
