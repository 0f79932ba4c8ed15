"""A real kube-apiserver with its etcd on loopback, from the folder that KUBEBUILDER_ASSETS names.

Where the folder also holds a kube-controller-manager, its garbage collector runs too, or what a test wants.
"""

import base64
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trustme
import yaml

from shared.settings.ports import reserve_port

START_SECONDS: Final = 300.0
STOP_SECONDS: Final = 10.0
LOG_BYTES: Final = 4000
GARBAGE_COLLECTOR: Final = "garbage-collector-controller"
PLAIN: Final = ("--disable-admission-plugins=ServiceAccount",)


@dataclass(kw_only=True)
class ApiServer:
    kubeconfig: Path
    url: str
    folder: Path
    command: list[str]
    collects_garbage: bool
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it is ready."""
        log = self.folder / "kube-apiserver.log"
        with log.open("ab") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=out, cwd=self.folder)
        running = self.process
        wait_ready(
            f"{self.url}/readyz",
            client_context(self.folder),
            alive=lambda: running.poll() is None,
            logs=lambda: log.read_bytes()[-LOG_BYTES:].decode(errors="replace"),
        )

    def kill(self) -> None:
        """As ``kill -9`` does; etcd stays."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@contextmanager
def api_server(
    assets: Path,
    folder: Path,
    *,
    flags: Sequence[str] = PLAIN,
    controllers: Sequence[str] = (GARBAGE_COLLECTOR,),
    manager_flags: Sequence[str] = (),
) -> Iterator[ApiServer]:
    """Run the servers for as long as the context lasts; everything they write is under `folder`.

    `flags` are added to those of kube-apiserver, `manager_flags` to those of kube-controller-manager, where
    there is one, and `controllers` are its.
    """
    authority = trustme.CA()
    ca, server, key = (folder / name for name in ("ca.pem", "server.pem", "server.key"))
    authority.cert_pem.write_to_path(ca)
    ours = authority.issue_cert("127.0.0.1", "localhost")
    ours.cert_chain_pems[0].write_to_path(server)
    ours.private_key_pem.write_to_path(key)
    etcd, peer, secure, manager = (reserve_port() for _ in range(4))
    url = f"https://127.0.0.1:{secure}"
    kubeconfig = write_kubeconfig(authority, folder, ca, url)
    with ExitStack() as stack:
        stack.enter_context(running(etcd_command(assets, folder, etcd, peer), folder, "etcd"))
        command = [
            str(assets / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={secure}",
            f"--tls-cert-file={server}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={ca}",
            f"--service-account-issuer={url}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            *flags,
        ]
        served = ApiServer(
            kubeconfig=kubeconfig,
            url=url,
            folder=folder,
            command=command,
            collects_garbage=(assets / "kube-controller-manager").exists(),
        )
        served.start()
        stack.callback(served.kill)
        if served.collects_garbage:
            stack.enter_context(
                running(
                    [
                        str(assets / "kube-controller-manager"),
                        f"--kubeconfig={kubeconfig}",
                        f"--controllers={','.join(controllers)}",
                        "--leader-elect=false",
                        "--bind-address=127.0.0.1",
                        f"--secure-port={manager}",
                        f"--cert-dir={folder}",
                        *manager_flags,
                    ],
                    folder,
                    "kube-controller-manager",
                )
            )
        yield served


def etcd_command(assets: Path, folder: Path, client: int, peer: int) -> list[str]:
    return [
        str(assets / "etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync=true",
    ]


def write_kubeconfig(authority: trustme.CA, folder: Path, ca: Path, url: str) -> Path:
    """Whoever belongs to system:masters may do everything."""
    client = authority.issue_cert(
        "admin@example.test", common_name="admin", organization_name="system:masters"
    )
    client.cert_chain_pems[0].write_to_path(folder / "client.pem")
    client.private_key_pem.write_to_path(folder / "client.key")
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {"name": "c", "cluster": {"server": url, "certificate-authority": str(ca)}}
                ],
                "users": [
                    {
                        "name": "u",
                        "user": {"client-certificate": "client.pem", "client-key": "client.key"},
                    }
                ],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return path


@contextmanager
def running(command: list[str], folder: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def client_context(folder: Path) -> ssl.SSLContext:
    """Who may do everything, as `write_kubeconfig` or `write_credentials` left it in `folder`."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "client.pem", folder / "client.key")
    return context


def write_credentials(kubeconfig: dict[str, Any], folder: Path) -> None:
    """The certificates that a kubeconfig carries within itself, as files."""
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    for name, data in (
        ("ca.pem", cluster["certificate-authority-data"]),
        ("client.pem", user["client-certificate-data"]),
        ("client.key", user["client-key-data"]),
    ):
        (folder / name).write_bytes(base64.b64decode(data))


def wait_ready(
    url: str, context: ssl.SSLContext, *, alive: Callable[[], bool], logs: Callable[[], str]
) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and alive():
        try:
            with urllib.request.urlopen(url, context=context, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass  # Not there yet: that is what is being waited for.
        time.sleep(0.2)
    raise RuntimeError(f"no API server: {logs()}")


def found(assets: str | None) -> Path | None:
    """The folder, where it holds what is needed."""
    if not assets:
        return None
    folder = Path(assets)
    missing = [name for name in ("kube-apiserver", "etcd") if not shutil.which(name, path=folder)]
    assert not missing, f"KUBEBUILDER_ASSETS={assets} lacks {', '.join(missing)}"
    return folder
