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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import BadFeatureFile
from pipeline.publish import remove_stale
from pipeline.records import Manifest
from pipeline.shards import fold
from pipeline.store import Features, Part, ledger_entries, part_files, read_ledger, read_part
from pipeline.tables import same_tables, write_tables

log = logging.getLogger(__name__)

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

    @property
    def _prefix(self) -> str:
        return f"shard-{self.share}-" if self.share else "shard-"

    @property
    def _ledger(self) -> Path:
        return self.folder / (f"manifest-{self.share}.jsonl" if self.share else "manifest.jsonl")

    def sources(self) -> list[Path]:
        """Return the feature files that hold what is there already, oldest first."""
        return [path for path in dict.fromkeys([self.path, self.folder]) if path.exists()]

    def read(self) -> Features:
        """Open what is there already; empty when nothing is. Raises BadFeatureFile for a damaged file."""
        sources = [path for path in self.sources() if path.is_file() or read_ledger(path)]
        return Features([read_part(file) for source in sources for file in part_files(source)])

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the output for this process, and tidy up what dead ones left. Raises BadFeatureFile if it is taken."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / f".lock{self.share}", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise BadFeatureFile(
                f"cannot write to {self.folder}: {error.strerror}; choose another --out or mend its rights"
            ) from error
        try:
            _lock(lock, self.path)
            remove_stale(self.folder)
            remove_stale(self.path.parent)
            self.adopt()
            yield
        finally:
            os.close(lock)
            self._remove_if_empty()

    def _remove_if_empty(self) -> None:
        if self.is_file and self.folder.is_dir() and all(f.name.startswith(".lock") for f in self.folder.iterdir()):
            shutil.rmtree(self.folder)

    def adopt(self) -> None:
        """List shards that workers wrote and no ledger has yet: a run that was killed had no time to."""
        listed = ledger_entries(self.folder)
        found = sorted(self.folder.glob(f"{self._prefix}*.h5"))
        lines = [_ledger_line(file) for file in found if (file.name, file.stat().st_mtime_ns) not in listed]
        if not any(lines):
            return
        with self._ledger.open("a", encoding="utf-8") as ledger:
            ledger.writelines(lines)
            ledger.flush()
            os.fsync(ledger.fileno())

    def drop(self, streams: frozenset[str]) -> None:
        """Take `streams` out of the shards."""
        for file in self.folder.glob(f"{self._prefix}*.h5"):
            part = read_part(file)
            left = _without(part, streams)
            if not left.streams:
                file.unlink()
            elif len(left.streams) < len(part.streams):
                fold([left], file, part.attrs)
        self.adopt()

    def finish(self, manifest: Manifest, attrs: Mapping[str, Any], dropped: frozenset[str]) -> None:
        """Bring shards and tables into their final form; streams in `dropped` are not taken from the old file."""
        tables = self.folder / "tables.h5"
        write_tables(tables, attrs, manifest)
        self.adopt()
        if not self.is_file or self.share:
            return
        old = [_without(read_part(self.path), dropped)] if self.path.exists() else []
        shards = [read_part(self.folder / name) for name in read_ledger(self.folder)]
        if shards or not old or not same_tables(tables, self.path):
            fold([read_part(tables), *old, *shards], self.path, attrs)
        shutil.rmtree(self.folder)


def _without(part: Part, streams: frozenset[str]) -> Part:
    left = {name: stream for name, stream in part.streams.items() if name not in streams}
    return Part(part.path, part.attrs, part.videos, left, part.tables)


def _lock(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadFeatureFile(f"another run is writing {path}; wait for it, or give this one another --out") from None


def _ledger_line(file: Path) -> str:
    try:
        part = read_part(file)
    except BadFeatureFile as error:
        log.warning("%s; set aside, its videos are extracted again", error)
        file.replace(file.with_name(f"{file.name}.damaged"))
        return ""
    rows = {name: stream["rows"] for name, stream in part.streams.items()}
    entry = {"shard": file.name, "written": file.stat().st_mtime_ns, "videos": len(part.videos["id"]), "rows": rows}
    return json.dumps(entry) + "\n"
