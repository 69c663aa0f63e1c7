"""What the pages look like: a picture is outdated when one of these files has changed since it was made."""

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent.parent / "django_vtqueue"
MADE_FROM = Path(__file__).resolve().parent.parent / "pictures/made-from.txt"


def look() -> str:
    """Return a line for each template and style sheet: its name, and the hash of its content."""
    files = sorted(
        path for folder in ("templates", "static") for path in (PACKAGE / folder).rglob("*") if path.is_file()
    )
    return "".join(f"{digest(path)}  {path.relative_to(PACKAGE)}\n" for path in files)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
