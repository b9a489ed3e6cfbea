"""Extract: videos to rows of frozen networks, all networks in one decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipeline.records import Outcome

if TYPE_CHECKING:
    from pipeline.output import Output
    from pipeline.plan import Item, Plan


@dataclass(frozen=True, kw_only=True)
class Extract:
    """Extract features from the videos of a data set into a feature file."""

    dataset: str
    """Data set: `pipeline list` names them."""
    root: str = ""
    """Folder (for `files` also a glob or a table) of the data set; default $DATA_ROOT/DATASET, data/DATASET."""
    videos: Path | None = None
    """Folder of the media files, where the annotations lie elsewhere."""
    extractor: tuple[str, ...] = ("resnet152", "i3d_x101", "s3d_howto100m")
    """Networks, as NAME or NAME:PRESET, separated by commas; all share one decode."""
    out: Path = Path("features.h5")
    """Feature file to write, or a folder to keep shards in."""
    weights: tuple[str, ...] = ()
    """NAME=FILE for a checkpoint of your own; 'random' for untrained networks."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    dtype: Literal["float16", "float32"] = "float16"
    """Type of the stored rows; a row beyond its range is an error."""
    autocast: bool = False
    """Run the networks in half precision: faster on a GPU, other features."""
    batch: int = 0
    """Rows in one forward pass; 0 takes each preset's own."""
    compile: bool = False
    """Networks that see one frame size through torch.compile: a slow start in each worker. No gain on a CPU."""
    decoders: int = 0
    """Videos that a worker decodes at once; 0 takes one, and with a GPU as many as it has processors for each."""
    hwaccel: Literal["none", "auto", "cuda"] = "none"
    """Decode on the GPU what its decoder knows (NVDEC); frames are scaled as ever. auto: where ffmpeg can."""
    limit: int | None = None
    """Only the first N videos."""
    dedup: bool = False
    """Leave out captions that repeat another of their clip."""
    allow_pickle: bool = False
    """Read annotations that are a pickle: its dicts, lists, texts, numbers and arrays; nothing in it is run."""
    part: str = ""
    """I/N: only every N-th video from the I-th; run once more without it to fold the parts together."""
    retry_failed: bool = False
    """Also try again what failed before."""
    force: bool = False
    """Make the named streams anew. With other settings than those there, this takes whole streams."""
    chunk_seconds: float = 0.0
    """Seconds of video that one task takes, makes a shard of, and a killed worker loses; 0 takes 120, and more, up to
    3,600, where a data set would make over 20,000 shards."""

    def items(self) -> Sequence[Item]:
        """Return the videos that lack one of the streams."""
        return plan_of(self).items

    def work(self, chunk: Sequence[Item]) -> list[Outcome]:
        """Decode and embed a few videos and write them as one shard."""
        from pipeline.extraction import extract

        return extract(self, chunk, output_of(self))

    def save(self, outcomes: Sequence[Outcome]) -> None:
        """Fold the shards into the feature file."""
        from pipeline.output import current
        from pipeline.provenance import file_attrs
        from pipeline.store import Features

        plan, output = plan_of(self), output_of(self)
        output.adopt()
        failed = [outcome for outcome in outcomes if outcome.status == "failed"]
        if failed:
            from pipeline.extraction import record_failures

            known = (current(part, plan.wanted) for part in output.parts())
            record_failures(self, plan.items, failed, output, Features(known))  # which nobody holds during the fold
        output.finish(file_attrs(plan.manifest.dataset), plan.wanted)


def output_of(stage: Extract) -> Output:
    """Return where the results go."""
    from pipeline.output import Output

    return Output(stage.out, stage.part.replace("/", "of"))


@lru_cache(maxsize=1)
def plan_of(stage: Extract) -> Plan:
    """Return what is to be done. Raises PipelineError for whatever makes that impossible."""
    from pipeline.plan import make_plan

    return make_plan(stage, output_of(stage))
