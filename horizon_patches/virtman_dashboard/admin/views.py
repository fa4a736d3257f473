"""A page that fetches what it shows by itself."""

from django.utils.translation import gettext_lazy as _
from horizon import views


class IndexView(views.HorizonTemplateView):
    """The frame; ``static/virtman/panel.js`` fills it."""

    template_name = "virtman/admin/index.html"
    page_title = _("VirtMan")
