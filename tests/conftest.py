"""Settings that every test shares."""

from hypothesis import HealthCheck, settings

# The same cases in every run, and no judgement by the clock: a test that fails must fail again for
# the person who looks into it, on a slower machine too.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")
