"""Several hosts on one machine: each has a network namespace with an address and a host name of its own.

They share nothing but the server; the files of a test are its own way to see what happens on each of them.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from .. import postgresql
from ..postgresql import Server
from ..processes.running import Running
from .site import Site, site

NETWORK = "10.77.0"
SAFE = ("-c", "fsync=off", "-c", f"listen_addresses={NETWORK}.1")  # what is committed survives the death of the server
QUICK = {"tcp_user_timeout": 1000, "keepalives_idle": 1, "keepalives_interval": 1, "connect_timeout": 2}


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def require_namespaces() -> None:
    """Skip the test where the kernel forbids namespaces; also if a program is missing, unless CI says it is there."""
    missing = [name for name in ("ip", "unshare") if not shutil.which(name)]
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"missing: {missing} (apt-get install iproute2)")
    tried = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, text=True, check=False)
    if tried.returncode or os.getuid():
        pytest.skip(f"no network of several hosts can be made here, that needs root: {tried.stderr.strip()}")


class Host:
    """``name``: its own; ``enter``: how a process comes on it (see namespaces.on_host)."""

    def __init__(self, network: "Network", name: str, number: int) -> None:
        self.name, self.address, self._network = name, f"{NETWORK}.{number}", network
        self.namespace, self._port = f"{network.prefix}-{name}", f"port{number}"
        self.enter = "enter_network", name, self.namespace
        self.processes: list[Running] = []

    def plug_in(self, switch: str) -> None:
        """Give it an address, and a cable to the switch."""
        ip("link", "add", "eth0", "netns", self.namespace, "type", "veth", "peer", "name", self._port, "netns", switch)
        ip("-n", self.namespace, "address", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", self.namespace, "link", "set", "eth0", "up")
        ip("-n", switch, "link", "set", self._port, "master", "switch")
        self.connect()
        self._know(self.namespace, "eth0", f"{NETWORK}.1", switch, "switch")
        self._know(switch, "switch", self.address, self.namespace, "eth0")

    def _know(self, namespace: str, device: str, address: str, other: str, others: str) -> None:
        """Keep the hardware address of another host for good: else what is sent to it when it is gone is refused."""
        show = ["ip", "-n", other, "-br", "link", "show", others]
        hardware = subprocess.run(show, check=True, capture_output=True, text=True).stdout.split()[2]
        ip("-n", namespace, "neighbour", "replace", address, "lladdr", hardware, "nud", "permanent", "dev", device)

    def cut_off(self) -> None:
        """Pull its cable out: nothing that it sends arrives, and it is not told so."""
        ip("-n", self._network.switch, "link", "set", self._port, "down")

    def connect(self) -> None:
        """Put its cable in."""
        ip("-n", self._network.switch, "link", "set", self._port, "up")

    def die(self) -> None:
        """End all that runs on it, without a word to the server."""
        self.cut_off()
        for process in self.processes:
            process.kill()


class Network:
    """The hosts, by name; the first address is that of the database server, which is the switch too."""

    def __init__(self) -> None:
        self.prefix = f"vtq{os.getpid()}"
        self.switch = f"{self.prefix}-server"
        self.server_command = ["ip", "netns", "exec", self.switch]
        self.hosts: dict[str, Host] = {}

    def make(self, stack: ExitStack, *names: str) -> None:
        """Make the namespaces; they go with ``stack``."""
        self._namespace(stack, self.switch)
        ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
        ip("-n", self.switch, "address", "add", f"{NETWORK}.1/24", "dev", "switch")
        ip("-n", self.switch, "link", "set", "switch", "up")
        for number, name in enumerate(names, 2):
            self.hosts[name] = Host(self, name, number)
            self._namespace(stack, self.hosts[name].namespace)
            self.hosts[name].plug_in(self.switch)

    def _namespace(self, stack: ExitStack, name: str) -> None:
        ip("netns", "add", name)
        stack.callback(ip, "netns", "delete", name)
        ip("-n", name, "link", "set", "lo", "up")


class Shop:
    """A project whose processes run on several hosts."""

    def __init__(self, site: Site, hosts: dict[str, Host]) -> None:
        self.site, self.hosts = site, hosts

    def run(self, host: str, *arguments: str, **variables: str) -> Running:
        """Start this Python on a host."""
        there = self.hosts[host]
        process = self.site.run(*arguments, host=there.enter, bells=host, **variables)
        there.processes.append(process)
        return process

    def worker(self, host: str, *options: str, **variables: str) -> Running:
        """Start a worker on a host, and wait until it is ready."""
        worker = self.run(host, "-m", "django", "vtworker", *options, **variables)
        worker.wait_ready()
        return worker

    def python(self, host: str, code: str, **variables: str) -> Running:
        """Start lines of Python on a host, after ``django.setup()``."""
        return self.run(host, "-c", f"import django; django.setup()\n{code}", **variables)


@contextmanager
def network(*names: str) -> Iterator[tuple[Server, Network]]:
    """Make hosts, and a server on another one."""
    require_namespaces()
    postgresql.require_server()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="vtq-pg-", dir="/tmp")))
        made = Network()
        made.make(stack, *names)
        server = Server(folder, *SAFE, launcher=made.server_command)
        server.create()
        with (folder / "data/pg_hba.conf").open("a") as file:
            file.write(f"host all all {NETWORK}.0/24 trust\n")
        server.start()
        stack.callback(server.stop)
        yield server, made


@contextmanager
def shop_on(server: Server, network: Network, folder: Path, **options: Any) -> Iterator[Shop]:
    """Make a project on these hosts. ``options``: of their connections; those here notice at once what is cut off."""
    settings = server.settings()
    settings = {**settings, "HOST": f"{NETWORK}.1", "OPTIONS": {**QUICK, **options}}
    with site(folder, server, settings) as made:
        try:
            yield Shop(made, network.hosts)
        finally:
            for host in network.hosts.values():
                host.connect()
                host.processes.clear()
