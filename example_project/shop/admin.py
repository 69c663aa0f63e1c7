from django.contrib import admin

from .models import Mail, Order, Payment


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["__str__", "email", "charged_at", "shipped_at", "refunded_at", "asked_at"]


@admin.register(Payment)
class PaymentAdmin(admin.ModelAdmin):
    list_display = ["__str__", "made_at"]


@admin.register(Mail)
class MailAdmin(admin.ModelAdmin):
    list_display = ["__str__", "sent_at"]
