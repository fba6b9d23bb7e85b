"""Addresses of the notes."""

from django.urls import path

from notes import views

urlpatterns = [
    path("", views.front, name="front"),
    path("notes/", views.leave, name="leave"),
    path("notes/by-class/", views.Leave.as_view(), name="leave-by-class"),
    path("modules/", views.modules, name="modules"),
]
