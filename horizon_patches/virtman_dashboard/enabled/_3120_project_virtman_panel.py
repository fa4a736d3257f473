# Project / Volumes / VirtMan Images.
PANEL = "virtman"
PANEL_DASHBOARD = "project"
PANEL_GROUP = "volumes"
ADD_PANEL = "virtman_dashboard.project.panel.Images"
