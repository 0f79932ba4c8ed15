"""The simulator's command line."""

import asyncio
import math
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress
from pathlib import Path
from typing import Final

from services.simulator.app import Simulator
from services.simulator.http.server import HOST
from services.simulator.journal import JournalError
from services.simulator.manifests import ManifestError, apply_all, read_folder
from shared.runtime.command import environment_error, print_line
from shared.runtime.loop import run

PORT_MAX: Final = 65_535


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= PORT_MAX:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is no port: 0 to {PORT_MAX}")


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if math.isfinite(speed) and speed > 0:
        return speed
    raise ArgumentTypeError(f"{text!r} is no speed: a number above 0")


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="sluice run simulator", description=__doc__)
    parser.add_argument("--host", default=HOST, help="address to listen on; 0.0.0.0 in a container")
    parser.add_argument("--known-as", metavar="NAME", help="name of this host for the kubeconfig")
    parser.add_argument("--port", type=_port, default=0, help="0 takes a free one")
    parser.add_argument("--speed", type=_speed, default=1.0, help="60 makes a minute a second")
    parser.add_argument("--seed", type=int, default=0, help="of names, uids and durations")
    parser.add_argument("--kubeconfig-out", type=Path, help="write a kubeconfig there")
    parser.add_argument("--manifests", type=Path, help="apply the YAML files of this folder first")
    parser.add_argument(
        "--journal", type=Path, help="keep the objects in this file, and begin with what is there"
    )
    parser.add_argument("--tls-certificate", type=Path, help="serve TLS with this certificate")
    parser.add_argument("--tls-key", type=Path, help="its key")
    parser.add_argument(
        "--service",
        action="append",
        default=[],
        metavar="NAMESPACE/NAME=URL",
        help="where a Service is that webhook configurations name; may be repeated",
    )
    return parser.parse_args()


def _services(given: list[str]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for text in given:
        name, _, url = text.partition("=")
        namespace, slash, service = name.partition("/")
        if not slash or not url:
            sys.exit(f"simulator: --service {text}: expected NAMESPACE/NAME=URL")
        found[namespace, service] = url
    return found


async def _run(arguments: Namespace) -> None:
    simulator = Simulator(
        host=arguments.host,
        known_as=arguments.known_as,
        port=arguments.port,
        speed=arguments.speed,
        seed=arguments.seed,
        certificate=arguments.tls_certificate,
        key=arguments.tls_key,
        services=_services(arguments.service),
        journal=arguments.journal,
    )
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await simulator.start()
        if arguments.manifests is not None:
            await apply_all(simulator.api, read_folder(arguments.manifests))
        if arguments.kubeconfig_out is not None:
            arguments.kubeconfig_out.write_text(simulator.kubeconfig(), encoding="utf-8")
        print_line(f"simulator: serving {simulator.url}")
        await stop.wait()
    finally:
        await simulator.stop()


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    arguments = _arguments()
    with suppress(KeyboardInterrupt):
        try:
            run(_run(arguments))
        except (JournalError, ManifestError) as error:
            sys.exit(f"simulator: {error}")
        except OSError as error:
            at = f"{arguments.host}:{arguments.port}"
            problem = environment_error(error, at) or error
            sys.exit(
                "\n  ".join(filter(None, (f"simulator: {problem}", getattr(problem, "hint", ""))))
            )
