"""Horizon's settings on a bed; plug-in files are read from the folder beside this one."""

DEBUG = False
ALLOWED_HOSTS = ["*"]
WEBROOT = "/"
LOCAL_PATH = "$state/horizon"
STATIC_ROOT = "$state/horizon/static"
SECRET_KEY = "a test bed that nobody else reaches"
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache",
        "LOCATION": "$address:11211",
    }
}
SESSION_ENGINE = "django.contrib.sessions.backends.cache"
OPENSTACK_HOST = "$address"
OPENSTACK_KEYSTONE_URL = "http://$address:5000/v3"
OPENSTACK_KEYSTONE_DEFAULT_DOMAIN = "Default"
OPENSTACK_KEYSTONE_MULTIDOMAIN_SUPPORT = False
COMPRESS_OFFLINE = True
TIME_ZONE = "UTC"
LAUNCH_INSTANCE_DEFAULTS = {"create_volume": False}
