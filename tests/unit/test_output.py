import errno
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.errors import BadFeatureFile
from pipeline.output import Output
from pipeline.parts import read_ledger, read_part
from pipeline.publish import publish
from pipeline.records import Caption, Clip, Manifest, Video
from pipeline.store import Features
from pipeline.tables import captions_of
from tests.unit.features import ATTRS, rows, shard, video

MANIFEST = Manifest("test", (Video("v1", None), Video("v2", None)))


def test_shards_become_one_file_and_go(tmp_path: Path) -> None:
    output = Output(tmp_path / "features.h5")
    with output.owned():
        output.begin(MANIFEST, ATTRS)
        shard(output.shard("one"), video("v1"))
        shard(output.shard("two"), video("v2", seed=3))
        output.finish(ATTRS, {})
    assert [f.name for f in tmp_path.iterdir()] == ["features.h5"]
    with Features.open(tmp_path / "features.h5") as features:
        np.testing.assert_array_equal(features.rows("a:x", "v2"), rows(3, seed=3))


def test_a_folder_of_shards_reads_like_the_file(tmp_path: Path) -> None:
    for output in (Output(tmp_path / "features.h5"), Output(tmp_path / "features")):
        with output.owned():
            output.begin(MANIFEST, ATTRS)
            shard(output.shard("one"), video("v2", 2, seed=1))
            shard(output.shard("two"), video("v1", 4, seed=2))
            output.finish(ATTRS, {})
    with Features.open(tmp_path / "features.h5") as file, Features.open(tmp_path / "features") as folder:
        assert list(file.videos["id"]) == list(folder.videos["id"])
        for name in ("v1", "v2"):
            np.testing.assert_array_equal(file.rows("a:x", name), folder.rows("a:x", name))


def test_shards_of_a_killed_run_are_adopted_and_damaged_ones_set_aside(tmp_path: Path) -> None:
    output = Output(tmp_path / "features.h5")
    shard(output.shard("good"), video("v1"))
    shard(output.shard("torn"), video("v2"))
    torn = output.shard("torn")
    torn.write_bytes(torn.read_bytes()[:1000])
    stale = output.folder / f".shard-x.h5.{os.uname().nodename}-999999.tmp"
    stale.write_bytes(b"half")
    with output.owned():
        assert read_ledger(output.folder) == ["shard-good.h5"]
        assert not stale.exists()
        assert torn.with_name("shard-torn.h5.damaged").exists()


def test_a_torn_ledger_line_is_passed_over(tmp_path: Path) -> None:
    output = Output(tmp_path / "features")
    with output.owned():
        shard(output.shard("one"), video("v1"))
        output.adopt()
        with (tmp_path / "features" / "manifest.jsonl").open("a") as ledger:
            ledger.write('{"shard": "shard-tw')
        assert read_ledger(tmp_path / "features") == ["shard-one.h5"]


def test_a_second_run_on_the_same_output_refuses(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pipeline.output import Output\n"
        "with Output(Path(sys.argv[1])).owned(): print('mine', flush=True); input()"
    )
    args = [sys.executable, "-c", code, str(tmp_path / "features.h5")]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"mine\n"
        with pytest.raises(BadFeatureFile, match="another run is writing"), Output(tmp_path / "features.h5").owned():
            pass
        other.communicate(b"\n")
    with Output(tmp_path / "features.h5").owned():
        pass
    assert list(tmp_path.iterdir()) == []


def test_publish_leaves_nothing_when_the_disk_is_full(tmp_path: Path) -> None:
    with pytest.raises(BadFeatureFile, match="No space left"), publish(tmp_path / "f.h5") as temporary:
        temporary.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_parts_of_a_divided_job_are_folded_by_a_run_without_part(tmp_path: Path) -> None:
    for share, name in (("1of2", "v1"), ("2of2", "v2")):
        output = Output(tmp_path / "features.h5", share)
        with output.owned():
            output.begin(MANIFEST, ATTRS)
            shard(output.shard("s"), video(name, seed=len(share)))
            output.finish(ATTRS, {})
        assert not (tmp_path / "features.h5").exists()
    whole = Output(tmp_path / "features.h5")
    with whole.owned():
        whole.begin(MANIFEST, ATTRS)
        whole.finish(ATTRS, {})
    with Features.open(tmp_path / "features.h5") as features:
        assert list(features.stream("a:x").count) == [3, 3]


def test_a_shard_that_is_written_again_counts_anew(tmp_path: Path) -> None:
    output = Output(tmp_path / "features")
    with output.owned():
        shard(output.shard("a"), video("v1", status="failed"))
        output.adopt()
        shard(output.shard("b"), video("v1", status="failed"), video("v2"))
        output.adopt()
        shard(output.shard("a"), video("v1", 4))
        output.begin(MANIFEST, ATTRS)
        output.finish(ATTRS, {})
    with Features.open(tmp_path / "features") as features:
        assert list(features.stream("a:x").status) == [1, 1]


def test_dropping_a_stream_leaves_the_others(tmp_path: Path) -> None:
    output = Output(tmp_path / "features.h5")
    with output.owned():
        shard(output.shard("both"), video("v1", streams=("a:x", "b:y")))
        shard(output.shard("one"), video("v2"))
        output.drop({"a:x": {"other": "settings"}})
        output.begin(MANIFEST, ATTRS)
        output.finish(ATTRS, {})
    with Features.open(tmp_path / "features.h5") as features:
        assert set(features.streams) == {"b:y"}
        np.testing.assert_array_equal(features.rows("b:y", "v1"), rows(3, seed=1))


def test_a_folder_without_shards_is_no_feature_file(tmp_path: Path) -> None:
    with pytest.raises(BadFeatureFile, match="no feature file in folder"):
        Features.open(tmp_path)


def test_words_in_a_folder_stay_when_a_run_begins_unless_its_captions_are_others(tmp_path: Path) -> None:
    def manifest(text: str) -> Manifest:
        return Manifest("test", (Video("v1", None),), (Clip("v1", "v1"),), (Caption("v1#0", "v1", text),))

    output = Output(tmp_path / "features")
    tables = output.folder / "tables.h5"
    with output.owned():
        output.begin(manifest("a dog"), ATTRS)
        with h5py.File(tables, "r+") as file:
            words = file.create_group("words")
            words["form"] = np.arange(2)
            words.attrs.update(captions=captions_of(file), settings="{}", interest="[]")
        output.begin(manifest("a dog"), ATTRS)
        assert "words" in read_part(tables).tables
        output.begin(manifest("a cat"), ATTRS)
        assert "words" not in read_part(tables).tables
        with h5py.File(tables) as file:
            assert file["captions/text"].asstr()[()].tolist() == ["a cat"]
