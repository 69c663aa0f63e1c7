from django import forms

from .models import Order


class OrderForm(forms.ModelForm):
    item = forms.ChoiceField(choices=[(name, name) for name in ("A lamp", "A chair", "A table")])
    email = forms.EmailField(label="Your address", initial="ada@example.com")

    class Meta:
        model = Order
        fields = ["item", "email"]
