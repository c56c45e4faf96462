"""Ports and paths inside a model pod, and of the activator: one place, so that they agree."""

ENGINE_PORT = 8000
"""OpenAI-compatible HTTP, of the engine."""

SIDECAR_PORT = 8081
"""Readiness, liveness, drain, warmup report and metrics, of the sidecar."""

SERVICE_PORT = 80
PORT_NAME = "http"
"""Name of the port in the Service and in every EndpointSlice of it: slices merge by this name."""

ACTIVATOR_ADMIN_PORT = 8082
"""Health, queue state and metrics, of the activator."""

ACTIVATOR_FIRST_PORT = 20000
ACTIVATOR_LAST_PORT = 24999
"""Each InferenceDeployment has one of these, in `status.activator.port`: the port alone says
which deployment a request is for, so no Host header is needed."""

OPERATOR_PORT = 8083
"""Health and metrics, of the operator."""

RUN_DIRECTORY = "/run/warmgraph"
"""emptyDir that engine and sidecar share."""

REPORT_SOCKET = f"{RUN_DIRECTORY}/report.sock"
"""Unix socket on which the sidecar listens for the engine (see wire.py)."""

CACHE_DIRECTORY = "/var/cache/warmgraph"
MODEL_DIRECTORY = "/models"
