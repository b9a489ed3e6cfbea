"""Videos by address, `http://`, `https://`, `s3://` and `gs://`: fetched by fsspec when they are decoded.

    with local(video.path) as (path, state):    # a file of this machine is given as it is
        probe(path)

A video is fetched as a whole into a temporary file that has no name: its bytes are gone with the process, however that
ends. ffmpeg reads it by way of /proc, as often as it must and wherever its index stands, and opens nothing but files.
One video at a time is on the disk for each worker, in blocks of a few megabytes in memory. Reasons, and the
alternatives that were measured: docs/decisions/0010-scale.md.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pipeline.errors import BadDataset, BadSetting, BadVideo
from pipeline.records import Remote, Video

if TYPE_CHECKING:
    from pipeline.store import Features

log = logging.getLogger(__name__)

EXTRAS = {"http": "http", "https": "http", "s3": "s3", "gs": "gs"}
"""Scheme to the extra of this package that brings what reads it."""
TRIES = 3
PAUSE = 1.0
"""Seconds before the second try; four times as long before each further one."""
SILENCE = 60.0
"""Seconds without a byte after which a try is given up."""
SLOWEST = 10_000
"""Bytes a second, on an average, below which a try is given up after that time."""
BLOCK = 1 << 22
"""Bytes that are read at a time."""
LARGEST = 64 * 2**30
"""Bytes of one video."""
BROKEN = {"ClientPayloadError", "ContentLengthError", "TransferEncodingError", "ServerDisconnectedError"}
"""What aiohttp calls an answer that is not whole."""
LOOKS = 32
"""Addresses that are asked for their state at a time."""


@dataclass(frozen=True, slots=True)
class State:
    """What tells a file from what it becomes when it is changed."""

    size: int
    """Bytes; 0 where the server does not say."""
    mtime: int
    """Nanoseconds since 1970; where the server tells no time, a number that stands for its ETag, without that 1."""


UNKNOWN = State(0, 0)
"""Of what cannot be asked for now."""
UNFETCHED = State(0, 1)
"""Of what could not be fetched: none that it may have later, so that it is tried again."""


class _NotWhole(Exception):
    """What came is not the whole file, in our own words."""


def place(folder: Path, text: str, where: str) -> Path | Remote | None:
    """Return what a path in a table means: an address, a file from `folder` on, or None where there is no such file.

    Raises BadDataset, beginning with `where`, for an address of a kind that cannot be read.
    """
    scheme, is_url, _ = text.partition("://")
    if is_url and scheme.isalnum():
        if scheme not in EXTRAS:
            known = ", ".join(f"{scheme}://" for scheme in EXTRAS)
            raise BadDataset(f"{where}: {scheme:.20}:// cannot be read; expected {known} or a path")
        return Remote(text)
    try:
        return folder / text if text and (folder / text).is_file() else None
    except OSError:  # a path that the system refuses, such as a name too long
        return None


@contextmanager
def local(source: Path | Remote) -> Iterator[tuple[Path, State | None]]:
    """Give the file of a video, and the state in which one from elsewhere was fetched.

    Raises BadVideo for what cannot be fetched, BadSetting where the program for that is not installed.
    """
    if isinstance(source, Path):
        yield source, None
        return
    with tempfile.TemporaryFile() as file:  # without a name from the start
        path = Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        yield path, _fetch(source.url, file)


def of_file(path: Path | str | None) -> State | None:
    """Return the state of a file of this machine, None where there is none."""
    try:
        found = os.stat(path) if path is not None else None  # noqa: PTH116 — a Path of each of a million
    except (OSError, ValueError):
        return None
    return State(found.st_size, found.st_mtime_ns) if found and stat.S_ISREG(found.st_mode) else None


def look(videos: Iterable[Video], features: Features) -> dict[str, State | None]:
    """Return the states of those videos elsewhere that were extracted before; the others are seen when fetched.

    What a server does not say, or one that does not answer, is taken to be as it was.
    """
    done = [(video.id, video.file) for video in videos if isinstance(video.file, Remote) and video.id in features.index]
    found = dict(zip((video for video, _ in done), states([path for _, path in done]), strict=True))
    silent = [video for video, state in found.items() if state == UNKNOWN]
    if silent:
        log.warning("%d addresses do not answer, %s for one: their videos are taken to be as they were",
                    len(silent), silent[0])  # fmt: skip
    size, mtime = features.videos["source_size"], features.videos["source_mtime"]
    before = {video: State(int(size[at]), int(mtime[at])) for video in found for at in (features.index[video],)}
    return {
        video: state and State(state.size or before[video].size, state.mtime or before[video].mtime)
        for video, state in found.items()
    }


def states(sources: Sequence[Remote]) -> list[State | None]:
    """Return the state of each address: None where nothing is there, UNKNOWN where that cannot be found out now."""
    with ThreadPoolExecutor(LOOKS) as pool:
        return list(pool.map(_state, sources))


def _state(source: Remote) -> State | None:
    try:
        return _told(_filesystem(urlsplit(source.url).scheme).info(source.url))
    except BadSetting:
        raise
    except Exception as error:  # noqa: BLE001 — whatever a library for the net raises
        return None if _gone(error) else UNKNOWN


@lru_cache(maxsize=8)
def _filesystem(scheme: str) -> Any:
    import fsspec

    try:
        return fsspec.filesystem(scheme, **_options(scheme))
    except ImportError:
        extra = EXTRAS[scheme]
        raise BadSetting(f"{scheme}:// needs an extra; pip install 'video-text-features[{extra}]'") from None


def _options(scheme: str) -> dict[str, Any]:
    """Return what is set here and not by fsspec's own files and variables, where keys and addresses of servers are."""
    if EXTRAS[scheme] != "http":
        return {}
    from aiohttp import ClientTimeout
    from fsspec.config import conf

    given = conf.get(scheme, {}).get("client_kwargs", {})
    # aiohttp's own limit is five minutes for a whole file; a proxy and ~/.netrc count as they do elsewhere.
    timeout = ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
    return {"client_kwargs": {"timeout": timeout, "trust_env": True, **given}}


