"""The tests; what they share is set here."""

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # tests in nova's environment share the doubles, and have no hypothesis
    pass
else:
    # A test that finds its examples slowly because the machine is busy is not a wrong test.
    settings.register_profile(
        "virtman", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("virtman")
