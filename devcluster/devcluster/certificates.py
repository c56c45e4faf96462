"""The cluster's own certificate authority, through the openssl program.

Made once per cluster and never renewed: a development cluster does not live for ten years.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from devcluster.errors import DevclusterError
from devcluster.packages import program

DAYS = "3650"
# ECDSA keys take a millisecond each; a control plane of a test should not wait for RSA primes.
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*arguments: str) -> None:
    finished = subprocess.run(
        [program("openssl"), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    if finished.returncode != 0:
        raise DevclusterError(f"openssl {arguments[0]} failed:\n{finished.stderr}")


def ensure_authority(pki: Path) -> None:
    """The authority, and the key that service account tokens are signed with."""
    pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (pki / "ca.crt").exists():
        openssl(
            "req", "-x509", *KEY, "-days", DAYS, "-subj", "/CN=warmgraph-devcluster",
            "-addext", "keyUsage=critical,digitalSignature,keyCertSign",
            "-keyout", str(pki / "ca.key"), "-out", str(pki / "ca.crt"),
        )  # fmt: skip
    if not (pki / "sa.pub").exists():
        key = str(pki / "sa.key")
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
        openssl("pkey", "-in", key, "-pubout", "-out", str(pki / "sa.pub"))


def ensure_certificate(
    pki: Path, name: str, *, common_name: str, group: str = "", hosts: Sequence[str] = ()
) -> None:
    """`name`.crt and `name`.key: a server's when it has hosts, else the client's of a user."""
    if (pki / f"{name}.crt").exists():
        return
    subject = (f"/O={group}" if group else "") + f"/CN={common_name}"
    usage = "serverAuth" if hosts else "clientAuth"
    names = ",".join(f"{'IP' if host[0].isdigit() else 'DNS'}:{host}" for host in hosts)
    # Written under another name first: an interrupted run must not leave half a pair.
    half = pki / f"{name}.crt.new"
    openssl(
        "req", "-x509", "-CA", str(pki / "ca.crt"), "-CAkey", str(pki / "ca.key"), *KEY,
        "-days", DAYS, "-subj", subject,
        "-addext", "basicConstraints=critical,CA:FALSE",
        "-addext", "keyUsage=critical,digitalSignature",
        "-addext", f"extendedKeyUsage={usage}",
        *(("-addext", f"subjectAltName={names}") if names else ()),
        "-keyout", str(pki / f"{name}.key"), "-out", str(half),
    )  # fmt: skip
    half.rename(pki / f"{name}.crt")
