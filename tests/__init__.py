"""The tests; what they share is set here."""

from hypothesis import HealthCheck, settings

# A test that finds its examples slowly because the machine is busy is not a wrong test.
settings.register_profile("virtman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("virtman")
