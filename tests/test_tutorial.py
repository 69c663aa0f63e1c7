"""The tutorial works when it is followed to the letter, in a new folder, with a real server and a real worker.

Files and commands are taken from the page, section by section. What a reader does besides, in a browser, is done here
in between. What the page shows as output is compared with what was said.
"""

import html
import json
import os
import re
import shlex
import signal
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, Request, build_opener

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from .preloaded import start
from .projects import ROOT, run
from .test_readme import BLOCK, OLD, TUTORIAL
from .waiting import wait_until

SECTION = re.compile(r"^## (?:\d+\. )?(.+)\n", re.MULTILINE)
FILE = re.compile(
    r"(?:# |<!-- )(?P<name>[\w/]+\.(?:py|html))"
    r"(?P<end>, at the end)?(?P<old>, on Django 5\.2)?(?:, in place of (?P<function>\w+))?(?: -->)?\n"
)
DONE = ("mkdir ", "cd ", "python3 -m venv ", "source ", "python -m pip ", "python -m django ")  # before a test begins
PASSWORD = "a password of the tests"
ID = "789b9ff8"  # the dead letter that the page requeues by command


def test_the_tutorial(tmp_path: Path) -> None:
    with Reader(tmp_path).at_work() as reader:
        for title in ("An empty project", "Settings", "Models", "A task", "A form, and a page with a progress bar"):
            reader.follow(title)

        reader.follow("The site")
        browser = Browser(reader.address())
        browser.upload(tmp_path / "good.csv")
        assert browser.url.endswith("/uploads/1/")
        assert 'id="bar"' in browser.page
        assert browser.state(1) == {"ended": False, "progress": 0, "text": "Waiting for a worker"}

        reader.follow("The worker")
        states = browser.states(1)
        assert any(0 < state["progress"] < 1 and re.match(r"row \d+ of 300", state["text"]) for state in states)
        assert states[-1]["text"] == "300 rows imported"

        reader.follow("Tests")
        reader.follow("A job that fails")
        for _ in range(2):
            browser.upload(tmp_path / "comma.csv")
        for upload in 2, 3:
            states = browser.states(upload)
            assert states[-1] == {"ended": True, "progress": 0, "text": "The import has failed. We look into it."}
        assert {"ended": False, "progress": 0, "text": "An error; it is tried again soon"} in browser.seen
        dead = wait_until(lambda: reader.found("worker", r"(?m)^dead .* requeue …(\w+)$", times=2))

        reader.follow("Find the reason in the admin")
        browser.open("/admin/vtqueue/")
        browser.log_in()
        assert re.search(r"2 jobs of importer\.tasks\.import_products died .*\s*ValueError", browser.text)
        browser.click("Dead letters")
        browser.click("importer.tasks.import_products")
        reader.said += browser.text
        assert re.search(r'"upload_id": [23]', browser.text)

        reader.follow("Repair the code", exits=[1, 0])
        browser.open("/admin/vtqueue/")
        browser.click("Dead letters")
        browser.click("importer.tasks.import_products")
        browser.press("Requeue")
        # The worker may be done before the page is made, which says so then.
        reader.said += re.sub(r"(?m), and done .* later\.$", ".", browser.text)
        [reader.letter] = [digits for digits in dead if digits not in browser.url]
        reader.follow("Run the failed jobs again")
        for upload in 2, 3:
            assert browser.states(upload)[-1]["text"] == "2 rows imported"
        assert "301 products" in browser.open("/")

        reader.follow("A job for each night")
        wait_until(lambda: reader.found("worker", r"(?m)^ok    importer\.tasks\.forget_old_uploads "))
        assert reader.end() == {"server": 0, "worker": 0}
        reader.follow("A first deployment")
        reader.follow("Next")
        reader.check_what_was_shown()


