"""What a project tests of such a task: all of it, weeks included, in a moment. `python manage.py test`."""
# ruff: noqa: PT009  (these are Django's tests, not pytest's)

from datetime import timedelta

from django.test import Client, TestCase
from django.urls import reverse

from django_vtqueue.control import cancel
from django_vtqueue.models import Job
from django_vtqueue.testing import run_pending

from .models import Mail, Order, Payment
from .tasks import WAREHOUSE, fulfil, refund

DAY = timedelta(days=1)
ADA = "ada@example.com"


class Shop(TestCase):
    def place(self) -> Order:
        self.client.post(reverse("place"), {"item": "A lamp", "email": ADA})
        return Order.objects.get()

    def ship(self, order: Order) -> None:
        self.client.post(reverse("ship", args=[order.pk]))

    def text(self) -> str:
        """Return what the page says, its spaces and line ends as single spaces."""
        return " ".join(self.client.get(reverse("orders")).content.decode().split())

    def mails(self) -> list[str]:
        return list(Mail.objects.order_by("pk").values_list("to", flat=True))


class FulfilTest(Shop):
    def test_order_that_is_shipped(self):
        """Charged once; two mails at once; one more after 14 days, and not before."""
        order = self.place()
        run_pending()
        self.assertEqual(self.mails(), [ADA, WAREHOUSE])
        self.ship(order)
        run_pending(until=13 * DAY)
        self.assertEqual(len(self.mails()), 2)
        *_, last = run_pending(until=15 * DAY)
        self.assertEqual(last.return_value, "done")
        self.assertEqual(self.mails(), [ADA, WAREHOUSE, ADA])
        self.assertEqual([payment.cents for payment in Payment.objects.all()], [2400])

    def test_order_that_is_never_shipped(self):
        """Refunded after 30 days, and not before; customer and warehouse are told; it cannot be shipped any more."""
        order = self.place()
        run_pending(until=29 * DAY)
        self.assertEqual(Payment.objects.count(), 1)
        *_, last = run_pending(until=31 * DAY)
        self.assertEqual(last.return_value, "refunded")
        self.assertEqual(self.mails(), [ADA, WAREHOUSE, ADA, WAREHOUSE])
        self.assertEqual(sum(payment.cents for payment in Payment.objects.all()), 0)
        self.ship(order)
        self.assertIsNone(Order.objects.get().shipped_at)

    def test_shipped_in_the_last_moment(self):
        """An order that was shipped is not refunded, even if its time was up in the same moment."""
        order = self.place()
        run_pending()
        self.ship(order)
        self.assertFalse(refund(order.pk))
        self.assertEqual(Payment.objects.count(), 1)


class PageTest(Shop):
    def test_states(self):
        """The page says how far an order is, and offers to ship it only when that can be done."""
        order = self.place()
        self.assertIn("Waiting for a worker that charges it.", self.text())
        self.assertNotIn("Ship it", self.text())
        run_pending()
        self.assertIn("Charged. Waiting for shipment since", self.text())
        self.assertIn("Ship it", self.text())
        self.ship(order)
        run_pending()
        until = Job.objects.get(task_path=fulfil.module_path).due_at
        self.assertIn(f"Waiting until {until:%-d %b}, {until:%H:%M:%S} to ask for feedback.", self.text())
        self.assertNotIn("Ship it", self.text())
        run_pending(until=15 * DAY)
        self.assertIn("Done: asked for feedback", self.text())

    def test_refunded(self):
        self.place()
        run_pending(until=31 * DAY)
        self.assertIn("it was not shipped in time.", self.text())

    def test_order_whose_job_is_dead(self):
        """It is not shipped: no job would know of it. The page leads to the dead letter."""
        order = self.place()
        run_pending()
        cancel([order.job_id])
        self.ship(order)
        self.assertIsNone(Order.objects.get().shipped_at)
        self.assertIn("Stopped: Cancelled.", self.text())
        self.assertIn(reverse("admin:vtqueue_deadletter_change", args=[order.job_id]), self.text())
        self.assertNotIn("Ship it", self.text())

    def test_link_to_the_job(self):
        order = self.place()
        self.assertIn(reverse("admin:vtqueue_job_change", args=[order.job_id]), self.text())

    def test_wrong_address(self):
        response = self.client.post(reverse("place"), {"item": "A lamp", "email": "ada"})
        self.assertContains(response, "Enter a valid email address.", status_code=422)
        self.assertFalse(Order.objects.exists())

    def test_other_sites_cannot_order(self):
        """Both buttons are POST and want the token of the page."""
        stranger = Client(enforce_csrf_checks=True)
        for url in (reverse("place"), reverse("ship", args=[1])):
            self.assertEqual(stranger.post(url).status_code, 403)
            self.assertEqual(stranger.get(url).status_code, 405)
