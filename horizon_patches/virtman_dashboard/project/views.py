"""The page of a project's images."""

from django.utils.translation import gettext_lazy as _
from horizon import exceptions, messages, tables
from openstack_dashboard.api import cinder, glance

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
            return images.of_project(
                list(volt.client(self.request).images()),
                {
                    "snapshot": lambda: cinder.volume_snapshot_list(self.request),
                    "image": lambda: glance.image_list_detailed(self.request)[0],
                },
            )
        except volt.VoltError as err:
            messages.error(self.request, str(err))
        except Exception:
            exceptions.handle(
                self.request, _("Unable to retrieve the snapshots and images of the project.")
            )
        return []
