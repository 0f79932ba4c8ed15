"""How a cluster is found, and how credentials that change on disk or run out are renewed."""

import stat
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from shared.contracts.kube.kinds import CONFIG_MAP
from shared.kube.client import HttpKube
from shared.kube.config import from_kubeconfig, from_settings, in_cluster
from shared.kube.port import RefusedError


@dataclass
class Guarded:
    """A server that takes one token."""

    url: str = ""
    token: str = "first"
    tokens: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.tokens[-1] != f"Bearer {self.token}":
            return web.json_response({"code": 401, "reason": "Unauthorized"}, status=401)
        if "watch" in request.query:
            bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2"}}}\n'
            return web.Response(body=bookmark)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    guarded = Guarded()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", guarded.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    guarded.url = f"http://{host}:{port}"
    yield guarded
    await runner.cleanup()


def kubeconfig(folder: Path, url: str, user: dict[str, Any]) -> str:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": url + "/"}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return str(path)


def plugin(folder: Path, token_file: Path) -> dict[str, Any]:
    """A credential plugin that prints what stands in `token_file`."""
    script = folder / "plugin"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json\n"
        f"token = open({str(token_file)!r}).read()\n"
        'print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1",'
        ' "kind": "ExecCredential", "status": {"token": token}}))\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(script),
            "interactiveMode": "Never",
        }
    }


async def test_token_in_the_file_is_sent(server: Guarded, tmp_path: Path) -> None:
    kube = HttpKube.from_kubeconfig(kubeconfig(tmp_path, server.url, {"token": "first"}))
    await kube.list(CONFIG_MAP)
    await kube.close()
    assert server.tokens == ["Bearer first"]


@pytest.mark.parametrize("by", ["token file", "plugin"])
async def test_refused_token_is_read_again(
    server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr("shared.kube.client.REOPEN_SECONDS", 0.0)
    token = tmp_path / "token"
    token.write_text("first")
    user = plugin(tmp_path, token) if by == "plugin" else {"tokenFile": str(token)}
    kube = HttpKube.from_kubeconfig(kubeconfig(tmp_path, server.url, user))
    await kube.list(CONFIG_MAP)
    token.write_text("second")
    server.token = "second"
    await kube.list(CONFIG_MAP)
    await kube.close()
    assert server.tokens == ["Bearer first", "Bearer first", "Bearer second"]


async def test_credentials_that_remain_refused_are_not_reread_in_a_loop(
    server: Guarded, tmp_path: Path
) -> None:
    kube = HttpKube.from_kubeconfig(kubeconfig(tmp_path, server.url, {"token": "wrong"}))
    for _ in range(5):
        with pytest.raises(RefusedError):
            await kube.list(CONFIG_MAP)
    await kube.close()
    assert len(server.tokens) == 5


async def test_watch_authenticates_and_yields_bookmarks(server: Guarded, tmp_path: Path) -> None:
    kube = HttpKube.from_kubeconfig(kubeconfig(tmp_path, server.url, {"token": "first"}))
    events = [event async for event in kube.watch(CONFIG_MAP, resource_version="1")]
    await kube.close()
    assert [(event.type, event.object["metadata"]["resourceVersion"]) for event in events] == [
        ("BOOKMARK", "2")
    ]


UNREADABLE = {
    "does not exist": None,
    "is no YAML": "{",
    "is a list": "[]",
    "is empty": "",
    "names a context that it lacks": "current-context: x\ncontexts: []\nclusters: []\nusers: []\n",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_invalid_kubeconfig_is_refused_with_its_name(
    tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RefusedError, match="kubeconfig"):
        await from_kubeconfig(str(path))()


async def test_unknown_context_is_refused(server: Guarded, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, server.url, {"token": "first"})
    with pytest.raises(RefusedError, match="other"):
        await from_kubeconfig(path, "other")()


async def test_outside_of_a_pod_there_is_no_service_account() -> None:
    with pytest.raises(RefusedError, match="service account"):
        await in_cluster()()
    with pytest.raises(RefusedError, match="service account"):
        await from_settings(None)()


async def test_usual_proxy_is_used_unless_the_server_is_excepted(
    server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "elsewhere.example.test")
    path = kubeconfig(tmp_path, "http://cluster.example.test", {"token": "first"})
    kube = HttpKube.from_kubeconfig(path)
    await kube.list(CONFIG_MAP)
    await kube.close()
    assert server.tokens == ["Bearer first"]
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    kube = HttpKube.from_kubeconfig(kubeconfig(tmp_path, server.url, {"token": "first"}))
    await kube.list(CONFIG_MAP)
    await kube.close()
    assert len(server.tokens) == 2
