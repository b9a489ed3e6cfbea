from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.errors import BadFeatureFile, PresetMismatch, UnknownName
from pipeline.parts import read_part
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shards import fold, verify_file
from pipeline.store import Features
from pipeline.tables import write_tables
from tests.unit.features import ATTRS, head, rows, shard, video


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    file = shard(tmp_path / "s.h5", video("v1", 3), video("v2", 5, seed=7))
    with Features.open(file) as features:
        assert list(features.videos["id"]) == ["v1", "v2"]
        np.testing.assert_array_equal(features.rows("a:x", "v1"), rows(3))
        np.testing.assert_array_equal(features.rows("a:x", "v2"), rows(5, seed=7))
        np.testing.assert_array_equal(features.rows("a:x", "v2", 1.0, 2.0), rows(5, seed=7)[1:3])


def test_six_lines_of_h5py_read_it(tmp_path: Path) -> None:
    file = shard(tmp_path / "s.h5", video("v1", 3), video("v2", 5, seed=7))
    with h5py.File(file) as f:
        stream = f["streams/a:x"]
        at = list(f["videos/id"].asstr()).index("v2")
        first, last = stream["offsets"][at : at + 2]
        np.testing.assert_array_equal(stream["values"][first:last], rows(5, seed=7))
        assert stream["values"].chunks is None
        assert not stream.attrs["l2"]


def test_failed_videos_are_listed_without_rows(tmp_path: Path) -> None:
    with Features.open(shard(tmp_path / "s.h5", video("v1"), video("v2", status="failed"))) as features:
        stream = features.stream("a:x")
        assert list(stream.status) == [1, 3]
        assert stream.reason[1] == "v2 was failed"
        assert features.rows("a:x", "v2").shape == (0, 4)
        with pytest.raises(UnknownName, match="a:x"):
            features.stream("b:y")


def test_fold_orders_by_the_tables_and_lets_later_parts_win(tmp_path: Path) -> None:
    manifest = Manifest("test", tuple(Video(v, None) for v in ("v1", "v2", "v3", "v4")))
    write_tables(tmp_path / "tables.h5", ATTRS, manifest)
    old = shard(tmp_path / "old.h5", video("v3", 2), video("v1", status="failed"))
    new = shard(tmp_path / "new.h5", video("v1", 4, seed=9), video("v2", 1, streams=("b:y",)))
    fold([read_part(f) for f in (tmp_path / "tables.h5", old, new)], tmp_path / "f.h5", ATTRS)
    with Features.open(tmp_path / "f.h5") as features:
        assert list(features.videos["id"]) == ["v1", "v2", "v3", "v4"]
        assert list(features.stream("a:x").status) == [1, 0, 1, 0]
        assert list(features.stream("b:y").status) == [0, 1, 0, 0]
        np.testing.assert_array_equal(features.rows("a:x", "v1"), rows(4, seed=9))
        np.testing.assert_array_equal(features.rows("a:x", "v3"), rows(2))
    assert sorted(f.name for f in tmp_path.iterdir()) == ["f.h5", "new.h5", "old.h5", "tables.h5"]


def test_a_fold_does_not_depend_on_how_videos_were_sharded(tmp_path: Path) -> None:
    videos = [video(f"v{i}", 1 + i, seed=i, streams=("a:x", "b:y")) for i in range(6)]
    write_tables(tmp_path / "t.h5", ATTRS, Manifest("test", tuple(Video(v.video, None) for v in videos)))
    one = [shard(tmp_path / "one.h5", *reversed(videos))]
    many = [shard(tmp_path / f"s{i}.h5", *videos[i::3]) for i in (2, 0, 1)]
    for name, files in (("x.h5", one), ("y.h5", many)):
        fold([read_part(f) for f in (tmp_path / "t.h5", *files)], tmp_path / name, ATTRS)
    assert (tmp_path / "x.h5").read_bytes() == (tmp_path / "y.h5").read_bytes()


def test_tables_refer_by_position(tmp_path: Path) -> None:
    manifest = Manifest(
        "test",
        (Video("v1", None), Video("v2", None)),
        (Clip("c1", "v2"), Clip("c2", "v1", 1.0, 2.5)),
        (Caption("k1", "c2", "naïve café"), Caption("k2", "c1", "two")),
        (Part("s", "train", ("c2",), ("k1",)), Part("s", "test", ("c1",), ("k2",))),
    )
    write_tables(tmp_path / "t.h5", ATTRS, manifest)
    with h5py.File(tmp_path / "t.h5") as f:
        assert list(f["clips/video"]) == [1, 0]
        assert np.isnan(f["clips/end"][0])
        assert f["clips/end"][1] == 2.5
        assert list(f["captions/clip"]) == [1, 0]
        assert list(f["captions/text"].asstr()) == ["naïve café", "two"]
        assert list(f["splits/s/train/captions"]) == [0]


@pytest.mark.parametrize("keep", [0, 100, 2000, -1])
def test_a_truncated_file_is_named(tmp_path: Path, keep: int) -> None:
    file = shard(tmp_path / "s.h5", video("v1", 200))
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(BadFeatureFile, match=r"s\.h5"):
        verify_file(file)


def test_a_flipped_bit_is_found_with_stream_and_video(tmp_path: Path) -> None:
    file = shard(tmp_path / "s.h5", video("v1", 200), video("v2", 200, seed=5))
    at = read_part(file).streams["a:x"]["at"] + 200 * 4 * 2 + 5  # in the first rows of v2
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.raises(BadFeatureFile, match=r"v2 in stream a:x"):
        verify_file(file)


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(BadFeatureFile, match="no feature file"):
        read_part(tmp_path / "none.h5")
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["x"] = 1
    with pytest.raises(BadFeatureFile, match="format none"):
        read_part(tmp_path / "other.h5")


def test_rows_of_another_file_of_that_name_do_not_count(tmp_path: Path) -> None:
    old = shard(tmp_path / "old.h5", video("v1", 3, streams=("a:x", "b:y")))
    new = shard(tmp_path / "new.h5", video("v1", 5, source_size=9))
    with Features([read_part(old), read_part(new)]) as features:
        assert list(features.stream("a:x").count) == [5]
        assert list(features.stream("b:y").status) == [0]


def test_a_failure_of_one_stream_leaves_what_is_known_of_the_video(tmp_path: Path) -> None:
    old = shard(tmp_path / "old.h5", video("v1", 3, streams=("b:y",), width=320))
    new = shard(tmp_path / "new.h5", video("v1", status="failed", decoded=0.0))
    with Features([read_part(old), read_part(new)]) as features:
        assert features.videos["width"][0] == 320
        assert (features.stream("a:x").status[0], features.stream("b:y").status[0]) == (3, 1)


def test_parts_of_other_settings_do_not_mix(tmp_path: Path) -> None:
    one = shard(tmp_path / "one.h5", video("v1"))
    two = shard(tmp_path / "two.h5", video("v2", streams=("a:x",)), **{"a:x": head(fps=2.0)})
    with pytest.raises(PresetMismatch, match=r"two\.h5 holds stream a:x with other settings"):
        Features([read_part(one), read_part(two)])
