"""Addresses of the notes."""

from django.urls import path

from notes import views

urlpatterns = [
    path("", views.front, name="front"),
    path("notes/", views.leave, name="leave"),
    path("modules/", views.modules, name="modules"),
]
