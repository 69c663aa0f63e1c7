"""The catalogues of translations: complete in each language there is, and shipped as they were edited."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .projects import ROOT

LOCALE = Path("django_vtqueue/locale")
CATALOGUES = sorted(path.relative_to(ROOT) for path in (ROOT / LOCALE).glob("*/LC_MESSAGES/django.po"))
TOOLS = ("xgettext", "msguniq", "msgmerge", "msgattrib", "msgcmp", "msgfmt", "msgunfmt")

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS),
    reason="GNU gettext is needed; on Debian: apt-get install gettext",
)
each_catalogue = pytest.mark.parametrize("catalogue", CATALOGUES, ids=lambda path: path.parent.parent.name)


def said(*command: str | Path, folder: Path = ROOT) -> str:
    """Return what a command writes, errors and all; fail if it does."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the texts that are in the source now, as `make messages` gathers them."""
    package = tmp_path_factory.mktemp("texts") / "django_vtqueue"
    shutil.copytree(ROOT / "django_vtqueue", package)
    options = ("--all", "--no-location", "--keep-pot")
    said(sys.executable, "-P", "-m", "django", "makemessages", *options, folder=package)
    return package / "locale/django.pot"


def test_languages() -> None:
    """There are German and French."""
    assert {"de", "fr"} <= {path.parent.parent.name for path in CATALOGUES}


@each_catalogue
def test_nothing_is_missing(catalogue: Path, texts: Path) -> None:
    """Each text of the source is translated, none by an unread guess, and there is no other."""
    assert said("msgcmp", catalogue, texts) == ""


@each_catalogue
def test_placeholders(catalogue: Path) -> None:
    """A translation has the placeholders of its text, or the page that shows it would fail."""
    said("msgfmt", "--check", "--output-file=/dev/null", catalogue)


@each_catalogue
def test_what_is_shipped(catalogue: Path, tmp_path: Path) -> None:
    """The compiled catalogue in the package is that of the one people edit: it needs no tool where it is installed."""
    said("msgfmt", "--output-file", tmp_path / "django.mo", catalogue)
    assert said("msgunfmt", catalogue.with_suffix(".mo")) == said("msgunfmt", tmp_path / "django.mo")