def _fetch(url: str, file: IO[bytes]) -> State:
    """Fill `file` with what is at `url`."""
    for attempt in range(TRIES):
        try:
            return _try(url, file)
        except (BadSetting, BadVideo):
            raise
        except Exception as error:  # whatever a library for the net raises
            why = _why(error)
            if attempt + 1 == TRIES or _final(error):
                raise BadVideo(f"cannot be fetched: {why}") from error
        time.sleep(PAUSE * 4**attempt)
    raise AssertionError


def _try(url: str, file: IO[bytes]) -> State:
    scheme = urlsplit(url).scheme
    filesystem = _filesystem(scheme)
    state = _told(filesystem.info(url))
    _check_room(state.size)
    file.seek(0)
    file.truncate()
    # One request for the whole where http is spoken, as not every server gives parts; one for each block elsewhere.
    how: dict[str, Any] = {"block_size": BLOCK, "cache_type": "none"}
    if EXTRAS[scheme] == "http":
        how = {"block_size": 0, "size": state.size or None, "headers": {"Accept-Encoding": "identity"}}
    with filesystem.open(url, "rb", **how) as source:
        begun = time.monotonic()
        while some := source.read(BLOCK):
            file.write(some)
            spent = time.monotonic() - begun
            if spent > SILENCE and file.tell() < SLOWEST * spent:
                raise _NotWhole(f"slower than {SLOWEST / 1000:.0f} kB a second")
            _check_size(file.tell())
    file.flush()
    if state.size and file.tell() != state.size:
        raise _NotWhole(f"{file.tell()} of {state.size} bytes came")
    return state


def _check_room(size: int) -> None:
    _check_size(size)
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if size > free:
        raise BadVideo(f"cannot be fetched: {size / 2**30:.1f} GiB, but {folder} has {free / 2**30:.1f}; set TMPDIR")


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise BadVideo(f"cannot be fetched: over {LARGEST / 2**30:.0f} GiB")


def _told(info: Mapping[str, Any]) -> State:
    """Return the state that fsspec's `info` tells, whose words depend on the kind of server."""
    size = int(info.get("size") or 0)
    for key in ("LastModified", "mtime", "Last-Modified"):
        if when := _time(info.get(key)):
            return State(size, when)
    tag = str(info.get("ETag") or info.get("etag") or "")
    return State(size, int.from_bytes(hashlib.sha256(tag.encode()).digest()[:7]) if tag else 1)


def _time(value: Any) -> int:
    """Return nanoseconds since 1970 of a datetime or a header, 0 for anything else."""
    try:
        when = value if isinstance(value, datetime) else parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return 0
    return int(when.timestamp()) * 10**9


def _why(error: BaseException) -> str:
    """Say what went wrong, without the address: it may hold a key, and reasons are kept in the feature file."""
    cause, status = _cause(error), _status(error)
    number = getattr(cause, "errno", None)
    cases = [
        (_gone(error), "not found"),
        (status, f"the server says {status} {getattr(cause, 'message', '')}".strip()),
        (_full(error), f"no space left in {tempfile.gettempdir()}; set TMPDIR to another disk"),
        (isinstance(cause, _NotWhole), str(cause)),
        (isinstance(cause, TimeoutError), f"no answer for {SILENCE:g} s"),
        (type(cause).__name__ in BROKEN, "the connection ended early"),
        (number, os.strerror(number or 0)),
    ]
    return next((words for holds, words in cases if holds), type(cause).__name__)


def _final(error: BaseException) -> bool:
    """Say whether the same would come of another try."""
    status = _status(error)
    refused = 400 <= status < 500 and status not in (408, 425, 429)
    return refused or _gone(error) or _full(error) or isinstance(_cause(error), PermissionError)


def _gone(error: BaseException) -> bool:
    return _status(error) in (404, 410) or isinstance(_cause(error), FileNotFoundError)


def _full(error: BaseException) -> bool:
    return getattr(_cause(error), "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def _status(error: BaseException) -> int:
    """Return the status of a server's answer, 0 where there was none."""
    status = getattr(_cause(error), "status", 0)
    return status if isinstance(status, int) else 0


def _cause(error: BaseException) -> BaseException:
    """Return the error behind a FileNotFoundError, which fsspec makes of all that may go wrong with http."""
    cause = error.__cause__
    behind = cause is not None and type(cause).__module__.partition(".")[0] in {"aiohttp", "asyncio", "builtins"}
    return cause if behind and cause is not None else error
