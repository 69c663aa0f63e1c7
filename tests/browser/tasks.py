"""A task that fails as long as something outside is broken, and one that waits for it."""

import time
from pathlib import Path

from django_vtqueue import task


@task(max_attempts=1)
def send_receipt(order: int, mail_server: str) -> str:
    """Fail until there is a file at the path ``mail_server``."""
    if not Path(mail_server).exists():
        raise ConnectionRefusedError(f"order {order}: the mail server does not answer")
    return f"receipt {order} sent"


@task
def print_label(order: int, printer: str) -> str:
    """Wait until there is a file at the path ``printer``."""
    while not Path(printer).exists():
        time.sleep(0.1)
    return f"label {order} printed"
