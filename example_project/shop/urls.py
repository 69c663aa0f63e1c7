from django.urls import path

from . import views

urlpatterns = [
    path("", views.orders, name="orders"),
    path("place/", views.place, name="place"),
    path("<int:pk>/ship/", views.ship, name="ship"),
]
