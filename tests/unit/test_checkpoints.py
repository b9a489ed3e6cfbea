import io
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import extractors
from extractors import weights
from tests.unit.test_weights import X3D, refused


def _shapes(state):
    """Zeros in the shapes of `state` that take no space in a file."""
    return {key: torch.zeros((), dtype=value.dtype).expand(value.shape) for key, value in state.items()}


def _ours(name):
    preset = extractors.preset(name)
    with torch.device("meta"):
        network = extractors.get(preset.extractor).network(preset)
    return _shapes(network.state_dict())


def _torchvision(builder):
    with torch.device("meta"):
        network = builder(weights=None)
    return _shapes(network.state_dict())


def _load(preset, path):
    network = extractors.get(preset.extractor).network(preset)
    weights.load(preset, network, weights.Found("file", path))
    return network.state_dict()


@pytest.fixture(scope="module")
def x3d():
    """A state dict of X3D-S with its head, all entries different from a new network's."""
    state = weights.make(X3D, weights.Found("random")).state_dict()
    generator = torch.Generator().manual_seed(1)
    filled = {
        key: torch.rand(value.shape, generator=generator) if value.is_floating_point() else value + 7
        for key, value in state.items()
    }
    return filled | {"blocks.5.proj.weight": torch.ones(400, 2048), "blocks.5.proj.bias": torch.ones(400)}


