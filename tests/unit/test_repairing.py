"""Damaged feature files: what verify says, what repair takes out, and what is refused."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.errors import BadFeatureFile
from pipeline.output import Output
from pipeline.parts import part_files, read_part
from pipeline.records import Caption, Clip, Manifest, Video
from pipeline.repairing import repair
from pipeline.report import verify
from pipeline.store import Features
from tests.unit.features import ATTRS, rows, shard, video
from tests.whole.command import error, inside

MANIFEST = Manifest(
    "test", (Video("v1", None), Video("v2", None)), (Clip("c", "v1"),), (Caption("c", "c", "a cat sleeps"),)
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    output = Output(tmp_path / "features.h5")
    with output.owned():
        output.begin(MANIFEST, ATTRS)
        shard(output.shard("a"), video("v1", streams=("a:x", "b:y")), video("v2", 2, seed=7, streams=("a:x", "b:y")))
        output.finish(ATTRS, {})
    assert not verify(output.path)
    return output.path


def flip(file: Path, at: int, bit: int = 3) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


def place_of(file: Path, stream: str, row: int) -> int:
    found = read_part(file).streams[stream]
    return int(found["at"] + row * found["dim"] * found["dtype"].itemsize)


def test_flipped_rows_are_named_and_taken_out_and_the_others_stay(file: Path) -> None:
    flip(file, place_of(file, "a:x", 3))
    expected = "stream a:x, video v2: rows do not match their checksum"
    assert any(line.startswith(expected) for line in verify(file))
    assert "video v2: its rows were damaged" in inside("repair", file)[0]
    with Features.open(file) as features:
        assert features.stream("a:x").status.tolist() == [1, 0]
        assert features.stream("b:y").status.tolist() == [1, 1]
        np.testing.assert_array_equal(features.rows("a:x", "v1"), rows(3))
        np.testing.assert_array_equal(features.rows("b:y", "v2"), rows(2, seed=8))
    assert not verify(file)
    assert [f.name for f in file.parent.iterdir()] == ["features.h5"]


def test_a_sound_file_is_left_as_it_is(file: Path) -> None:
    before = file.read_bytes()
    assert repair(file) == []
    assert file.read_bytes() == before


def test_damage_outside_the_rows_is_refused(file: Path) -> None:
    at = file.read_bytes().index(b"settings") + 40
    flip(file, at)
    assert "restore it from a copy" in error("repair", file)


def test_a_changed_caption_is_noticed(file: Path) -> None:
    flip(file, file.read_bytes().index(b"a cat sleeps") + 2)
    assert verify(file) == ["captions: does not match its checksum; restore the file, or run again what made it"]


def test_a_run_that_writes_the_file_is_not_disturbed(file: Path) -> None:
    with Output(file).owned(), pytest.raises(BadFeatureFile, match="another run is writing"):
        repair(file)


def test_a_damaged_shard_is_named_when_it_is_folded_and_repaired(tmp_path: Path) -> None:
    output = Output(tmp_path / "features.h5")
    bad = shard(output.shard("bad"), video("v1"), video("v2", seed=3))
    flip(bad, place_of(bad, "a:x", 1))
    with output.owned(), pytest.raises(BadFeatureFile, match=r"shard-bad\.h5: rows of v1 .*pipeline repair"):
        output.begin(MANIFEST, ATTRS)
        output.finish(ATTRS, {})
    assert len(repair(bad)) == 1
    with output.owned():
        output.begin(MANIFEST, ATTRS)
        output.finish(ATTRS, {})
    with Features.open(output.path) as features:
        assert features.stream("a:x").status.tolist() == [0, 1]


def test_a_folder_of_shards_is_repaired(tmp_path: Path) -> None:
    output = Output(tmp_path / "features")
    with output.owned():
        output.begin(MANIFEST, ATTRS)
        bad = shard(output.shard("one"), video("v1"))
        shard(output.shard("two"), video("v2"))
        output.finish(ATTRS, {})
    flip(bad, place_of(bad, "a:x", 0))
    assert len(repair(output.path)) == 1
    assert [f.name for f in part_files(output.path)] == ["tables.h5", "shard-one.h5", "shard-two.h5"]
    with Features.open(output.path) as features:
        assert features.stream("a:x").status.tolist() == [0, 1]


def test_a_file_of_before_seals_is_read(file: Path) -> None:
    with h5py.File(file, "r+") as old:
        del old.attrs["seal"]
        old.visititems(lambda _, thing: thing.attrs.pop("seal", None) and None)
    assert verify(file) == []
