from hypothesis import HealthCheck, Phase, settings

# Derandomised, so that a red run can be repeated; 500 examples of every property.
settings.register_profile(
    "tailproof",
    max_examples=500,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tailproof")
