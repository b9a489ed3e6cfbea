"""The command `train`: so far it checks that a feature file has all that training needs."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from cyclopts import App, CycloptsError

from pipeline.errors import BadFeatureFile, PipelineError
from pipeline.store import Features

app = App(name="train", help="Feature file to checkpoints and scores.", version_flags=[])


@app.default
def check(*, features: Path) -> int:
    """Check that a feature file has streams, clips, captions and splits. Training methods are not here yet.

    Parameters
    ----------
    features
        A feature file or a folder of shards, as `pipeline run extract` writes it.

    """
    with Features.open(features) as found:
        tables = {name for part in found.parts for name in part.tables}
        lacking = sorted({"clips", "captions", "splits"} - tables) + ([] if found.streams else ["streams"])
        if lacking:
            raise BadFeatureFile(f"{features} lacks {', '.join(lacking)}; extract a data set that has captions")
        for stream in found.streams.values():
            print(f"{stream.name}: {int(stream.count.sum())} rows x {stream.dim}, {stream.rows_per_second:g} a second")
    raise PipelineError("this version checks the feature file and stops here: no training method is implemented yet")


def main() -> None:
    """Run `train`; exit code 2 when the command was wrong."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        sys.exit(int(app(exit_on_error=False, print_error=False, result_action="return_value") or 0))
    except (PipelineError, CycloptsError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
