"""The table of a project's images."""

from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from horizon import tables
from horizon.utils import filters

_DETAILS = {
    "snapshot": "horizon:project:snapshots:detail",
    "image": "horizon:project:images:images:detail",
}


class ImagesTable(tables.DataTable):
    """One row an image."""

    name = tables.Column(
        "name",
        verbose_name=_("Snapshot or Image"),
        link=lambda image: reverse(_DETAILS[image.kind], args=[image.source]),
    )
    size = tables.Column("size", verbose_name=_("Size"), filters=(filesizeformat,))
    hosts = tables.Column("hosts", verbose_name=_("Compute nodes that read it"))
    created_at = tables.Column(
        "created_at",
        verbose_name=_("Since"),
        filters=(filters.parse_isotime, filters.timesince_sortable),
    )

    class Meta:
        """What Horizon makes of it."""

        name = "virtman_images"
        verbose_name = _("VirtMan Images")
        no_data_message = _(
            "No server runs from a snapshot or an image of this project through VirtMan."
        )
