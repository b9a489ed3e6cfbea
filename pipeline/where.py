"""Where the workers of `pipeline run extract` are: its flags."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.errors import BadSetting


@dataclass(frozen=True, kw_only=True)
class Where:
    """Processes of this machine, or workers elsewhere."""

    workers: int | None = None
    """Worker processes of one thread each; 0 is a plain loop. Default: as many as cores and memory allow,
    or one for each GPU."""
    scheduler: str = ""
    """Address of a Dask scheduler that is already there."""
    cluster: str = ""
    """TOML file of a cluster to start (docs/cluster.md); local-cuda alone is one worker for each GPU here."""
    map_path: tuple[str, ...] = ()
    """FROM=TO: workers elsewhere see files below the folder FROM below TO. May be given several times."""

    @property
    def elsewhere(self) -> bool:
        """Whether workers may be on other machines."""
        return bool(self.scheduler or self.cluster)

    def check(self) -> None:
        """Raise BadSetting for flags that cannot be, or not together."""
        from pipeline.kinds import read
        from pipeline.mapping import maps_of

        if self.workers is not None and self.workers < 0:
            raise BadSetting(f"--workers {self.workers}: expected 0 or more")
        if self.scheduler and self.cluster:
            raise BadSetting("--scheduler is a cluster that is there, --cluster one to start: give one of them")
        if self.workers is not None and self.elsewhere:
            raise BadSetting("--workers is about this machine; leave it out with --scheduler and --cluster")
        if self.map_path and not self.elsewhere:
            raise BadSetting("--map-path is about workers elsewhere; give --scheduler or --cluster")
        maps_of(self.map_path)
        if self.cluster:
            read(self.cluster)
