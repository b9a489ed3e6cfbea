"""An ssh server of this machine for tests, in a process of its own: `python fakessh.py FOLDER` prints its port.

FOLDER is the home folder of a user whose ~/.ssh/config names it `node-a` and `node-b`, with keys on both sides.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import asyncssh


async def _serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Run a command in a shell as sshd does: a signal for it, or the end of the connection, ends what it started."""
    child = await asyncio.create_subprocess_shell(
        process.command or "true",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    watch = asyncio.ensure_future(_watch(process, child.pid))
    await asyncio.gather(_pump(child.stdout, process.stdout), _pump(child.stderr, process.stderr))
    process.exit(await child.wait())
    watch.cancel()


async def _pump(source: asyncio.StreamReader, target: asyncssh.SSHWriter[bytes]) -> None:
    with suppress(BrokenPipeError):
        while some := await source.read(1 << 16):
            target.write(some)


async def _watch(process: asyncssh.SSHServerProcess[bytes], child: int) -> None:
    with suppress(asyncssh.Error, asyncssh.SignalReceived):
        while await process.stdin.read(1):
            pass
        await process.wait_closed()
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _home(folder: Path, port: int, host: asyncssh.SSHKey) -> None:
    ssh = folder.absolute() / ".ssh"
    known = host.export_public_key().decode().strip()
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{port} {known}\n")
    lines = [
        "Host node-a node-b",
        "HostName 127.0.0.1",
        f"Port {port}",
        "User somebody",
        f"IdentityFile {ssh / 'id_ed25519'}",
        f"UserKnownHostsFile {ssh / 'known_hosts'}",
    ]
    (ssh / "config").write_text("\n  ".join(lines) + "\n")


async def _main(folder: Path) -> None:
    host, user = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    ssh = folder.absolute() / ".ssh"
    ssh.mkdir()
    user.write_private_key(ssh / "id_ed25519")
    user.write_public_key(ssh / "authorized")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[host], authorized_client_keys=str(ssh / "authorized"),
        process_factory=_serve, encoding=None,
    )  # fmt: skip
    _home(folder, server.get_port(), host)
    print(server.get_port(), flush=True)
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
