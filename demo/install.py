"""Installs the chart and puts the demo's two model versions on a volume."""

from __future__ import annotations

from demo.console import say
from demo.kube import ROOT, Cluster, wait_until

SYSTEM_NAMESPACE = "warmgraph-system"
NAMESPACE = "warmgraph-demo"
RELEASE = "warmgraph"

CLIENT_POD = """
apiVersion: v1
kind: Pod
metadata: {{name: client, namespace: {namespace}}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    seccompProfile: {{type: RuntimeDefault}}
  containers:
    - name: client
      image: {image}
      command: [python3, -c, "import time; time.sleep(86400)"]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {{drop: [ALL]}}
"""


def chart(cluster: Cluster) -> None:
    """`helm upgrade --install` with the images at hand."""
    registry = {
        "images.controlPlane": cluster.control_plane_image,
        "images.engine": cluster.engine_image,
    }
    settings = [part for name, value in registry.items() for part in ("--set", f"{name}={value}")]
    cluster.run(
        "helm", "upgrade", "--install", RELEASE, str(ROOT / "charts" / "warmgraph"),
        "--namespace", SYSTEM_NAMESPACE, "--create-namespace", "--wait", "--timeout", "3m",
        # The resource type outlives a release on purpose, so a new release finds it there.
        "--take-ownership", "--force-conflicts",
        *settings,
    )  # fmt: skip
    say(cluster.kubectl("get", "pods", "-n", SYSTEM_NAMESPACE).rstrip().replace("\n", "\n     "))


def models(cluster: Cluster, namespace: str = NAMESPACE) -> None:
    """A namespace under the restricted profile, a client pod, and the models on a claim."""
    cluster.kubectl("create", "namespace", namespace, check=False)
    cluster.kubectl(
        "label", "namespace", namespace, "--overwrite",
        "pod-security.kubernetes.io/enforce=restricted",
    )  # fmt: skip
    cluster.kubectl(
        "apply", "-f", "-", stdin=CLIENT_POD.format(
            namespace=namespace, image=cluster.control_plane_image
        ),
    )  # fmt: skip
    # A job's template cannot be changed; one that finished with another image gives way.
    cluster.kubectl("delete", "job", "models", "-n", namespace, "--ignore-not-found")
    job = (ROOT / "demo" / "model-job.yaml").read_text()
    cluster.kubectl(
        "apply",
        "-n",
        namespace,
        "-f",
        "-",
        stdin=job.replace("DEMO_MODEL_IMAGE", cluster.model_image),
    )
    wait_until(
        lambda: bool(
            cluster.get("job", "models", "-n", namespace).get("status", {}).get("succeeded")
        ),
        timeout_seconds=300,
        what="the conversion of the model",
        hint=f"kubectl logs -n {namespace} job/models",
        poll=1,
    )
    cluster.kubectl(
        "wait", "--for=condition=Ready", "pod/client", "-n", namespace, "--timeout=120s"
    )
    say("SmolLM2-135M-Instruct, versions v1 and v2, on claim `models`")
