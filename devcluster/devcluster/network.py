"""The addresses of the one node, and what it changes in the kernel's network settings.

The node's address is the pods' gateway, on a bridge that `up` makes and `down` removes. Pods reach
each other, Services and the node; nothing of theirs leaves the machine.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from devcluster.errors import DevclusterError
from devcluster.packages import find, program
from devcluster.paths import Layout

BRIDGE = "warmgraph0"
# Away from 10.88.0.0/16 (podman, buildah), 172.17.0.0/16 (Docker) and 10.42.0.0/15 (k3s).
NODE_ADDRESS = "10.97.0.1"
# Without one of its own a bridge takes the lowest of its ports', another whenever a pod with a
# lower one comes or goes: for ten seconds what other pods send to the node, DNS above all, is lost.
BRIDGE_MAC = "02:77:67:00:00:01"
POD_RANGE = "10.97.0.0/24"
SERVICE_RANGE = "10.96.0.0/16"
KUBERNETES_SERVICE_ADDRESS = "10.96.0.1"
DNS_SERVICE_ADDRESS = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"

# Marks our own firewall rules, so that `down` finds them.
RULE_COMMENT = "warmgraph-devcluster"

SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    # Without it a pod that reaches another pod through a Service gets answers from the wrong
    # address: traffic between two ports of one bridge would skip the translation back.
    "net.bridge.bridge-nf-call-iptables": "1",
    # One inotify instance per watching process: the default of 128 is soon used up.
    "fs.inotify.max_user_instances": "1024",
}


def cni_config(layout: Layout) -> str:
    return json.dumps(
        {
            "cniVersion": "1.0.0",
            "name": RULE_COMMENT,
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": BRIDGE,
                    "isGateway": True,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(layout.home / "cni"),
                        "ranges": [[{"subnet": POD_RANGE}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        },
        indent=1,
    )


class CommandError(DevclusterError):
    """A system program refused; the message is its own."""


def run(*command: str, text: str | None = None) -> str:
    """Runs a system program by its name."""
    path = program(command[0])
    finished = subprocess.run(
        [path, *command[1:]], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    if finished.returncode != 0:
        raise CommandError(f"`{' '.join(command)}` failed: {finished.stderr.strip()}")
    return finished.stdout


def set_sysctls() -> dict[str, str]:
    """Sets what pods need and returns what was there before, for the keys that changed."""
    if find("modprobe") and not Path("/proc/sys/net/bridge").exists():
        subprocess.run(
            [program("modprobe"), "br_netfilter"], capture_output=True, check=False, timeout=60
        )
    before: dict[str, str] = {}
    for key, value in SYSCTLS.items():
        file = Path("/proc/sys", *key.split("."))
        if not file.exists():
            continue
        current = file.read_text().strip()
        larger_is_fine = key.startswith("fs.") and int(current) >= int(value)
        if current != value and not larger_is_fine:
            before[key] = current
            file.write_text(value)
    return before


def restore_sysctls(before: dict[str, str]) -> None:
    for key, value in before.items():
        Path("/proc/sys", *key.split(".")).write_text(value)


def ensure_bridge() -> None:
    if not Path("/sys/class/net", BRIDGE).exists():
        run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "link", "set", BRIDGE, "address", BRIDGE_MAC)
    run("ip", "address", "replace", f"{NODE_ADDRESS}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


def remove_bridge() -> None:
    if Path("/sys/class/net", BRIDGE).exists():
        run("ip", "link", "delete", BRIDGE)


def ensure_egress_rule() -> None:
    """Pods that try to leave the machine are refused at once instead of timing out."""
    rule = [
        "FORWARD", "-i", BRIDGE, "!", "-o", BRIDGE,
        "-m", "comment", "--comment", RULE_COMMENT, "-j", "REJECT",
    ]  # fmt: skip
    try:
        run("iptables", "-w", "-C", *rule)
    except CommandError:
        run("iptables", "-w", "-A", *rule)


def without_cluster_rules(dump: str) -> str:
    """An `iptables-save` dump less every chain and rule of kube-proxy, the kubelet and ours."""
    return "".join(
        line
        for line in dump.splitlines(keepends=True)
        if "KUBE-" not in line and RULE_COMMENT not in line
    )


def remove_rules() -> None:
    for family in ("iptables", "ip6tables"):
        if find(family) is None:
            continue
        dump = run(f"{family}-save")
        cleaned = without_cluster_rules(dump)
        if cleaned != dump:
            run(f"{family}-restore", "-w", text=cleaned)
