"""warmgraph sidecar, in each model pod: readiness, liveness, drain, metrics, report."""
