"""Names shared by everything that touches a Kubernetes object of ours."""

GROUP = "warmgraph.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "InferenceDeployment"
PLURAL = "inferencedeployments"
SINGULAR = "inferencedeployment"
SHORT_NAME = "infd"

# Kubernetes' recommended labels, on every object the operator makes.
NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"

# The one label that selects a deployment's model pods. It is the whole selector of the
# Deployment, which Kubernetes never lets anyone change, so nothing that may change is in it.
DEPLOYMENT = f"{GROUP}/inference-deployment"
# Digest of everything that decides what a pod runs; one value per revision.
REVISION = f"{GROUP}/revision"

# Label of an EndpointSlice that names its Service, and of the manager that wrote it.
SERVICE_NAME = "kubernetes.io/service-name"
SLICE_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
ACTIVATOR_SLICE_MANAGER = f"activator.{GROUP}"

FIELD_MANAGER = "warmgraph-operator"
SCALE_FIELD_MANAGER_ACTIVATOR = "warmgraph-activator"
