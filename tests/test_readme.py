"""What README.md and docs/ say is true: their examples run, their tables are the code's, their links lead somewhere."""

import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import django
import pytest
from django.core.management import CommandParser, load_command_class
from django.core.management.base import BaseCommand

import django_vtqueue
from django_vtqueue import conf
from django_vtqueue.management.commands.vtleader import Command as VTLeader
from django_vtqueue.management.commands.vtqueue import SUBCOMMANDS
from django_vtqueue.management.commands.vtworker import Command as VTWorker
from django_vtqueue.tasks import task
from docs.screenshots.look import MADE_FROM, look

from .projects import ROOT, run

PACKAGE = ROOT / "django_vtqueue"
README = ROOT / "README.md"
FIRST_STEPS = ROOT / "docs/getting-started/first-steps.md"
QUICKSTART = [README, ROOT / "docs/getting-started/installation.md", FIRST_STEPS]  # all about one project
DOCS = sorted(path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "prose"} & {*path.parts})
PAGES = [README, *DOCS]
# Its blocks make a project of their own, in the order of the page: tests/test_tutorial.py follows it.
TUTORIAL = ROOT / "docs/getting-started/tutorial.md"

BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.py)(, Django 5\.2 only)?\n")
LINK = re.compile(r"\]\(([^)]+)\)")
OLD = django.VERSION < (6, 0)
WITHOUT = """
INSTALLED_APPS.remove("django_vtqueue")
TASKS = {{"default": {{"BACKEND": "{}.backends.immediate.ImmediateBackend", "QUEUES": []}}}}
"""
BEFORE_ALL = "import os, django\nos.environ['DJANGO_SETTINGS_MODULE'] = 'mysite.settings'\ndjango.setup()\n"


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=page_name)


class Block(NamedTuple):
    """A fenced block; ``file``: the file of a project that its first line names, "" if it names none."""

    language: str
    text: str
    file: str = ""
    old_only: bool = False


def blocks(page: Path) -> Iterator[Block]:
    for indent, language, text in BLOCK.findall(page.read_text()):
        text = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        named = FILE.match(text) if language == "python" else None
        yield Block(language, text, named[1], bool(named[2])) if named else Block(language, text)


def commands(page: Path) -> list[str]:
    """Return the command lines of a page, without what stands behind a #."""
    lines = [line for block in blocks(page) if block.language == "console" for line in block.text.splitlines()]
    assert all(line.startswith("$ ") for line in lines), lines
    return [line[2:].partition("  #")[0].strip() for line in lines]


