"""Where a run's results go: `features.h5` with its shards beside it, or a folder of shards.

features.h5                       the folded file; replaced as a whole, never changed
features.h5.shards/               while a run goes on; removed when everything is folded
    tables.h5                     videos, clips, captions, splits
    shard-*.h5                    what workers wrote
    manifest.jsonl                the ledger: one line for each shard that counts
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.errors import BadFeatureFile
from pipeline.faults import point
from pipeline.parts import Part, ledger_entries, made_at, part_files, read_ledger, read_part
from pipeline.publish import append, explained, remove_stale
from pipeline.records import Manifest
from pipeline.shards import fold
from pipeline.tables import same_tables, write_tables

log = logging.getLogger(__name__)

TRIES = 100
"""How often the lock of a run that is just ending is tried."""
Settings = Mapping[str, Mapping[str, Any]]
"""Settings by stream."""
FILES = {".h5", ".hdf5"}
"""Suffixes of folded files; any other output is a folder of shards."""


@dataclass(frozen=True)
class Output:
    """The place of a run's results. `share` is '' or one run's share of a divided job, such as '3of64'."""

    path: Path
    share: str = ""

    @property
    def is_file(self) -> bool:
        """Whether shards are folded into one file at the end."""
        return self.path.suffix in FILES

    @property
    def folder(self) -> Path:
        """Where shards stand."""
        return self.path.with_name(f"{self.path.name}.shards") if self.is_file else self.path

    def shard(self, name: str) -> Path:
        """Return the path of the shard called `name`."""
        return self.folder / f"{self._prefix}{name}.h5"

    def beside(self, name: str) -> Path:
        """Return the path of a list that goes with the output, `failures.jsonl` or `missing.txt`, named after it."""
        share = f"{self.share}." if self.share else ""
        return self.path.with_name(f"{self.path.stem}.{share}{name}") if self.is_file else self.path / f"{share}{name}"

    @property
    def _prefix(self) -> str:
        return f"shard-{self.share}-" if self.share else "shard-"

    @property
    def _tables(self) -> Path:
        return self.folder / "tables.h5"

    @property
    def _ledger(self) -> Path:
        return self.folder / (f"manifest-{self.share}.jsonl" if self.share else "manifest.jsonl")

    def sources(self) -> list[Path]:
        """Return the feature files that hold what is there already, oldest first."""
        return [path for path in dict.fromkeys([self.path, self.folder]) if path.exists()]

    def parts(self) -> Iterator[Part]:
        """Yield what is there already. Raises BadFeatureFile for a damaged file."""
        sources = [path for path in self.sources() if path.is_file() or read_ledger(path)]
        return (read_part(file) for source in sources for file in part_files(source))

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the output for this process, and tidy up what dead ones left. Raises BadFeatureFile if it is taken.

        Shares of a divided job hold it together, a run without a share alone.
        """
        locks: list[int] = []
        try:
            if self.share:
                locks.append(self._lock(".lock", fcntl.LOCK_SH))
            locks.append(self._lock(f".lock{self.share}", fcntl.LOCK_EX))
            with explained(self.path):
                self._tidy()
                self.adopt()
            yield
        finally:
            if locks and self.is_file and not self.share:
                self._remove_if_empty(locks[0])
            for lock in locks:
                os.close(lock)

    def _tidy(self) -> None:
        remove_stale(self.folder)
        remove_stale(self.path.parent)
        for folded in self.path.parent.glob(f".{self.folder.name}.folded-*"):
            shutil.rmtree(folded, ignore_errors=True)

    def _lock(self, name: str, kind: int) -> int:
        """Return a handle of the lock that is called so, which is held. Raises BadFeatureFile if others hold it."""
        file = self.folder / name
        for _ in range(TRIES):
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:  # the run before has just removed its folder
                continue
            except OSError as error:
                raise BadFeatureFile(
                    f"cannot write to {self.folder}: {error.strerror}; choose another --out or mend its rights"
                ) from error
            try:
                _hold(handle, kind, self.path)
            except BadFeatureFile:
                os.close(handle)
                raise
            if _is(handle, file):
                return handle
            os.close(handle)  # it was held by the run before until that removed it: others would make another
        raise BadFeatureFile(f"{file} comes and goes; see what other run writes {self.path}")

    def _remove_if_empty(self, lock: int) -> None:
        """Remove the folder of shards if no shard is in it; after `finish` there may be the lock of the next run."""
        ours = _is(lock, self.folder / ".lock")
        if ours and {file.name for file in self.folder.iterdir()} <= {".lock", self._tables.name}:
            shutil.rmtree(self.folder, ignore_errors=True)

    def adopt(self) -> None:
        """List shards that workers wrote and no ledger has yet: a run that was killed had no time to."""
        entries = ledger_entries(self.folder)
        known = {(entry["shard"], entry.get("written")) for entry in entries}
        made = {(entry["shard"], entry["made"]) for entry in entries}
        found = sorted(self.folder.glob(f"{self._prefix}*.h5"))
        new = [file for file in found if (file.name, file.stat().st_mtime_ns) not in known]
        found_new = sorted(filter(None, (_entry(file, made) for file in new)), key=made_at)
        # Clocks jump, and other machines have others: what is listed now was made after all that is listed already.
        last = max(map(made_at, entries), default=0)
        for entry in found_new:
            last = entry["order"] = max(last + 1, entry["made"])
        if found_new:
            append(self._ledger, [json.dumps(entry) + "\n" for entry in found_new])

    def drop(self, wanted: Settings) -> None:
        """Take streams with other settings than the wanted ones out of the shards."""
        for file in self.folder.glob(f"{self._prefix}*.h5"):
            part = read_part(file)
            left = current(part, wanted)
            if not left.streams:
                file.unlink()
            elif len(left.streams) < len(part.streams):
                fold([left], file, part.attrs)

    def begin(self, manifest: Manifest, attrs: Mapping[str, Any]) -> None:
        """Write the data set's own tables, as `finish` needs them. In a folder, words that are of them stay there."""
        before = [] if self.is_file or not self._tables.exists() else [read_part(self._tables)]
        write_tables(self._tables, attrs, manifest, before)

    def _to_fold(self, shards: Sequence[Path], wanted: Settings) -> Iterator[Part]:
        """Yield what makes the final file, a file after the other."""
        yield read_part(self._tables)
        if self.path.exists():
            yield current(read_part(self.path), wanted)
        yield from map(read_part, shards)

    def finish(self, attrs: Mapping[str, Any], wanted: Settings) -> None:
        """Bring shards and tables into their final form, without streams of other settings than the wanted ones."""
        self.adopt()
        if not self.is_file or self.share:
            return
        shards = [self.folder / name for name in read_ledger(self.folder)]
        if shards or not self.path.exists() or not same_tables(self._tables, self.path):
            fold(self._to_fold(shards, wanted), self.path, attrs)
        # Out of sight at once: half a folder of shards would tell another story than the whole.
        folded = self.folder.with_name(f".{self.folder.name}.folded-{os.getpid()}")
        with explained(self.path):
            point("away.before", self.path)
            self.folder.rename(folded)
            point("away.after", self.path)
        shutil.rmtree(folded, ignore_errors=True)


