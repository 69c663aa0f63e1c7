"""Orders are charged, shipped, and asked about 14 days later, while workers are killed: what is lost, or done twice?

A day takes a fraction of a second here. Orders are placed and shipped by the site's own page. Some are never shipped:
they are refunded after 30 days.
"""

import os
import random
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

os.environ["SHOP_DAY"] = "0.2"  # seconds
os.environ["SHOP_LATENCY"] = "0.1"  # seconds that the bank and the mail server take, so that they can be interrupted

from demo import LOG, PATIENCE, Run, fact, fresh_site, frozen, report
from django.db.models import QuerySet
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from shop.models import Mail, Order, Payment
from shop.tasks import ASKED_AFTER, SHIPPED_WITHIN

from django_vtqueue.models import DeadLetter, Job, WorkerProcess

WORKERS = 3
PACE = 0.1  # seconds between two looks; each places an order
BETWEEN_KILLS = 0.7  # seconds, at least
NEVER_SHIPPED = 5  # one order of so many
SHIPPED_AFTER = 4 * ASKED_AFTER / 14, 9 * ASKED_AFTER / 14  # days after the charge

ended = Order.objects.exclude(asked_at=None, refunded_at=None)
unshipped = Order.objects.filter(shipped_at=None)


def arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=20)
    parser.add_argument("--kills", type=int, default=6, help="workers to kill, at most")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    fresh_site()
    print(
        f"A day takes {os.environ['SHOP_DAY']} s here: the 14 days before customers are asked for feedback "
        f"{ASKED_AFTER.total_seconds():.1f} s, the 30 days before a refund {SHIPPED_WITHIN.total_seconds():.1f} s."
    )
    shop = Shop(options)
    try:
        shop.work()
    finally:
        shop.run.stop()
    summarise(shop)
    return report(problems(options.orders))


class Shop:
    """Customers, a warehouse, and the workers of the site, some of which are killed."""

    def __init__(self, options: Namespace) -> None:
        self.options, self.chance = options, random.Random(7)
        self.client = Client(headers={"host": "localhost"})
        self.run = Run(options.orders, "orders", ended.count)
        self.ships_at: dict[int, datetime] = {}  # by the numbers of orders
        self.killed, self.held, self.last_kill = 0, 0, time.monotonic()

    def work(self) -> None:
        """Place orders, ship most of them, and kill workers, until all orders have come to their end."""
        for _ in range(WORKERS):
            self.run.start_worker()
        living = WorkerProcess.objects.filter(died_at=None)
        self.run.wait_until(lambda: living.count() == WORKERS, f"{WORKERS} workers are known")
        deadline = time.monotonic() + PATIENCE
        while self.placed() or Job.objects.filter(finished_at=None).exists():
            if time.monotonic() > deadline or self.run.somebody_left():
                return  # the summary says what is missing
            self.ship()
            self.kill()
            self.run.progress.show(ended.count())
            time.sleep(PACE)

    def placed(self) -> bool:
        """Place the next order; return whether there was one left to place."""
        count = Order.objects.count()
        return count < self.options.orders and self.post("place", item="A lamp", email=f"customer{count}@example.com")

    def ship(self) -> None:
        """Ship what is to be shipped now, some days after its charge."""
        now = timezone.now()
        for order in unshipped.exclude(charged_at=None):
            days = SHIPPED_AFTER[0] + self.chance.random() * (SHIPPED_AFTER[1] - SHIPPED_AFTER[0])
            ships_at = self.ships_at.setdefault(order.pk, order.charged_at + days)
            if order.pk % NEVER_SHIPPED and ships_at <= now:
                self.post("ship", order.pk)

    def post(self, view: str, *args: int, **data: str) -> bool:
        response = self.client.post(reverse(view, args=args), data)
        if response.status_code != 302:
            raise SystemExit(f"The page {view!r} answered {response.status_code}.")
        return True

    def kill(self) -> None:
        """Kill a worker, if it runs a job, and start another one."""
        victim = self.chance.choice([worker for worker in self.run.workers if worker.returncode is None])
        process = WorkerProcess.objects.filter(pid=victim.pid).first()
        if process is None or self.killed == self.options.kills or time.monotonic() < self.last_kill + BETWEEN_KILLS:
            return
        running = Job.objects.filter(state="RUNNING", worker_id=process.worker_id, attempts__gt=0)
        if held := frozen(victim, running):
            victim.kill()
            victim.wait()
            self.killed, self.held, self.last_kill = self.killed + 1, self.held + len(held), time.monotonic()
            self.run.start_worker()


def made_again(counts: Counter) -> int:
    return counts.total() - len(counts)


def not_once(counts: Counter, orders: QuerySet[Order]) -> dict[int, int]:
    """Return how often something was done for each order, but for those for which it was done once, as it should be."""
    due = Counter(dict.fromkeys(orders.values_list("pk", flat=True), 1))
    return {pk: counts[pk] for pk in {*counts, *due} if counts[pk] != due[pk]}


def charges() -> Counter:
    return Counter(Payment.objects.filter(cents__gt=0).values_list("order", flat=True))


def refunds() -> Counter:
    return Counter(Payment.objects.filter(cents__lt=0).values_list("order", flat=True))


def mails() -> Counter:
    return Counter(Mail.objects.values_list("order", "to", "text"))


def missing_mails() -> int:
    """Return how many mails of orders that have ended were not sent: three are due, and four about a refund."""
    return 3 * ended.count() + ended.exclude(refunded_at=None).count() - len(mails())


def too_early() -> int:
    """Return how many customers were asked for feedback before the 14 days were over."""
    return sum(order.asked_at < order.shipped_at + ASKED_AFTER for order in Order.objects.exclude(asked_at=None))


def problems(orders: int) -> Iterable[str]:
    """Whatever is not as this demo promises."""
    if ended.count() != orders or DeadLetter.objects.exists():
        yield f"{orders - ended.count()} orders have not come to their end; dead letters: {DeadLetter.objects.count()}"
        yield f"the workers' log is {LOG}"
    if wrong := not_once(charges(), Order.objects.all()):
        yield f"Each order should be charged once, but of these the number of charges is {wrong}"
    if wrong := not_once(refunds(), unshipped):
        yield f"Each order that was not shipped should be refunded once, but of these the number of refunds is {wrong}"
    if missing_mails():
        yield f"{missing_mails()} mails were not sent"
    if too_early():
        yield f"{too_early()} customers were asked too early"


def summarise(shop: Shop) -> None:
    placed = Order.objects.count()
    print()
    fact("orders", f"{placed}, of which {placed - unshipped.count()} were shipped")
    fact("workers killed", f"{shop.killed}, by SIGKILL; jobs they were running: {shop.held}")
    fact("charged twice", f"{made_again(charges())} (a transactional step: exactly once)")
    fact("never shipped", f"{unshipped.count()}, refunded: {len(refunds())}, refunded twice: {made_again(refunds())}")
    fact("asked for feedback", f"{Order.objects.exclude(asked_at=None).count()}, too early: {too_early()}")
    fact("mails sent twice", f"{made_again(mails())} of {len(mails())} (no transaction holds a mail: at least once)")
    fact("lost", f"{placed - ended.count()} orders, {missing_mails()} mails")


if __name__ == "__main__":
    sys.exit(main())
