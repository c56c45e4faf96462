"""What to do once the demo is over, as commands to copy for the cluster that it ran on."""

from __future__ import annotations

import os
import shlex

from demo.environment import has_own_cluster
from demo.install import NAMESPACE

_SHELL = """
{enter}
kubectl get infd -n {namespace}
IP=$(kubectl get svc {name} -n {namespace} -o jsonpath='{{.spec.clusterIP}}')
curl -s http://$IP/v1/chat/completions \\
  -H 'Content-Type: application/json' \\
  -d '{{"model": "{name}", "messages": [{{"role": "user", "content": "Who are you?"}}]}}'
kubectl apply -n {namespace} -f examples/07-speculative.yaml
"""


def next_steps(name: str) -> str:
    """name: the InferenceDeployment that the demo leaves."""
    own = has_own_cluster()
    kubeconfig = shlex.quote(os.environ.get("KUBECONFIG", ""))
    # The local cluster's kubectl and helm are on nobody's PATH.
    enter = f"export KUBECONFIG={kubeconfig}" if own else 'eval "$(python3 -m devcluster env)"'
    commands = _SHELL.format(enter=enter, name=name, namespace=NAMESPACE).strip()
    where = " (curl: on a node of the cluster, or in a pod)" if own else ""
    return (
        f"{name} stays, and sleeps while nobody asks. In this folder{where}:\n\n"
        + "".join(f"  {line}\n" for line in commands.splitlines())
        + f"\n{_removal(kubeconfig if own else '')}"
    )


def _removal(kubeconfig: str) -> str:
    if kubeconfig:
        return (
            f"`make demo-down KUBECONFIG={kubeconfig}` removes what the demo made. "
            "Without KUBECONFIG it would remove a local cluster instead."
        )
    return (
        "`make demo-down` removes the local cluster with everything in it, "
        "also if it was there before the demo."
    )
