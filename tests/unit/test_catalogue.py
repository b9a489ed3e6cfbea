"""`pipeline weights` and what it stands on: every checkpoint, listed, fetched, added and checked."""

import hashlib
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

import extractors
from extractors import catalogue, fitting, weights
from tests.unit.test_weights import _file, refused
from tests.whole.command import error, inside

S3D = "s3d_howto100m"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Empty caches."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    return tmp_path / "hub/checkpoints"


def _save(path, name):
    """Write a checkpoint of zeros that fits the preset called `name`."""
    torch.save(_shapes(name), path)
    return path


def _shapes(name):
    return {key: torch.zeros((), dtype=value.dtype).expand(value.shape) for key, value in fitting.layout(name).items()}


def _changed(name, **changes):
    """Return a checkpoint as if it had been published otherwise."""
    checkpoint = catalogue.named(name)
    return replace(checkpoint, weights=replace(checkpoint.weights, **changes))


# What is known


def test_every_preset_s_file_is_listed_once():
    found = [catalogue.facts(checkpoint) for checkpoint in catalogue.known()]
    files = [row["file"] for row in found]
    presets = [p for name in extractors.names() for p in extractors.get(name).PRESETS.values() if p.weights.file]
    assert len(files) == len(set(files))
    assert set(files) == {p.weights.file for p in presets} | {"s3d_dict.npy", "efficientnet-lite0-57934424.pth"}
    assert {name for row in found for name in row["presets"]} == {p.name for p in presets} | {
        "timm:tf_efficientnet_lite0"
    }


def test_each_says_licence_size_digest_and_addresses_or_that_they_are_unknown():
    for row in map(catalogue.facts, catalogue.known()):
        assert row["license"]
        assert row["official"] or "package" in row["note"]
        assert row["mib"] is None or 1 < row["mib"] < 5000
        assert row["sha256"] is None or (len(row["sha256"]) >= 8 and int(row["sha256"], 16))
        assert row["here"] is None or row["file"] == "efficientnet-lite0-57934424.pth"


def test_the_two_dead_addresses_are_said_to_be_dead():
    row = catalogue.facts(catalogue.named(S3D))
    assert [one["dead"] for one in row["official"]] == [True, True]
    assert row["mirrors"]
    assert row["sha256"] is None


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("s3d_howto100m", "s3d_howto100m.pth"),
        ("s3d_howto100m:coot", "s3d_howto100m.pth"),
        ("s3d_dict.npy", "s3d_dict.npy"),
        ("resnet152", "resnet152-394f9c45.pth"),
        ("timm:resnet18.a1_in1k", "timm-resnet18.a1_in1k.safetensors"),
        ("timm:tf_efficientnet_lite0", "efficientnet-lite0-57934424.pth"),
        ("torchvision_video:s3d", "s3d-d76dad2f.pth"),
    ],
)
def test_a_checkpoint_is_found_by_file_preset_and_extractor(name, file):
    assert catalogue.named(name).weights.file == file


def test_names_that_are_not_there_are_refused():
    refused(lambda: catalogue.named("s3d_howto10m"), "no checkpoint or preset 's3d_howto10m'", "there are: ")
    refused(lambda: catalogue.named("colors"), "colors:resnet152 has no weights")


# Adding


def test_a_file_of_the_published_digest_is_added(tmp_path, cache, caplog):
    file, digest = _file(tmp_path, "mine.pth", b"weights")
    checkpoint = _changed("resnet152", sha256=digest[:8])
    path, verdict = catalogue.add(checkpoint, file)
    assert (path, path.read_bytes()) == (cache / "resnet152-394f9c45.pth", b"weights")
    assert verdict == f"as published, by sha256 {digest[:8]}"
    assert "WARNING" not in caplog.text
    assert catalogue.facts(checkpoint)["here"] == "cache"
    refused(lambda: catalogue.add(catalogue.named("resnet152"), file), digest, "not 394f9c45", f"NAME={file}")


