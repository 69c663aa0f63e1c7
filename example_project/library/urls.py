from django.urls import path

from . import views

urlpatterns = [
    path("", views.search, name="search"),
    path("documents/<int:pk>/", views.document, name="document"),
    path("upload/", views.upload, name="upload"),
    path("digests/", views.digests, name="digests"),
]
