"""A task that fails as long as something outside is broken, and succeeds when that has been mended."""

from pathlib import Path

from django_vtqueue import task


@task(max_attempts=1)
def send_receipt(order: int, mail_server: str) -> str:
    """Fail until there is a file at the path ``mail_server``."""
    if not Path(mail_server).exists():
        raise ConnectionRefusedError(f"order {order}: the mail server does not answer")
    return f"receipt {order} sent"
