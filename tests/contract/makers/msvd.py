"""MSVD in small."""

from pathlib import Path

import orjson

from tests.contract.makers import Shuffle

ANNOTATIONS = ["captions_msvd.json"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Eight clips with three captions each, which keep their place, the three lists and the other ids."""
    ids = [f"-a_{n}c_{n}_{n + 10}" for n in range(8)]
    captions = [(name, [f"a caption of {name}", f"another, {n}", "the same everywhere"]) for n, name in enumerate(ids)]
    (root / "captions_msvd.json").write_bytes(orjson.dumps(dict(shuffle(captions))))
    for part, names in {"train": ids[:4], "val": ids[4:5], "test": ids[5:7]}.items():
        (root / f"{part}_list.txt").write_text("\n".join(shuffle(names)) + "\n")
    mapping = [f"{name} vid{n}" for n, name in enumerate(ids, start=1)]
    (root / "youtube_mapping.txt").write_text("\n".join(shuffle(mapping)))
    (root / "vid3.avi").touch()
    (root / "-a_0c_0_10.mp4").touch()
    return root
