# Admin / System / VirtMan.
PANEL = "virtman"
PANEL_DASHBOARD = "admin"
PANEL_GROUP = "admin"
ADD_PANEL = "virtman_dashboard.admin.panel.VirtMan"
