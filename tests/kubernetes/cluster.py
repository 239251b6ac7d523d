"""Start a Kubernetes cluster as processes of this machine: control plane, Spark operator, and one node."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from demo.processes import Service
from demo.settings import CHECKOUT, free_ports
from tests.kubernetes.build import Programs

CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)
ETCD, API_SERVER, OPERATOR = "etcd", "kube-apiserver", "operator"
IMAGE = "spark:4"
SIZE = {"cpu": "6", "memory": "12Gi"}
_LIMIT_S = 120.0
_RIGHTS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]


@dataclass
class Cluster:
    """A cluster with all of its state in one folder.

    Attributes:
        programs: what `tests.kubernetes.build` has built.
        folder: folder of state and logs.
        hidden: folders of this machine that pods don't see.
        namespaces: namespaces that the operator watches.
    """

    programs: Programs
    folder: Path
    hidden: Sequence[Path]
    namespaces: Sequence[str]
    services: dict[str, Service] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ("api", "etcd", "peers", "logs", "health")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.folder.mkdir(parents=True)
        self.kubeconfig = self.folder / "kubeconfig"

    @property
    def url(self) -> str:
        """Address of the API server."""
        return f"https://127.0.0.1:{self.ports['api']}"

    @property
    def master(self) -> str:
        """Spark's name of it."""
        return f"k8s://{self.url}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kubectl(self, *words: str, text: str = "") -> str:
        """Run kubectl as an administrator, and return its output."""
        command = [str(self.programs.control_plane), "kubectl", "--kubeconfig", str(self.kubeconfig), *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        """Return the pods of a namespace."""
        return list(json.loads(self.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"])

    def restart(self, name: str, pause_s: float = 0.0) -> None:
        """Kill a service, and start it again."""
        self.services[name].process.kill()
        self.services[name].process.wait()
        time.sleep(pause_s)
        self._serve(name, self.commands[name])

    def stop(self) -> None:
        """End all processes, and with the node all pods."""
        for service in reversed(self.services.values()):
            with suppress(ProcessLookupError):
                service.process.terminate()
        for service in reversed(self.services.values()):
            try:
                service.process.wait(5)
            except subprocess.TimeoutExpired:
                service.process.kill()  # an API server takes a minute for an orderly end
                service.process.wait()

    def _start(self) -> None:
        keys, token = self.folder / "keys", secrets.token_hex(16)
        _write_keys(keys)
        (keys / "tokens").write_text(f"{token},admin,admin,system:masters\n", encoding="utf-8")
        reference = {"cluster": "test", "user": "admin"}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {"name": "test", "cluster": {"server": self.url, "certificate-authority": str(keys / "ca.crt")}}
            ],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": reference}],
        }
        self.kubeconfig.write_text(json.dumps(kubeconfig), encoding="utf-8")
        program, etcd = str(self.programs.control_plane), f"http://127.0.0.1:{self.ports['etcd']}"
        peers = f"http://127.0.0.1:{self.ports['peers']}"
        own = ["--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn"]
        urls = ["--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peers]
        cluster = ["--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]
        self._serve(ETCD, [program, "etcd", *own, *urls, *cluster])
        flags = {
            "etcd-servers": etcd,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": str(self.ports["api"]),
            "endpoint-reconciler-type": "none",  # an endpoint can't have a loopback address
            "tls-cert-file": str(keys / "server.crt"),
            "tls-private-key-file": str(keys / "server.key"),
            "token-auth-file": str(keys / "tokens"),
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(keys / "accounts.pub"),
            "service-account-signing-key-file": str(keys / "accounts.key"),
            "kubelet-preferred-address-types": "InternalIP",
        }
        self._serve(API_SERVER, [program, API_SERVER, *(f"--{name}={value}" for name, value in flags.items())])
        self.wait("the API server is ready", lambda: self.kubectl("get", "--raw", "/readyz") == "ok")
        common = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0"]
        signing = [
            f"--service-account-private-key-file={keys / 'accounts.key'}",
            f"--root-ca-file={keys / 'ca.crt'}",
        ]
        listed = f"--controllers={','.join(CONTROLLERS)}"
        self._serve("kube-controller-manager", [program, "kube-controller-manager", *common, *signing, listed])
        self._serve("kube-scheduler", [program, "kube-scheduler", *common])
        self._serve("node", self._node_command(keys))
        self.kubectl("apply", "--server-side", "-f", str(self.programs.definitions))
        self.wait("the CRD is served", lambda: bool(self.kubectl("get", "sparkapplications", "-A", "-o", "json")))
        for namespace in self.namespaces:
            self.add_namespace(namespace)
        self.wait("the node is ready", lambda: "True" in self.kubectl("get", "node", "-o", "json"))
        self._serve(OPERATOR, self._operator_command())

    def _node_command(self, keys: Path) -> list[str]:
        settings = {
            "kubeconfig": str(self.kubeconfig),
            "folder": str(self.folder / "node"),
            "port": self.ports["logs"],
            "certificate": str(keys / "server"),
            "entrypoint": str(CHECKOUT / "tests" / "kubernetes" / "programs" / "entrypoint.sh"),
            "spark": spark_home(),
            "hidden": [str(path) for path in self.hidden],
            "size": SIZE,
            "variables": {
                "SPARK_HOME": "/opt/spark",
                "SPARK_CONF_DIR": "/opt/spark/conf",
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
            },
        }
        file = self.folder / "node.json"
        file.write_text(json.dumps(settings), encoding="utf-8")
        return [sys.executable, "-u", "-m", "tests.kubernetes.kubelet", str(file)]

    def _operator_command(self) -> list[str]:
        watched = f"--namespaces={','.join(self.namespaces)}"
        health = f"--health-probe-bind-address=127.0.0.1:{self.ports['health']}"
        return [str(self.programs.operator), "controller", "start", watched, health]

    def _serve(self, name: str, command: list[str]) -> None:
        self.commands[name] = command
        server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.ports["api"])}
        own = {"KUBECONFIG": str(self.kubeconfig), "SPARK_HOME": spark_home(), "PYTHONPATH": str(CHECKOUT)}
        variables = {name: value for name, value in os.environ.items() if not name.startswith("BACKSTREAM")}
        environment = variables | own | (server if name == OPERATOR else {})
        number = len(list(self.folder.glob(f"{name}-*.log")))
        self.services[name] = Service.started(f"{name}-{number}", command, self.folder, environment)

    def wait(self, what: str, done: Any, limit_s: float = _LIMIT_S) -> Any:
        """Wait until a condition is true; an error counts as false."""
        until_s, error = time.monotonic() + limit_s, None
        while time.monotonic() < until_s:
            try:
                if found := done():
                    return found
            except (AssertionError, subprocess.SubprocessError) as failed:
                error = failed
            time.sleep(0.3)
        tails = "\n".join(service.tail() for service in self.services.values())
        msg = f"{what}: not within {limit_s:.0f} seconds\n{error}\n{tails}"
        raise TimeoutError(msg)

    def add_namespace(self, name: str) -> None:
        """Create a namespace with the service account `spark`, which has the rights of a driver."""
        here = {"namespace": name, "name": "spark"}
        group = "rbac.authorization.k8s.io"
        resources = ["pods", "services", "configmaps", "persistentvolumeclaims"]
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.wait("its default account is there", lambda: self.kubectl("get", "sa", "default", "-n", name))
        self.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
            {
                "apiVersion": f"{group}/v1",
                "kind": "Role",
                "metadata": here,
                "rules": [{"apiGroups": [""], "resources": resources, "verbs": _RIGHTS}],
            },
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": here,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "spark"},
                "subjects": [{"kind": "ServiceAccount", **here}],
            },
        )


def spark_home() -> str:
    """Return the folder of PySpark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent)


def _write_keys(folder: Path) -> None:
    """Write a certificate authority, the certificate of the servers, and the keys of service accounts."""
    folder.mkdir()

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    names = "IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc"
    (folder / "names").write_text(f"subjectAltName={names}\n", encoding="utf-8")
    new = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *new, "-days", "30", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", *new, "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr")
    signer = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "30"]
    openssl("x509", "-req", "-in", "server.csr", *signer, "-out", "server.crt")
    openssl("genrsa", "-out", "accounts.key", "2048")
    openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")