def rows(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the tables whose first column has this heading."""
    found, inside = [], False
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
        if not cells:
            inside = False
        elif cells[0] == heading:
            inside = True
        elif inside and not cells[0].startswith("-"):
            found.append(cells)
    assert found, f"{page_name(page)} has no table of {heading!r}"
    return found


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


# Projects


class Project:
    """A Django project in a folder, made as a reader of the pages makes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str) -> str:
        """Run Python in the project with warnings as errors; return what it wrote."""
        said = run(*arguments, folder=self.folder, PYTHONDONTWRITEBYTECODE="1")  # a file may change twice in a second
        assert said.startswith("exit 0\n"), said
        return said.removeprefix("exit 0\n")

    def manage(self, *arguments: str) -> str:
        return self.run("manage.py", *arguments)

    def script(self, code: str) -> str:
        """Run lines of Python after ``django.setup()``."""
        return self.run("-c", BEFORE_ALL + code)

    def write(self, page: Path) -> None:
        """Add the blocks of a page to the files that they name."""
        for block in blocks(page):
            if block.file and (OLD or not block.old_only):
                path = self.folder / block.file
                path.parent.mkdir(exist_ok=True)
                with path.open("a") as file:
                    file.write("\n\n" + block.text)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a project that follows the README: new, with its blocks, migrated; to be copied."""
    project = Project(tmp_path_factory.mktemp("quickstart"))
    project.run("-m", "django", "startproject", "mysite", ".")
    project.manage("startapp", "shop")
    for page in QUICKSTART:
        project.write(page)
    assert "Background jobs" not in project.manage("migrate")  # the app's label is what migrate names
    return project.folder


@pytest.fixture
def project(quickstart: Path, tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    shutil.copytree(quickstart, folder)
    return Project(folder)


# The examples


def test_quickstart(project: Project) -> None:
    """The settings pass every check; the view enqueues, the worker runs the task, and its result can be read."""
    assert "no issues" in project.manage("check", "--database", "default", "--fail-level", "WARNING")
    visit = project.script(
        "from django.test import RequestFactory\n"
        "from shop.views import sign_up\n"
        "response = sign_up(RequestFactory().get('/', {'name': 'Ada'}))\n"
        "assert response.status_code == 202\n"
        "print(response.content.decode())\n"
    )
    said = re.search(r"Your job is (\S+)\.", visit)
    assert said
    log = project.manage("vtworker", "--drain")
    assert "Welcome, Ada!" in log
    assert re.search(r"^ok    shop\.tasks\.welcome …", log, re.MULTILINE), log
    assert "(wal, normal)" in log
    project.script(f"from shop.tasks import welcome\nassert welcome.get_result('{said[1]}').return_value == 3\n")


def test_the_quickstart_as_it_is_written(project: Project) -> None:
    """Its commands, one after the other, print what the README says, but for names, numbers and times."""
    install, migrate, enqueue, work, *_ = commands(README)
    assert install.startswith("python -m pip install")
    assert work == "python manage.py vtworker"
    for command in (migrate, enqueue):
        project.run(*shlex.split(command)[1:])
    [sample] = [block.text for block in blocks(README) if block.language == "text"]
    said = ""
    command = [sys.executable, "-u", *shlex.split(work)[1:]]
    own = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    with subprocess.Popen(
        command, cwd=project.folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as it:
        assert it.stdout
        for line in it.stdout:
            said += line
            if line.startswith("ok "):
                it.send_signal(signal.SIGINT)
    written = [without_numbers(line) for line in said.splitlines()]
    assert [line for line in map(without_numbers, sample.splitlines()) if line not in written] == [], said


def test_tasks_that_are_not_repeated(project: Project) -> None:
    """max_attempts=1, no_retry_for and GiveUp end in the dead letters; requeue brings them back."""
    project.script(
        "from shop.tasks import charge, ship\n"
        "charge.enqueue(1), ship.enqueue(-1), ship.using(priority=1).enqueue('not a number')\n"
    )
    log = project.manage("vtworker", "--drain")
    assert re.search(r"^dead  shop\.tasks\.charge …\w+ after 1 attempt: ConnectionError: closed; ", log, re.MULTILINE)
    assert re.search(r"^dead  shop\.tasks\.ship …\w+ after 1 attempt: GiveUp: no such order; ", log, re.MULTILINE)
    assert re.search(r"^retry shop\.tasks\.ship …\w+ attempt=1/10 TypeError", log, re.MULTILINE), log
    project.script(
        "import django_vtqueue\nfrom django_vtqueue.models import DeadLetter\n"
        "assert len(django_vtqueue.requeue(DeadLetter.objects.all())) == 2\n"
        "assert not DeadLetter.objects.exists()\n"
    )


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != TUTORIAL and "```python" in page.read_text()], ids=page_name
)
def test_examples(page: Path, project: Project) -> None:
    """The files of a page make a project that checks and whose tests pass; its other examples run in order."""
    if page not in QUICKSTART:
        project.write(page)
    found = [block for block in blocks(page) if block.language == "python"]
    if any(block.file for block in found):
        tests = project.manage("test", "--verbosity", "2")  # it runs the checks first
        assert "test_welcome (shop.tests.WelcomeTest" in tests
    if examples := [block.text for block in found if not block.file]:
        project.script("\n".join(examples))


def test_a_handler_gets_raw_jobs(project: Project) -> None:
    """The function that docs/guides/queue.md names in the settings is called by the worker."""
    project.write(ROOT / "docs/guides/queue.md")
    project.script("from django_vtqueue import Queue\nQueue('sensors').publish({'id': 7})\n")
    assert "sensor 7" in project.manage("vtworker", "--drain")


def test_leaving(project: Project, quickstart: Path, tmp_path: Path) -> None:
    """The commands of docs/guides/leaving.md export the rows, which can be loaded again, and leave no table behind."""
    project.script("from shop.tasks import charge, welcome\ncharge.enqueue(1), welcome.enqueue('Ada')\n")
    drain, dump, zero, clean = [line.split()[2:] for line in commands(ROOT / "docs/guides/leaving.md")]
    drain[-1] = "0"
    for command in (drain, dump, zero):
        project.manage(*command)
    other = Project(Path(shutil.copytree(quickstart, tmp_path / "other")))
    # A job, a letter, the origin; what was counted, by minute and hour.
    loaded = other.manage("loaddata", str(project.folder / dump[-1]))
    assert re.search(r"Installed ([5-9]|1[0-9]) object\(s\)", loaded), loaded
    settings = project.folder / "mysite/settings.py"
    settings.write_text(settings.read_text() + WITHOUT.format("django_tasks" if OLD else "django.tasks"))
    project.manage(*clean, "--no-input")
    project.script(
        "from django.db import connection\n"
        "from django.contrib.auth.models import Permission\n"
        "assert not [name for name in connection.introspection.table_names() if 'vtqueue' in name]\n"
        "assert not Permission.objects.filter(content_type__app_label='vtqueue').exists()\n"
    )


def test_log_lines(project: Project) -> None:
    """The log in docs/guides/worker.md is what a worker writes, but for names, numbers and times."""
    with (project.folder / "shop/tasks.py").open("a") as file:
        file.write("\n\n@task(max_attempts=2)\ndef sync():\n    raise ConnectionError('refused')\n")
    project.script("from shop.tasks import *\nwelcome.enqueue('Ada'), charge.enqueue(1), sync.enqueue()\n")
    written = [without_numbers(line) for line in project.manage("vtworker", "--drain").splitlines()]
    [sample] = [block.text for block in blocks(ROOT / "docs/guides/worker.md") if block.language == "text"]
    for line in map(without_numbers, sample.splitlines()):  # a task's ``print`` writes its text and the end of its line
        assert any(each.endswith(line) for each in written), (line, written)


def without_numbers(line: str) -> str:
    line = re.sub(r"^(vtworker) \S+:\d+", r"\1 HOST", line)
    return re.sub(r"…[0-9a-f]{8}|\d[\d.]*(ms|s)?\b", "N", line)


# The tables


def test_settings() -> None:
    """Each option stands in the table, with its default, and no other; and it says which can be set per queue."""
    page = ROOT / "docs/reference/settings.md"
    table = {
        codes(cells[0])[0]: cells for cells in rows(page, "option") if not cells[0].startswith(("`-", '`"', "`PR"))
    }
    defaults = {item.name: getattr(conf.Options(), item.name) for item in fields(conf.Options)}
    del defaults["queues"]
    said = {name: ast.literal_eval(codes(cells[1])[0]) for name, cells in table.items()}
    assert said == {name: list(value) if isinstance(value, tuple) else value for name, value in defaults.items()}
    assert {name for name, cells in table.items() if cells[2] in ("yes", "only")} == set(conf.QUEUE)


def test_backoff_in_all() -> None:
    """The sum of the default waits is right."""
    policy = conf.Policy()
    assert isinstance(policy.backoff, int | float)
    minutes = sum(policy.backoff * 2**retry for retry in range(policy.max_attempts - 1)) / 60
    assert f"up to {policy.max_attempts} attempts by default" in README.read_text()
    assert f"up to {policy.max_attempts} attempts, " in FIRST_STEPS.read_text()
    assert f"{minutes:.0f} minutes in all" in FIRST_STEPS.read_text()


def test_task_options() -> None:
    """docs/guides/tasks.md has each option of the decorator."""
    table = {codes(cells[0])[0]: cells[1] for cells in rows(ROOT / "docs/guides/tasks.md", "option of `@task`")}
    assert {name for name, whose in table.items() if whose == "here"} == set(task.OPTIONS)
    known = {"takes_context", *task.TaskOptions.__annotations__}
    assert set(table) == known


def own_flags(own: BaseCommand) -> set[str]:
    def flags(command: BaseCommand) -> set[str]:
        parser = command.create_parser("manage.py", "command")
        return {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}

    return flags(own) - flags(BaseCommand())


def test_worker_options() -> None:
    """Each option of vtworker stands in the table, and no other."""
    table = rows(ROOT / "docs/guides/worker.md", "option")
    assert {code.split()[0] for cells in table for code in codes(cells[0])} == own_flags(VTWorker())


def test_leader_options() -> None:
    """Each option of vtleader stands in the table, and no other."""
    table = rows(ROOT / "docs/guides/leader-election.md", "`vtleader` option")
    assert {code.split()[0] for cells in table for code in codes(cells[0])} == own_flags(VTLeader())


def test_queue_commands() -> None:
    """docs/guides/worker.md has each subcommand of vtqueue, with its options."""
    table = [codes(cells[0]) for cells in rows(ROOT / "docs/guides/worker.md", "`vtqueue` command")]
    said = {(words[0], flag) for words in map(str.split, (row[0] for row in table)) for flag in words[1:]}
    said = {(name, flag) for name, flag in said if flag.startswith("--")}
    said |= {(row[0].split()[0], flag) for row in table for flag in row[1:]}
    in_code = set()
    for name, subcommand in SUBCOMMANDS.items():
        parser = ArgumentParser()
        subcommand.add_arguments(parser)
        in_code |= {(name, flag) for action in parser._actions for flag in action.option_strings if len(flag) > 2}
    aliases = {("purge", "--no-input")}
    assert said == in_code - aliases - {(name, "--help") for name in SUBCOMMANDS}
    assert {row[0].split()[0] for row in table} == set(SUBCOMMANDS)


@every_page
def test_commands_exist(page: Path) -> None:
    """Each command line, in consoles and in running text, is one that Django or this package takes."""
    text = page.read_text()
    lines = [*commands(page), *(code for code in codes(text) if code.startswith("python manage.py "))]
    lines += re.findall(r"python manage\.py (?:vtworker|vtqueue|vtleader)[^\n`>]*", text)
    for line in lines:
        if line.startswith("python manage.py "):
            name, *arguments = shlex.split(line)[2:]
            command_parser(name).parse_args(arguments)
    for target in (line.split()[1] for line in lines if line.startswith("make ")):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text()


def command_parser(name: str) -> CommandParser:
    core = Path(django.__file__).parent / "core/management/commands" / f"{name}.py"
    own = dict.fromkeys(("vtworker", "vtqueue", "vtleader"), "django_vtqueue")
    contrib = {"remove_stale_contenttypes": "contenttypes", "createsuperuser": "auth"}
    app = own.get(name) or (name in contrib and f"django.contrib.{contrib[name]}")
    assert core.exists() or app, name
    command = load_command_class(app or "django.core", name)
    return command.create_parser("manage.py", name)


def test_checks() -> None:
    """docs/reference/checks.md has a heading for each check in the code, and no other."""
    in_code = {
        number
        for file in PACKAGE.rglob("*.py")
        for number in re.findall(r"\"(?:vtqueue\.)?([EW]\d{3})", file.read_text())
    }
    headings = re.findall(r"^## vtqueue\.(\w+)$", (ROOT / "docs/reference/checks.md").read_text(), re.MULTILINE)
    assert headings == sorted(in_code)


def test_every_folder_is_described() -> None:
    """The architecture page has each folder and each module at the top; no page names a file that is not there."""
    described = [
        name for cells in rows(ROOT / "docs/contributing/architecture.md", "where") for name in codes(cells[0])
    ]
    top = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    folders = {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.glob("*/*.py")}
    assert sorted(described) == sorted(top | folders | {"engines/postgresql/", "engines/sqlite/"})
    named = [name for page in (ROOT / "docs/contributing").glob("*.md") for name in codes(page.read_text())]
    assert [name for name in named if re.fullmatch(r"[a-z_/]+\.py", name) and not places(name)] == []


def places(name: str) -> bool:
    """Return whether a file is there, in the package or beside it."""
    return (PACKAGE / name).is_file() or (ROOT / name).is_file()


def test_public_names_are_documented() -> None:
    """Each public name occurs in the documentation."""
    text = "\n".join(page.read_text() for page in PAGES)
    assert [name for name in django_vtqueue.__all__ if not re.search(rf"\b{name}\b", text)] == []


# The pages


@every_page
def test_links(page: Path) -> None:
    """Each relative link leads to a file, and each fragment to a heading of it."""
    for link in LINK.findall(page.read_text()):
        if link.startswith("https://"):
            continue
        name, _, fragment = link.partition("#")
        target = page.parent / name if name else page
        assert target.is_file(), link
        assert not fragment or fragment in anchors(target), link


def anchors(page: Path) -> set[str]:
    """Return the fragments of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_pictures_show_the_pages_of_today() -> None:
    """No template or style sheet has changed since ``make screenshots`` took the pictures of the admin."""
    changed = {*look().splitlines()} ^ {*MADE_FROM.read_text().splitlines()}
    assert changed == set()


