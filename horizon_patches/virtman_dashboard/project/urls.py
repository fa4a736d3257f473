"""The one page of the panel."""

from django.urls import re_path

from virtman_dashboard.project.views import IndexView

urlpatterns = [re_path(r"^$", IndexView.as_view(), name="index")]
