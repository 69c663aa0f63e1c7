"""Full-text search by SQLite's FTS5."""

import re
from dataclasses import dataclass

from django.db import connection

from .models import short_path

# Words, together with the punctuation that joins them in names and paths: "django.tasks" is one term.
TERM = re.compile(r"\w+(?:[./:-]\w+)*")
MAX_TERMS = 16

# Control characters mark the matches: HTML tags would have to be told from those in the text that is shown.
MATCH_START, MATCH_END = "\x02", "\x03"

# `ORDER BY rank` and nothing else: FTS5 then sorts by itself, and makes excerpts only of the rows that are returned.
FIND = """
    SELECT rowid, path, snippet(library_fulltext, 1, %s, %s, ' … ', 24)
      FROM library_fulltext
     WHERE library_fulltext MATCH %s
     ORDER BY rank
     LIMIT %s
"""


@dataclass(frozen=True)
class Hit:
    """A document that was found, with the best place in it."""

    id: int
    path: str
    excerpt: str

    @property
    def name(self) -> str:
        return short_path(self.path)

    @property
    def parts(self) -> list[tuple[str, bool]]:
        """The excerpt as (text, does it match) pairs, so that a template can mark matches and still escape the text."""
        pieces = re.split(f"[{MATCH_START}{MATCH_END}]", self.excerpt)
        return [(piece, number % 2 == 1) for number, piece in enumerate(pieces)]

    def __str__(self) -> str:
        return f"{self.name}: {' '.join(''.join(text for text, _ in self.parts).split())}"


def match_expression(query: str) -> str:
    """Turn what a person typed into an FTS5 expression: all terms, each quoted, so that no input is a syntax error."""
    return " ".join(f'"{term}"' for term in TERM.findall(query)[:MAX_TERMS])


def find(query: str, limit: int = 20) -> list[Hit]:
    """Return the documents that hold all terms of `query`, best first."""
    expression = match_expression(query)
    if not expression:
        return []
    with connection.cursor() as cursor:
        cursor.execute(FIND, [MATCH_START, MATCH_END, expression, limit])
        return [Hit(*row) for row in cursor.fetchall()]
