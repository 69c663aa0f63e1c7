"""The background jobs of a shop."""

import time

from django_vtqueue import GiveUp, JobContext, TaskContext, task

from . import services


@task(queue_name="emails", max_attempts=3, backoff=0.05)
def send_receipt(order: int, to: str) -> str:
    return services.send(to, f"The receipt of order {order}")


@task(queue_name="emails", max_attempts=3)
def send_newsletter(issue: str, to: str) -> str:
    return services.send(to, f"Newsletter {issue}")


@task(queue_name="images", max_attempts=2, backoff=0.05)
def make_thumbnail(path: str, width: int = 320) -> dict[str, int]:
    return {"width": width, "height": services.scaled_height(path, width)}


@task(queue_name="images")
def make_catalogue(season: str) -> None:
    time.sleep(600)


@task(queue_name="payments", max_attempts=5, backoff=900)
def charge(order: int, amount: str, card_token: str) -> str:
    if order % 17 == 0:
        raise GiveUp(f"order {order}: the card was declined")
    return services.pay(order, amount, card_token)


@task(queue_name="reports", takes_context=True)
def monthly_report(context: TaskContext, month: str, pages: int = 40) -> str:
    for page in range(pages):
        context.progress(page / pages, f"page {page + 1} of {pages}")
        time.sleep(0.1 if page < pages * 0.4 else 600)
    return f"{month}: {pages} pages"


@task(queue_name="reports", max_attempts=1)
def vat_summary(month: str, country: str) -> str:
    return services.vat(country)


@task(queue_name="exports")
def export_orders(day: str) -> str:
    return day


@task(queue_name="exports", takes_context=True)
def import_orders(context: JobContext, path: str, rows: int = 9) -> int:
    for row in context.iterate("rows", range(1, rows + 1)):
        print(f"{path}: row {row} of {rows}", flush=True)
        time.sleep(0.5)
    return rows