def test_a_file_without_a_published_digest_is_added_by_structure_with_a_warning(tmp_path, cache, caplog):
    file = _save(tmp_path / "mine.pth", S3D)
    path, verdict = catalogue.add(catalogue.named(S3D), file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert verdict == f"fits by structure alone; its sha256 is {digest}"
    assert "s3d_howto100m.pth has no published sha256" in caplog.text
    assert (cache / "s3d_howto100m.pth.sha256").read_text() == f"{digest}  s3d_howto100m.pth\n"
    assert weights.find(extractors.preset(S3D)) == weights.Found("cache", path, digest)
    assert "unchanged since it came" in catalogue.check(catalogue.named(S3D), path)


def test_a_file_that_does_not_fit_is_not_added(tmp_path, cache):
    state = _shapes(S3D)
    del state["mixed_5c.conv_b0.bn1.weight"]
    torch.save(state, tmp_path / "less.pth")
    (tmp_path / "page.pth").write_bytes(b"<html>404</html>")
    for name, why in (
        ("less.pth", "1 keys missing, the first mixed_5c.conv_b0.bn1.weight"),
        ("page.pth", "no checkpoint"),
    ):
        refused(lambda name=name: catalogue.add(catalogue.named(S3D), tmp_path / name), name, why)
    refused(lambda: catalogue.add(catalogue.named(S3D), tmp_path / "absent.pth"), "absent.pth is no file")
    assert not cache.exists() or list(cache.iterdir()) == []


def test_the_name_of_a_sibling_is_not_added(tmp_path):
    file = _save(tmp_path / "X3D_M.pyth", "pytorchvideo:x3d_s")  # the two have equal layouts
    refused(lambda: catalogue.add(catalogue.named("pytorchvideo:x3d_s"), file), "another checkpoint: X3D_S.pyth")


def test_the_text_tower_s_words_are_checked_too(tmp_path, cache):
    np.save(tmp_path / "words.npy", np.array(["pan", "stir"]))
    path, _ = catalogue.add(catalogue.named("s3d_dict.npy"), tmp_path / "words.npy")
    assert path == cache / "s3d_dict.npy"
    np.save(tmp_path / "numbers.npy", np.arange(3))
    refused(lambda: catalogue.add(catalogue.named("s3d_dict.npy"), tmp_path / "numbers.npy"), "no word list of S3D")


# Fetching


def test_addresses_are_tried_in_turn_and_what_comes_is_checked(tmp_path, cache, caplog):
    caplog.set_level(logging.WARNING)
    good = _save(tmp_path / "good.pth", "pytorchvideo:x3d_s")
    (tmp_path / "page.pth").write_bytes(b" <html>moved</html>")
    (tmp_path / "other.pth").write_bytes(b"no checkpoint")
    addresses = [(tmp_path / name).as_uri() for name in ("absent.pth", "page.pth", "other.pth", "good.pth")]
    first, *others = addresses
    checkpoint = _changed("pytorchvideo:x3d_s", url=first, dead=(first,), mirrors=tuple(others))
    path, verdict = catalogue.fetch(checkpoint)
    assert path.read_bytes() == good.read_bytes()
    assert "by structure" in verdict
    assert "no published sha256" in caplog.text
    assert catalogue.fetch(checkpoint)[0] == path  # it is here
    only = replace(checkpoint, weights=replace(checkpoint.weights, file="elsewhere.pth", mirrors=tuple(others[:2])))
    refused(
        lambda: catalogue.fetch(only), "absent.pth cannot be downloaded", "a web page came", "is no checkpoint",
        "`pipeline weights add FILE elsewhere.pth`",
    )  # fmt: skip
    assert sorted(file.name for file in cache.iterdir()) == ["X3D_S.pyth", "X3D_S.pyth.sha256"]


def test_a_page_is_named_and_not_downloaded(tmp_path, monkeypatch):
    asked = []

    def offline(url, timeout):
        asked.append(url)
        raise OSError("gone")

    monkeypatch.setattr(weights, "urlopen", offline)
    message = refused(lambda: catalogue.fetch(catalogue.named(S3D)), "gone", "look at https://github.com/")
    assert len(asked) == 2  # the publisher's
    assert all(url in message for url in asked)


# Checking


def test_damage_is_found(cache, tmp_path):
    catalogue.add(catalogue.named(S3D), _save(tmp_path / "mine.pth", S3D))
    content = bytearray((cache / "s3d_howto100m.pth").read_bytes())
    content[-1] ^= 1
    (cache / "s3d_howto100m.pth").write_bytes(content)
    refused(
        lambda: catalogue.check(catalogue.named(S3D), cache / "s3d_howto100m.pth"),
        "has changed since it came",
        "add it",
    )
    _file(cache, "resnet152-394f9c45.pth")
    refused(
        lambda: catalogue.check(catalogue.named("resnet152"), cache / "resnet152-394f9c45.pth"),
        "not 394f9c45",
        "delete",
    )


def test_a_file_that_other_programs_put_there_is_known_by_structure(cache):
    cache.mkdir(parents=True)
    _save(cache / "s3d_howto100m.pth", S3D)
    assert "by structure alone" in catalogue.check(catalogue.named(S3D), cache / "s3d_howto100m.pth")


# The command


def test_the_command_lists_fetches_adds_and_checks(tmp_path, cache):
    rows = json.loads(inside("weights", "--json")[0])
    by_file = {row["file"]: row for row in rows}
    assert by_file["s3d_howto100m.pth"]["here"] is None
    assert by_file["resnet152-394f9c45.pth"]["sha256"] == "394f9c45"
    text = inside("weights")[0]
    assert "s3d_howto100m.pth: 119.2 MiB, licence Apache-2.0, no sha256 published; not here" in text
    assert text.count("(DEAD)") == 4  # two files at two addresses
    file = _save(tmp_path / "mine.pth", S3D)
    out, err = inside("weights", "add", file, S3D)
    assert "fits by structure alone" in out
    assert "WARNING" in err
    assert f"here: {cache / 's3d_howto100m.pth'} (cache)" in inside("weights")[0]
    assert "unchanged since it came" in inside("weights", "fetch", "s3d_howto100m:coot")[0]  # nothing to download
    assert "1 right, 0 wrong, 1 not here" in inside("weights", "check", S3D, "resnet152")[0]
    (cache / "s3d_howto100m.pth").write_bytes(b"damaged")
    out, _ = inside("weights", "check", S3D, code=1)
    assert "WRONG: " in out
    assert "0 right, 1 wrong, 0 not here" in out


def test_the_command_s_errors_are_one_line(tmp_path):
    (tmp_path / "text.pth").write_text("hello")
    assert "no checkpoint or preset 'nobody'" in error("weights", "fetch", "nobody")
    assert "text.pth (5 bytes) is no checkpoint" in error("weights", "add", tmp_path / "text.pth", S3D)