def current(part: Part, wanted: Settings) -> Part:
    """Return `part` without the streams that were made with other settings than the wanted ones."""
    left = {name: s for name, s in part.streams.items() if name not in wanted or s["settings"] == wanted[name]}
    return replace(part, streams=left)


def _is(handle: int, file: Path) -> bool:
    """Return whether a handle is that of the file that stands there now."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


def _hold(handle: int, kind: int, path: Path) -> None:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadFeatureFile(f"another run is writing {path}; wait for it, or give this one another --out") from None
    except OSError as error:
        log.warning("%s: this file system has no locks (%s); see that no other run writes it", path, error.strerror)


def _entry(file: Path, listed: set[tuple[str, int]]) -> dict[str, Any] | None:
    """Return what the ledger says of a shard; None if it is listed already and was copied, or if it is damaged."""
    try:
        part = read_part(file)
    except BadFeatureFile as error:
        log.warning("%s; set aside, its videos are extracted again", error)
        file.replace(file.with_name(f"{file.name}.damaged"))
        return None
    made = int(part.attrs.get("made", 0))
    if (file.name, made) in listed:
        return None
    rows = {name: stream["rows"] for name, stream in part.streams.items()}
    written = file.stat().st_mtime_ns
    return {"shard": file.name, "made": made, "written": written, "videos": len(part.videos["id"]), "rows": rows}
