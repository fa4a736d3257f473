"""The page of a project's images."""

from django.utils.translation import gettext_lazy as _
from horizon import exceptions, messages, tables
from openstack_dashboard.api import cinder

from virtman_dashboard import volt
from virtman_dashboard.project import images
from virtman_dashboard.project.tables import ImagesTable


class IndexView(tables.DataTableView):
    """The images of the project that the user works in."""

    table_class = ImagesTable
    template_name = "virtman/project/index.html"
    page_title = _("VirtMan Images")

    def get_data(self):
        """Return the rows; what cannot be had is said in a message."""
        try:
            snapshots = cinder.volume_snapshot_list(self.request)
            return images.of_project(snapshots, volt.client(self.request).images())
        except volt.VoltError as err:
            messages.error(self.request, str(err))
        except Exception:
            exceptions.handle(self.request, _("Unable to retrieve the snapshots of the project."))
        return []