@pytest.mark.parametrize("wrapper", ["", "state_dict", "model_state"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_usual_layouts_load(tmp_path, x3d, wrapper, prefix):
    state = {prefix + key: value for key, value in x3d.items()}
    content = {"epoch": 3, "arch": "x3d", wrapper: state, "optimizer": {"lr": 0.1}} if wrapper else state
    torch.save(content, tmp_path / "net.pth")
    loaded = _load(X3D, tmp_path / "net.pth")
    assert all(torch.equal(value, x3d[key]) for key, value in loaded.items())


def test_safetensors_and_torch_s_old_format_load(tmp_path, x3d):
    save_file(x3d, tmp_path / "net.safetensors")
    torch.save(x3d, tmp_path / "net.pth", _use_new_zipfile_serialization=False)
    for name in ("net.safetensors", "net.pth"):
        loaded = _load(X3D, tmp_path / name)
        assert all(torch.equal(value, x3d[key]) for key, value in loaded.items())


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(tmp_path, x3d, kind):
    torch.save({k: v.to(kind) if v.is_floating_point() else v for k, v in x3d.items()}, tmp_path / "net.pth")
    loaded = _load(X3D, tmp_path / "net.pth")
    key = "blocks.5.pool.post_conv.weight"
    assert loaded[key].dtype == torch.float32
    assert torch.equal(loaded[key], x3d[key].to(kind).float())


def test_hara_s_checkpoint_of_2018_loads(tmp_path):
    preset = extractors.preset("i3d_x101:hara")
    state = {f"module.{k}": v for k, v in _ours("i3d_x101").items() if not k.endswith("num_batches_tracked")}
    torch.save({"arch": "resnext-101", "state_dict": state}, tmp_path / "net.pth")
    assert float(_load(preset, tmp_path / "net.pth")["layer4.2.conv3.weight"].abs().max()) == 0


def test_random_weights_are_the_same_everywhere_and_touch_nobody_s_numbers():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = weights.make(X3D, weights.Found("random"))
    assert torch.equal(torch.rand(3), expected)
    second = weights.make(X3D, weights.Found("random"))
    assert all(torch.equal(value, second.state_dict()[key]) for key, value in first.state_dict().items())


def _kinetics_s3d():
    from torchvision.models.video import s3d

    return _torchvision(s3d)


def _resnet(depth):
    from torchvision import models

    return _torchvision(getattr(models, f"resnet{depth}"))


def _milnce():
    state = _ours("s3d_howto100m")
    return {f"module.{k}": v for k, v in state.items()} | {
        "module.conv1.conv1.weight": torch.zeros(()).expand(64, 3, 3, 7, 7)
    }


def _key(name, *shape):
    return {name: torch.zeros(()).expand(shape), "logits.bias": torch.zeros(400)}


FOREIGN = {
    "torchvision s3d": ("s3d_howto100m", _kinetics_s3d, "torchvision_video:s3d"),
    "kylemin s3d": ("s3d_howto100m", lambda: _key("base.0.conv_s.weight", 64, 3, 1, 7, 7), "S3D trained on Kinetics"),
    "mil-nce s3d": ("s3d_howto100m", _milnce, "space_to_depth=False"),
    "inception i3d": ("i3d_x101", lambda: _key("Conv3d_1a_7x7.conv3d.weight", 64, 3, 7, 7, 7), "I3D (Inception)"),
    "clip": ("resnet152", lambda: _key("visual.class_embedding", 768), "CLIP"),
    "resnet50": ("resnet152", lambda: _resnet(50), "6 blocks in layer3 (resnet50)"),
    "resnet101": ("resnet152", lambda: _resnet(101), "23 blocks in layer3 (resnet101)"),
    "our i3d": ("resnet152", lambda: _ours("i3d_x101"), "i3d_x101:howto100m"),
    "our s3d": ("i3d_x101", lambda: _ours("s3d_howto100m"), "s3d_howto100m:univl"),
    "our resnet152": ("s3d_howto100m", lambda: _resnet(152), "resnet152:howto100m"),
    "our slowfast": ("pytorchvideo:i3d_r50", lambda: _ours("pytorchvideo:slowfast_r50"), "pytorchvideo:slowfast_r50"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_another_network_s_checkpoint_is_named(tmp_path, case):
    name, make, looks = FOREIGN[case]
    torch.save(make(), tmp_path / "net.pth")
    preset = extractors.preset(name)
    refused(lambda: _load(preset, tmp_path / "net.pth"), f"is no checkpoint of {preset.name}: it looks like", looks)


def test_an_unknown_network_is_shown_by_its_keys(tmp_path):
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "net.pth")
    refused(
        lambda: _load(X3D, tmp_path / "net.pth"), "is no checkpoint of pytorchvideo:x3d_s: its keys begin weight, bias"
    )


def test_missing_unknown_and_misshapen_keys_are_named_and_counted(tmp_path, x3d):
    state = dict(x3d)
    for key in ("blocks.0.norm.weight", "blocks.5.pool.pre_conv.weight"):
        del state[key]
    state |= {"extra.weight": torch.ones(1), "blocks.5.pool.post_conv.weight": torch.ones(10, 432, 1, 1, 1)}
    torch.save(state, tmp_path / "net.pth")
    refused(
        lambda: _load(X3D, tmp_path / "net.pth"),
        "is a checkpoint of pytorchvideo:x3d_s, but a wrong or incomplete one",
        "2 keys missing, the first blocks.0.norm.weight",
        "1 keys unknown, the first extra.weight",
        "the first blocks.5.pool.post_conv.weight (10, 432, 1, 1, 1), needed (2048, 432, 1, 1, 1)",
    )


def test_resnet152_without_a_key_is_still_resnet152(tmp_path):
    state = _resnet(152)
    del state["layer4.2.conv3.weight"]
    torch.save(state, tmp_path / "net.pth")
    preset = extractors.preset("resnet152")
    refused(
        lambda: _load(preset, tmp_path / "net.pth"), "but a wrong or incomplete one (1 keys missing, the first layer4.2"
    )


def test_a_fine_tuned_last_layer_is_a_difference(tmp_path):
    state = _ours("i3d_x101") | {"fc.weight": torch.zeros(51, 2048), "fc.bias": torch.zeros(51)}
    torch.save(state, tmp_path / "net.pth")
    preset = extractors.preset("i3d_x101")
    refused(lambda: _load(preset, tmp_path / "net.pth"), "but a wrong or incomplete one", "fc.weight (51, 2048)")


def test_integers_are_not_taken_for_weights(tmp_path, x3d):
    torch.save(x3d | {"blocks.0.norm.weight": torch.ones(24, dtype=torch.int8)}, tmp_path / "net.pth")
    refused(lambda: _load(X3D, tmp_path / "net.pth"), "another shape or type, the first blocks.0.norm.weight")


def _truncated():
    file = io.BytesIO()
    torch.save(nn.Linear(50, 50).state_dict(), file)
    return file.getvalue()[:-500]


class _Object:
    """Something a pickle can hold."""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text.pth", b"hello", "(5 bytes) is no checkpoint, or a damaged one"),
        ("page.pth", b"<html>404</html>", "no checkpoint"),
        ("empty.pth", b"", "(0 bytes) is no checkpoint"),
        ("half.pth", _truncated(), "damaged"),
        ("text.safetensors", b"hello", "no checkpoint"),
        ("object.pth", pickle.dumps(_Object()), "no checkpoint"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    refused(lambda: _load(X3D, tmp_path / name), name, message)


def test_a_checkpoint_with_programs_in_it_is_not_opened(tmp_path, x3d):
    torch.save({"state_dict": x3d, "options": _Object()}, tmp_path / "net.pth")
    refused(lambda: _load(X3D, tmp_path / "net.pth"), "holds more than tensors", "_Object", "save its state dict alone")


def test_tensors_without_names_arerefused(tmp_path):
    torch.save([torch.ones(2)], tmp_path / "net.pth")
    refused(lambda: _load(X3D, tmp_path / "net.pth"), "holds no state dict")
