"""Play a node: run the pods of a real API server as processes of this machine, each in its own namespaces.

    python -m tests.kubernetes.kubelet CONFIGURATION.json

A pod sees this machine's disk as the lower layer of an overlay, without the hidden folders, and what it writes is
lost at its end. It has a host name and an address of its own. There are no images, no users, no limits, and no
restarts; an image whose name begins with `missing` cannot be pulled.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes import client, config, watch

NODE = "processes"
Pod = Mapping[str, Any]


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


def patiently(call: Callable[[], Any]) -> Any:
    """Call the API until it answers; None if the object is gone."""
    while True:
        try:
            return call()
        except client.ApiException as error:
            if error.status in {404, 409, 422}:
                return None
            print("api:", error.status, error.reason, file=sys.stderr, flush=True)  # noqa: T201 - a log
        except Exception as error:  # noqa: BLE001 - the server restarts
            print("api:", error, file=sys.stderr, flush=True)  # noqa: T201 - a log
        time.sleep(0.5)


class Volumes:
    """The folders of the volumes of a pod."""

    def __init__(self, pod: Pod, folder: Path, api: Any, fields: Callable[[str], str]) -> None:
        self.pod, self.folder, self.api, self.fields = pod, folder, api, fields

    def make(self) -> dict[str, Path]:
        """Write all volumes; raise ApiException while a source is missing."""
        made = {}
        for volume in self.pod["spec"].get("volumes", []):
            path = made[volume["name"]] = self.folder / "volumes" / volume["name"]
            path.mkdir(parents=True, exist_ok=True)
            for source in volume.get("projected", {}).get("sources", [volume]):
                for name, content in self._files(source).items():
                    (path / name).parent.mkdir(parents=True, exist_ok=True)
                    (path / name).write_bytes(content)
        return made

    def _files(self, source: Mapping[str, Any]) -> dict[str, bytes]:
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            account = self.pod["spec"].get("serviceAccountName", "default")
            body = {"spec": {"expirationSeconds": wanted.get("expirationSeconds", 3607), "audiences": []}}
            namespace = self.pod["metadata"]["namespace"]
            token = self.api.create_namespaced_service_account_token(account, namespace, body).status.token
            return {wanted["path"]: token.encode()}
        if "downwardAPI" in source:
            items = source["downwardAPI"].get("items", [])
            return {item["path"]: self.fields(item["fieldRef"]["fieldPath"]).encode() for item in items}
        for kind, key in (("secret", "secretName"), ("configMap", "name")):
            if kind in source:
                wanted = source[kind]
                content = self.content(kind, wanted.get(key) or wanted.get("name"))
                items = wanted.get("items")
                return {item["path"]: content[item["key"]] for item in items} if items else content
        return {}

    def content(self, kind: str, name: str) -> dict[str, bytes]:
        """Return the entries of a secret or a config map."""
        namespace = self.pod["metadata"]["namespace"]
        if kind == "secret":
            data = self.api.read_namespaced_secret(name, namespace).data or {}
            return {key: base64.b64decode(value) for key, value in data.items()}
        return {
            key: text.encode()
            for key, text in (self.api.read_namespaced_config_map(name, namespace).data or {}).items()
        }


class RunningPod:
    """A pod of this node, from its start to its deletion."""

    numbers = count(1)

    def __init__(self, node: Node, pod: Pod) -> None:
        self.node, self.pod = node, pod
        self.name, self.namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.host = self.name[:63].rstrip("-.")
        number = next(self.numbers)
        self.ip = f"127.77.{number // 200}.{number % 200 + 1}"
        self.folder = node.folder / "pods" / f"{self.namespace}.{self.name}.{pod['metadata']['uid'][:8]}"
        self.folder.mkdir(parents=True)
        self.log = self.folder / "log"
        self.hosts = self.folder / "hosts"
        self.grace_s: float | None = None  # set when the pod is deleted
        self.is_over = False
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = now()
        threading.Thread(target=self.live, daemon=True).start()

    @property
    def container(self) -> Mapping[str, Any]:
        """The only container of a pod of Spark."""
        found: Mapping[str, Any] = self.pod["spec"]["containers"][0]
        return found

    def live(self) -> None:
        """Run the pod's container, and report each state."""
        volumes = None
        while self.grace_s is None and volumes is None:
            if self.container["image"].startswith("missing"):
                self.report("Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})
            else:
                with suppress(client.ApiException, KeyError):  # a source is not there yet
                    volumes = Volumes(self.pod, self.folder, self.node.api, self.field).make()
            time.sleep(0.3)
        status = 137
        if volumes is not None and self.grace_s is None:
            self.node.write_hosts()
            self.start(volumes)
            self.report("Running", {"running": {"startedAt": now()}})
            status = self.wait()
        self.is_over = True
        ended = {"exitCode": status, "reason": "Error" if status else "Completed", "startedAt": self.started_at}
        self.report("Failed" if status else "Succeeded", {"terminated": {**ended, "finishedAt": now()}})
        while self.grace_s is None:
            time.sleep(0.2)
        patiently(lambda: self.node.api.delete_namespaced_pod(self.name, self.namespace, grace_period_seconds=0))
        shutil.rmtree(self.folder / "volumes", ignore_errors=True)

    def report(self, phase: str, state: Mapping[str, Any]) -> None:
        """Write the status of the pod."""
        is_running = phase == "Running"
        container = {
            "name": self.container["name"],
            "image": self.container["image"],
            "imageID": "",
            "restartCount": 0,
        }
        container |= {"state": state, "ready": is_running, "started": is_running}
        true = {"PodScheduled": True, "Initialized": True, "Ready": is_running, "ContainersReady": is_running}
        status = {
            "phase": phase,
            "podIP": self.ip,
            "podIPs": [{"ip": self.ip}],
            "hostIP": "127.0.0.1",
            "startTime": self.started_at,
            "containerStatuses": [container],
            "conditions": [{"type": kind, "status": str(value)} for kind, value in true.items()],
        }
        patiently(lambda: self.node.api.patch_namespaced_pod_status(self.name, self.namespace, {"status": status}))

    def field(self, path: str) -> str:
        """Return a field of the pod as text, as `fieldRef` names it."""
        own = {"status.podIP": self.ip, "status.podIPs": self.ip, "status.hostIP": "127.0.0.1"}
        if path in own:
            return own[path]
        value: Any = {"metadata": self.pod["metadata"], "spec": self.pod["spec"]}
        head, _, key = path.partition("['")
        for name in head.split("."):
            value = value.get(name, {})
        if key:
            value = value.get(key.removesuffix("']"), "")
        return value if isinstance(value, str) else "\n".join(f'{name}="{text}"' for name, text in value.items())

    def environment(self) -> dict[str, str]:
        """Return the variables of the container: those of the image, then its own."""
        server = urlsplit(self.node.server)
        variables = {
            "HOME": "/root",
            "HOSTNAME": self.host,
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "PATH": os.environ["PATH"],
            "POD_IP": self.ip,
            **self.node.variables,
        }
        volumes = Volumes(self.pod, self.folder, self.node.api, self.field)
        for each in self.container.get("env", []):
            source = each.get("valueFrom", {})
            text = each.get("value", "")
            if "fieldRef" in source:
                text = self.field(source["fieldRef"]["fieldPath"])
            for kind, reference in (("secret", "secretKeyRef"), ("configMap", "configMapKeyRef")):
                if reference in source:
                    text = volumes.content(kind, source[reference]["name"])[source[reference]["key"]].decode()
            variables[each["name"]] = text
        return variables

    def start(self, volumes: Mapping[str, Path]) -> None:
        """Start the container in namespaces of its own."""
        base = self.folder / "disk"
        base.mkdir()
        root = base / "root"
        lines = [
            "set -e",
            f"hostname {shlex.quote(self.host)}",
            f"mount -t tmpfs none {base}",
            f"mkdir {base}/new {base}/work {root}",
            f"mount -t overlay none -o lowerdir=/,upperdir={base}/new,workdir={base}/work {root}",
            f"mount --rbind /dev {root}/dev",
            f"mount -t proc none {root}/proc",
            f"mount --bind {self.hosts} {root}/etc/hosts",
            *(f"mount -t tmpfs none {root}{path}" for path in self.node.hidden),
        ]
        mounts = {"/opt/spark": self.node.spark, "/opt/entrypoint.sh": self.node.entrypoint}
        mounts |= {
            each["mountPath"].rstrip("/"): self._source(each, volumes)
            for each in self.container.get("volumeMounts", [])
        }
        for path, source in mounts.items():
            make = "mkdir -p" if Path(source).is_dir() else "touch"
            lines += [
                # Inside, because links like /var/run must not lead out.
                f"chroot {root} sh -c 'mkdir -p {Path(path).parent} && {make} {path}'",
                f"mount --bind {source} {root}$(chroot {root} readlink -f {path})",
            ]
        words = [*self.container.get("command", ["/opt/entrypoint.sh"]), *self.container.get("args", [])]
        lines.append(f"exec chroot {root} {shlex.join(words)}")
        with self.log.open("ab") as log:
            stamps = subprocess.Popen([sys.executable, "-u", "-c", STAMP], stdin=subprocess.PIPE, stdout=log)
        self.process = subprocess.Popen(
            [*ISOLATED, "bash", "-c", "\n".join(lines)],
            env=self.environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=stamps.stdin,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if stamps.stdin:
            stamps.stdin.close()

    def _source(self, mount: Mapping[str, Any], volumes: Mapping[str, Path]) -> Path:
        return volumes[mount["name"]] / str(mount.get("subPath", ""))

    def wait(self) -> int:
        """Return the exit status of the container, which is ended when the pod is deleted."""
        process, told_at_s = self.process, None
        while process and process.poll() is None:
            if self.grace_s is not None and (told_at_s is None or time.monotonic() > told_at_s + self.grace_s):
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
                with suppress(OSError):
                    for child in children.read_text().split():
                        os.kill(int(child), signal.SIGTERM if told_at_s is None else signal.SIGKILL)
                told_at_s = time.monotonic()
            time.sleep(0.1)
        status = process.returncode if process else 1
        return status if status >= 0 else 128 - status


ISOLATED = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child"]
STAMP = """
import datetime, sys
for line in sys.stdin.buffer:
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f000Z ")
    sys.stdout.buffer.write(stamp.encode() + line)
    sys.stdout.buffer.flush()
"""


class Node:
    """The node: its configuration, and the pods that it runs."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.folder, self.hidden = Path(settings["folder"]), settings["hidden"]
        self.spark, self.entrypoint = Path(settings["spark"]), Path(settings["entrypoint"])
        self.variables, self.size, self.port = settings["variables"], settings["size"], settings["port"]
        config.load_kube_config(settings["kubeconfig"])
        self.api = client.CoreV1Api()
        self.server = client.Configuration.get_default_copy().host
        self.pods: dict[str, RunningPod] = {}
        self.services: list[Any] = []

    def register(self) -> None:
        """Create the node, and report that it is ready; no controller takes the first taint away."""
        patiently(lambda: self.api.create_node({"metadata": {"name": NODE}}))
        patiently(lambda: self.api.patch_node(NODE, {"spec": {"taints": None}}))
        size = {**self.size, "pods": "100"}
        status = {
            "capacity": size,
            "allocatable": size,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
        }
        patiently(lambda: self.api.patch_node_status(NODE, {"status": status}))

    def follow(self) -> None:
        """Start the pods that are bound to this node, and end those that are deleted, for ever."""
        options = {"field_selector": f"spec.nodeName={NODE}", "timeout_seconds": 30}
        while True:
            try:
                listed = json.loads(
                    self.api.list_pod_for_all_namespaces(
                        field_selector=options["field_selector"], _preload_content=False
                    ).data
                )
                found = listed["items"]
                for pod in found:
                    self.see(pod)
                for uid in set(self.pods) - {pod["metadata"]["uid"] for pod in found}:
                    self.end(uid, 0)
                version = listed["metadata"]["resourceVersion"]
                stream = watch.Watch().stream(
                    self.api.list_pod_for_all_namespaces, resource_version=version, **options
                )
                for event in stream:
                    pod = event["raw_object"]
                    if event["type"] == "DELETED":
                        self.end(pod["metadata"]["uid"], 0)
                    else:
                        self.see(pod)
            except Exception as error:  # noqa: BLE001 - the server restarts
                print("watch:", error, file=sys.stderr, flush=True)  # noqa: T201 - a log
                time.sleep(0.5)

    def see(self, pod: Pod) -> None:
        """Start a new pod, or end one that is to be deleted."""
        uid = pod["metadata"]["uid"]
        if uid not in self.pods and pod.get("status", {}).get("phase") == "Pending":
            self.pods[uid] = RunningPod(self, pod)
        if "deletionTimestamp" in pod["metadata"]:
            self.end(uid, pod["metadata"].get("deletionGracePeriodSeconds", 30))

    def end(self, uid: str, grace_s: float) -> None:
        """End a pod after a grace period."""
        pod = self.pods.get(uid)
        if pod and (pod.grace_s is None or grace_s < pod.grace_s):
            pod.grace_s = grace_s

    def name_services(self) -> None:
        """Keep the names of services in the pods' hosts files, for ever."""
        while True:
            self.services = patiently(self.api.list_service_for_all_namespaces).items
            self.write_hosts()
            time.sleep(0.5)

    def write_hosts(self) -> None:
        """Write the file with the names of services, and the pods behind them, for each pod."""
        pods = [pod for pod in list(self.pods.values()) if not pod.is_over]
        lines = ["127.0.0.1 localhost kubernetes.default.svc"]
        for service in self.services:
            wanted = (service.spec.selector or {}).items()
            name = f"{service.metadata.name}.{service.metadata.namespace}.svc"
            lines += [
                f"{pod.ip} {name}"
                for pod in pods
                if wanted and wanted <= (pod.pod["metadata"].get("labels") or {}).items()
            ]
        for pod in pods:
            text = "\n".join([*lines, f"{pod.ip} {pod.host}", ""])
            if not pod.hosts.exists() or pod.hosts.read_text() != text:
                pod.hosts.write_text(text)  # in place, because it is mounted

    def find_log(self, namespace: str, name: str) -> RunningPod | None:
        """Return the newest pod with a name."""
        found = [pod for pod in self.pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        return found[-1] if found else None


def serve_logs(node: Node, certificate: str) -> None:
    """Serve the logs of pods to the API server."""

    class Logs(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(address.query).items()}
            parts = address.path.strip("/").split("/")
            pod = node.find_log(parts[1], parts[2]) if parts[0] == "containerLogs" else None
            self.send_response(200 if pod else 404)
            self.end_headers()
            if pod and pod.log.exists():
                self._copy(pod, asked)

        def _copy(self, pod: RunningPod, asked: Mapping[str, str]) -> None:
            since = ""
            if seconds := asked.get("sinceSeconds"):
                began = datetime.fromtimestamp(time.time() - int(seconds), UTC)
                since = began.strftime("%Y-%m-%dT%H:%M:%S")
            with pod.log.open("rb") as log:
                while True:
                    is_last = pod.is_over or asked.get("follow") != "true"
                    for line in log:
                        stamp, _, text = line.partition(b" ")
                        if stamp.decode() >= since:
                            self.wfile.write(line if asked.get("timestamps") == "true" else text)
                    if is_last:
                        return
                    time.sleep(0.2)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{certificate}.crt", f"{certificate}.key")
    server = ThreadingHTTPServer(("127.0.0.1", node.port), Logs)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main(arguments: Sequence[str]) -> None:
    settings = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    node = Node(settings)
    serve_logs(node, settings["certificate"])
    node.register()
    threading.Thread(target=node.name_services, daemon=True).start()
    node.follow()


if __name__ == "__main__":
    main(sys.argv[1:])
