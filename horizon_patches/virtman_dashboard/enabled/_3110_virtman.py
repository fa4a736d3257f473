# The source "Boot from snapshot (VirtMan)" of Launch Instance.
FEATURE = "virtman"
ADD_INSTALLED_APPS = ["virtman_dashboard"]
ADD_ANGULAR_MODULES = ["virtman.launch"]
ADD_JS_FILES = ["virtman/launch.js"]
ADD_SCSS_FILES = ["virtman/launch.scss"]