def test_every_page_is_on_the_map() -> None:
    """The tables of contents in docs/index.md have every page, so that each is reached from each other one."""
    index = ROOT / "docs/index.md"
    contents = re.findall(r"^```{toctree}\n(?::[^\n]*\n)*\n(.*?)^```", index.read_text(), re.MULTILINE | re.DOTALL)
    listed = [index.parent / f"{line}.md" for text in contents for line in text.split()]
    assert sorted(listed) == sorted(set(DOCS) - {index})


def test_the_source_can_be_read_in_that_order() -> None:
    """Each file of the reading order needs only those before it, and all of them are as long as the page says."""
    reading = (ROOT / "docs/contributing/reading-the-source.md").read_text()
    files = [name for line in re.findall(r"^\d\. .*(?:\n   .*)*", reading, re.MULTILINE) for name in codes(line)]
    later = {
        name: {needed for needed in imports_of(name) if needed in files[at + 1 :]} for at, name in enumerate(files)
    }
    assert not {name: needed for name, needed in later.items() if needed}
    [said] = re.findall(r"is ([\d,]+) lines", reading)
    lines = sum(len((PACKAGE / name).read_text().splitlines()) for name in files)
    assert lines == pytest.approx(int(said.replace(",", "")), abs=100)


def imports_of(name: str) -> set[str]:
    """Return the files of the package that one of its files imports."""
    needed = set()
    for node in ast.walk(ast.parse((PACKAGE / name).read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = Path(name).parents[node.level - 1]
            module = folder / (node.module or "").replace(".", "/")
            needed |= {f"{module}.py", *(f"{module / alias.name}.py" for alias in node.names)}
    return needed


def test_the_longest_line() -> None:
    """Text, but for tables, is at most 120 characters wide."""
    lines = [(page.name, line) for page in PAGES for line in page.read_text().splitlines()]
    assert [line for line in lines if len(line[1]) > 120 and not line[1].startswith("|")] == []
