"""An order: charge, wait for the parcel, ask two weeks later whether it is liked. Kill the worker whenever you like."""

import time
from datetime import timedelta
from typing import Any

from django_vtqueue import JobContext, task

TWO_WEEKS = timedelta(seconds=20)  # as long as somebody looks at an example


def charge_card(number: int) -> dict[str, Any]:
    """Ask the bank, which takes its time; it is asked once for each order."""
    time.sleep(2)
    return {"receipt": f"R-{number}"}


def send_mail(number: int, text: str) -> None:
    print(f"to the customer of order {number}: {text}", flush=True)


@task(takes_context=True, unique_key="order:{number}")
def order(context: JobContext, number: int) -> str:
    paid = context.step("charge", charge_card, number)
    parcel = context.wait_for("shipped", timeout=timedelta(days=30))
    if parcel is None:
        return "lost"
    context.sleep("two weeks", TWO_WEEKS)
    context.step("mail", send_mail, number, f"Parcel {parcel}, receipt {paid['receipt']}: how do you like it?")
    return "done"
