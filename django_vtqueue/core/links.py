"""Where the documentation is: messages and hints lead to a page of it."""

DOCUMENTATION = "https://django-vtqueue.readthedocs.io/en/latest"


def page(name: str) -> str:
    """Return the address of a page: ``guides/backups``."""
    return f"{DOCUMENTATION}/{name}.html"