class Reader:
    """Someone who follows the page in a folder. ``said``: what the commands and pages have said, for comparison."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said, self.letter = folder, "", ""
        _, *parts = SECTION.split(TUTORIAL.read_text())
        self._sections = list(zip(parts[::2], parts[1::2], strict=True))
        self._processes: dict[str, Any] = {}
        self._shown: list[str] = []

    @contextmanager
    def at_work(self) -> Iterator["Reader"]:
        try:
            yield self
        finally:
            for process in self._processes.values():
                process.kill()  # a worker that is reloaded ends when who watches the code for it is gone
                process.wait()

    def follow(self, title: str, exits: Sequence[int] = ()) -> None:
        """Do what the next section says, which has this title. ``exits``: of its commands, in their order; else 0."""
        next_title, text = self._sections.pop(0)
        assert next_title == title
        codes = list(exits)
        for _, language, block in BLOCK.findall(text):
            if language == "console":
                for line in block.splitlines():
                    if not line.startswith(tuple(f"$ {words}" for words in DONE)):
                        self._type(line.removeprefix("$ "), codes.pop(0) if codes else 0)
            elif language == "text":
                self._shown += block.splitlines()
            else:
                self._write(block)

    def _write(self, block: str) -> None:
        named = FILE.match(block)
        assert named, f"no file is named: {block}"
        if named["old"] and not OLD:
            return
        path, text, starts = self.folder / named["name"], block[named.end() :], self.starts()
        path.parent.mkdir(parents=True, exist_ok=True)
        if named["end"]:
            text = f"{path.read_text()}\n\n{text}"
        elif named["function"]:
            function = rf"(?ms)^def {named['function']}\(.*?\n(?=\n\n)"
            text, replaced = re.subn(function, lambda _: text, path.read_text())
            assert replaced == 1
        path.write_text(text)
        if "worker" in self._processes and path.name == "tasks.py":
            wait_until(lambda: self.starts() > starts)  # it starts anew by itself, as the page says
        if "@recurring" in text:
            wait_until(lambda: self._rows("vtqueue_schedule"))

    def _rows(self, table: str) -> int:
        with closing(sqlite3.connect(self.folder / "db.sqlite3")) as database:
            [[rows]] = database.execute(f"SELECT count(*) FROM {table}")
        return int(rows)

    def _type(self, line: str, exit_code: int) -> None:
        name, *words = shlex.split(line)
        assert name in ("python", "django-admin"), line
        if name == "django-admin":
            words = ["-m", "django", *words]
        if words[1:] == ["runserver"]:
            self._start("server", *words, "--noreload", "127.0.0.1:0")  # a free port
        elif words[1:] == ["vtworker"]:
            self._start("worker", *words)
            wait_until(self.starts)
        else:
            words = [self.letter if word == ID else word for word in words]
            words += ["--noinput"] * (words[1:2] == ["createsuperuser"])
            said = run(*words, folder=self.folder, DJANGO_SUPERUSER_PASSWORD=PASSWORD, PYTHONDONTWRITEBYTECODE="1")
            assert said.startswith(f"exit {exit_code}\n"), (line, said)
            self.said += said

    def _start(self, name: str, *words: str) -> None:
        path = os.pathsep.join([str(self.folder), str(ROOT)])
        env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        env.pop("DJANGO_SETTINGS_MODULE", None)
        command = [sys.executable, "-W", "error", *words]
        with (self.folder / f"{name}.log").open("w") as log:
            self._processes[name] = start(command, env, output=log.fileno(), cwd=self.folder)

    def found(self, name: str, pattern: str, times: int = 1) -> list[str]:
        """Return what a pattern finds in the log of a process, if it does so often, else an empty list."""
        found = re.findall(pattern, (self.folder / f"{name}.log").read_text())
        return found if len(found) >= times else []

    def starts(self) -> int:
        """Return how often the worker has been ready."""
        return len(self.found("worker", r"(?m)^vtworker \S+ ready:")) if "worker" in self._processes else 0

    def address(self) -> str:
        [address] = wait_until(lambda: self.found("server", r"server at (http://\S+:\d+/)\n"))
        return address

    def end(self) -> dict[str, int]:
        """Press Ctrl-C in both terminals, and return the exit codes."""
        for process in self._processes.values():
            process.send_signal(signal.SIGINT)
        return {name: process.wait(60) for name, process in self._processes.items()}

    def check_what_was_shown(self) -> None:
        """Each line of output on the page was said, but for numbers, times, ids and folders."""
        said = self.said + "".join((self.folder / f"{name}.log").read_text() for name in self._processes)
        lines = "\n".join(plain(line) for line in said.splitlines())
        shown = {line: re.escape(plain(line)).replace(re.escape("[…]"), ".*") for line in self._shown}
        assert [line for line, pattern in shown.items() if not re.search(rf"(?m)^{pattern}$", lines)] == []
        assert not self._sections


class Browser:
    """A person with a browser: ``url`` and ``page`` are the present ones. ``seen``: the states of uploads."""

    def __init__(self, address: str) -> None:
        self.url, self.page = address, ""
        self.seen: list[dict[str, Any]] = []
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))

    @property
    def text(self) -> str:
        return html.unescape(re.sub(r"<[^>]+>", "\n", self.page))

    def open(self, url: str, data: bytes | None = None, kind: str = "application/x-www-form-urlencoded") -> str:
        headers = {} if data is None else {"Content-Type": kind}
        with self._opener.open(Request(urljoin(self.url, url), data, headers), timeout=60) as answer:
            self.url, self.page = answer.url, answer.read().decode().replace("<wbr>", "")
        return self.page

    def click(self, link: str) -> None:
        """Follow the first link whose text begins so; on a page with a list the first one there."""
        contents = self.page[max(self.page.find('id="result_list"'), 0) :]
        found = re.search(rf'<a href="([^"]+)"[^>]*>(?:\s|<[^>]+>)*{re.escape(link)}', contents)
        assert found, (link, self.text)
        self.open(html.unescape(found[1]))

    def press(self, button: str) -> None:
        """Send the form that has this button, as it is."""
        [form] = [form for form in re.findall(r"(?s)<form .*?</form>", self.page) if f">{button}</button>" in form]
        [action] = re.findall(r'<form [^>]*action="([^"]+)"', form)
        self.open(action, urlencode(re.findall(r'name="(\w+)" value="([^"]*)"', form)).encode())

    def log_in(self) -> None:
        fields = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": self._token()}
        self.open(self.url, urlencode(fields).encode())

    def upload(self, file: Path) -> None:
        self.open("/")
        fields = {"csrfmiddlewaretoken": self._token(), "file": SimpleUploadedFile(file.name, file.read_bytes())}
        self.open("/", encode_multipart(BOUNDARY, fields), MULTIPART_CONTENT)

    def _token(self) -> str:
        [token] = set(re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.page))
        return token

    def state(self, upload: int) -> dict[str, Any]:
        """Return what the page of an upload asks for, again and again."""
        state: dict[str, Any] = json.loads(self.open(f"/uploads/{upload}/state/"))
        self.seen.append(state)
        return state

    def states(self, upload: int) -> list[dict[str, Any]]:
        """Ask until the import has ended; return the answers."""
        before = len(self.seen)
        wait_until(lambda: self.state(upload)["ended"], every=0.2)
        return self.seen[before:]


def plain(line: str) -> str:
    """Return a line of output without what differs from run to run."""
    line = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|…[0-9a-f]{8}|\d\d:\d\d:\d\d", "N", line)
    line = re.sub(r"^vtworker \S+:\d+", "vtworker HOST", line)
    line = re.sub(r"(/[\w.-]+)+/importer/", "/importer/", line)
    return " ".join(re.sub(r"\d[\d.]*( ?(ms|s|min|h|d))?\b", "N", line).split())
