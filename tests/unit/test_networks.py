"""Networks that no library has: against their published layers, walked through here one by one, and against peers."""

import math
import re

import pytest
import timm
import torch
from torch.nn import functional as F

import extractors
from extractors import fitting, weights
from extractors.networks.c3d import C3D
from extractors.networks.i3d import InceptionI3D
from extractors.networks.spacetime_vit import SpaceTimeViT, inflate
from extractors.spec import ExtractorError
from tests.deterministic_weights import deterministic_clip, load_deterministic_weights

SMALL = {"width": 48, "depth": 3, "heads": 4, "side": 64}


def _clip(frames, side):
    return torch.from_numpy(deterministic_clip(frames, side, side)).permute(3, 0, 1, 2)[None].float() / 127.5 - 1


def _parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


# I3D. Table 1 and figure 3 of the paper, and the padding of TensorFlow's SAME by its own formula.


def _same(x, kernel, stride):
    pads = []
    for size, k, s in zip(x.shape[2:], kernel, stride, strict=True):
        missing = max((math.ceil(size / s) - 1) * s + k - size, 0)
        pads = [missing // 2, missing - missing // 2, *pads]
    return F.pad(x, pads)


def _unit(state, name, x, stride=(1, 1, 1)):
    kernel = state[f"{name}.conv3d.weight"]
    x = F.conv3d(_same(x, kernel.shape[2:], stride), kernel, stride=stride)
    mean, var, gain, shift = (state[f"{name}.bn.{k}"] for k in ("running_mean", "running_var", "weight", "bias"))
    return F.relu(F.batch_norm(x, mean, var, gain, shift, eps=0.001))


def _pooled(x, kernel, stride):
    return F.max_pool3d(_same(x, kernel, stride), kernel, stride)


def _inception(state, x):
    x = _pooled(_unit(state, "Conv3d_1a_7x7", x, (2, 2, 2)), (1, 3, 3), (1, 2, 2))
    x = _unit(state, "Conv3d_2c_3x3", _unit(state, "Conv3d_2b_1x1", x))
    for stage, pool in (("3bc", (1, 3, 3)), ("4bcdef", (3, 3, 3)), ("5bc", (2, 2, 2))):
        x = _pooled(x, pool, [1 if stage == "3bc" else 2, 2, 2])
        for block in (f"Mixed_{stage[0]}{letter}" for letter in stage[1:]):
            branches = [_unit(state, f"{block}.b0", x)]
            for branch in ("b1", "b2"):
                branches.append(_unit(state, f"{block}.{branch}b", _unit(state, f"{block}.{branch}a", x)))
            branches.append(_unit(state, f"{block}.b3b", _pooled(x, (3, 3, 3), (1, 1, 1))))
            x = torch.cat(branches, 1)
    return F.avg_pool3d(x, (2, 7, 7), 1).mean((2, 3, 4))


@pytest.mark.parametrize("frames", [9, 16])
def test_i3d_is_its_published_layers(frames):
    network = InceptionI3D().eval().requires_grad_(False)
    load_deterministic_weights(network)
    x = _clip(frames, 224)
    ours, theirs = network(x), _inception(network.state_dict(), x)
    assert ours.shape == (1, 1024)
    assert torch.linalg.norm(ours - theirs) < 1e-5 * torch.linalg.norm(theirs)


def test_i3d_and_c3d_have_the_published_numbers_of_parameters():
    with torch.device("meta"):
        assert _parameters(InceptionI3D()) + 1024 * 400 + 400 == 12_697_264
        assert _parameters(C3D()) + 4096 * 101 + 101 == 78_409_573


_OTHER = (
    (r"^Conv3d_", "conv3d_"), (r"^Mixed_", "mixed_"), (r"\.bn\.", ".batch3d."), (r"\.b([12])a\.", r".branch_\1.0."),
    (r"\.b([12])b\.", r".branch_\1.1."), (r"\.b0\.", ".branch_0."), (r"\.b3b\.", ".branch_3.1."),
)  # fmt: skip
"""To the names of the other conversion: `mixed_3b.branch_1.0.batch3d.weight`."""


def _renamed(state, names):
    for pattern, name in names:
        state = {re.sub(pattern, name, key): value for key, value in state.items()}
    return state


def test_both_conversions_of_i3d_have_the_network_s_names():
    preset = extractors.preset("i3d_inception")
    layers = {key: number for number, key in enumerate(fitting.layout(preset.name))}
    for state, head in ((layers, "logits"), (_renamed(layers, _OTHER), "conv3d_0c_1x1")):
        whole = state | {f"{head}.conv3d.weight": -1, f"{head}.conv3d.bias": -1}
        assert extractors.get("i3d_inception").convert(whole, preset) == layers


# C3D


def test_c3d_is_its_published_layers():
    torch.manual_seed(0)
    network = C3D(("fc7", "fc6")).eval().requires_grad_(False)
    state, h = network.state_dict(), _clip(16, 112)
    for names, pool, padding in (
        ("1", (1, 2, 2), 0), ("2", 2, 0), ("3a 3b", 2, 0), ("4a 4b", 2, 0), ("5a 5b", 2, (0, 1, 1)),
    ):  # fmt: skip
        for name in names.split():
            h = F.relu(F.conv3d(h, state[f"conv{name}.weight"], state[f"conv{name}.bias"], padding=1))
        h = F.max_pool3d(h, pool, padding=padding)
    fc6 = F.relu(F.linear(h.reshape(1, 8192), state["fc6.weight"], state["fc6.bias"]))
    fc7 = F.relu(F.linear(fc6, state["fc7.weight"], state["fc7.bias"]))
    torch.testing.assert_close(network(_clip(16, 112)), torch.cat([fc7, fc6], 1), rtol=1e-5, atol=1e-4)


def test_both_conversions_of_c3d_have_the_network_s_names():
    preset = extractors.preset("c3d")
    layers = {key: number for number, key in enumerate(fitting.layout(preset.name))}
    other = _renamed(layers, ((r"^conv([12])\.", r"conv\1a."), (r"^(conv\w+)\.", r"\1.conv.")))
    assert {"conv1a.conv.weight", "conv3b.conv.bias", "fc7.bias"} <= set(other)
    for state in (layers, other):
        assert extractors.get("c3d").convert(state | {"fc8.weight": -1, "fc8.bias": -1}, preset) == layers


@pytest.mark.parametrize(
    ("name", "shape", "cure"),
    [
        ("c3d", (16, 112, 171), "takes 16 frames of 112 x 112"),
        ("c3d", (8, 112, 112), "takes 16 frames of 112 x 112"),
        ("i3d_inception", (16, 256, 256), "takes 9 frames or more of 224 x 224"),
        ("i3d_inception", (8, 224, 224), "takes 9 frames or more of 224 x 224"),
        ("locvtp_vit", (8, 224, 224), "takes (frames, height, width) = (16, 224, 224), not (8, 224, 224)"),
    ],
)
def test_other_clips_are_refused(name, shape, cure):
    with torch.device("meta"):
        network = extractors.get(name).network(extractors.preset(name))
        with pytest.raises(ExtractorError) as caught:
            network(torch.zeros(1, 3, *shape))
    assert cure in str(caught.value)


# Divided space-time attention


def _image_vit(width, depth, heads, side):
    vit = timm.models.VisionTransformer(
        img_size=side, patch_size=16, embed_dim=width, depth=depth, num_heads=heads, num_classes=7
    )
    return vit.eval().requires_grad_(False)


def _as_video(vit, frames, **sizes):
    network = SpaceTimeViT(frames, **sizes).eval().requires_grad_(False)
    state = {key: value for key, value in vit.state_dict().items() if not key.startswith("head.")}
    network.load_state_dict(inflate(state, frames))
    return network


def _row(vit, image):
    return vit.forward_head(vit.forward_features(image), pre_logits=True)


@pytest.mark.parametrize("frames", [1, 4])
def test_an_untrained_space_time_vit_is_the_image_vit(frames):
    """On a still picture, whatever the number of frames; the whole ViT-B/16 is the next test's."""
    vit = _image_vit(**SMALL)
    load_deterministic_weights(vit)
    network = _as_video(vit, frames, **SMALL)
    image = _clip(2, 64)[:, :, 1]
    still = image[:, :, None].expand(-1, -1, frames, -1, -1)
    torch.testing.assert_close(network(still), _row(vit, image), rtol=1e-4, atol=1e-5)
    if frames > 1:  # and on a moving one it is not
        moving = _clip(frames, 64)
        assert torch.linalg.norm(network(moving) - _row(vit, moving[:, :, 0])) > 0.01


@pytest.mark.slow
def test_locvtp_s_encoder_is_timm_s_image_vit_when_its_checkpoint_is_loaded(tmp_path):
    vit = timm.create_model("vit_base_patch16_224.augreg_in21k", pretrained=False).eval().requires_grad_(False)
    load_deterministic_weights(vit)
    torch.save(vit.state_dict(), tmp_path / "vit.pth")
    preset = extractors.preset("locvtp_vit")
    network = weights.make(preset, weights.find(preset, str(tmp_path / "vit.pth")))
    image = _clip(1, 224)[:, :, 0]
    with torch.inference_mode():
        ours = network(image[:, :, None].expand(-1, -1, 16, -1, -1))
        theirs = vit.forward_features(image)[:, 0]
    assert torch.linalg.norm(ours - theirs) < 1e-4 * torch.linalg.norm(theirs)


_PEER = (
    (r"^blocks\.", "encoder.layer."), (r"temporal_norm1", "temporal_layernorm"), (r"\.norm1", ".layernorm_before"),
    (r"norm2", "layernorm_after"), (r"temporal_attn\.", "temporal_attention."), (r"\.attn\.", ".attention."),
    (r"attention\.qkv", "attention.attention.qkv"), (r"attention\.proj", "attention.output.dense"),
    (r"temporal_fc", "temporal_dense"), (r"mlp\.fc1", "intermediate.dense"), (r"mlp\.fc2", "output.dense"),
    (r"^cls_token", "embeddings.cls_token"), (r"^pos_embed", "embeddings.position_embeddings"),
    (r"^time_embed", "embeddings.time_embeddings"), (r"^patch_embed\.proj", "embeddings.patch_embeddings.projection"),
    (r"^norm\.", "layernorm."),
)  # fmt: skip
"""From TimeSformer's own names to those of transformers."""


def test_a_trained_space_time_vit_is_transformers_timesformer():
    """With temporal weights that are not zero."""
    from transformers import TimesformerConfig, TimesformerModel

    network = SpaceTimeViT(4, **SMALL).eval().requires_grad_(False)
    load_deterministic_weights(network)
    peer = TimesformerModel(
        TimesformerConfig(
            image_size=64, num_frames=4, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
            intermediate_size=192,
        )
    ).eval()  # fmt: skip
    peer.load_state_dict(_renamed(network.state_dict(), _PEER))
    x = _clip(4, 64)
    with torch.inference_mode():
        theirs = peer(x.transpose(1, 2)).last_hidden_state[:, 0]
    torch.testing.assert_close(network(x), theirs, rtol=1e-4, atol=1e-4)


def test_a_checkpoint_with_a_temporal_part_keeps_it(tmp_path):
    preset = extractors.preset("locvtp_vit")
    with torch.device("meta"):
        names = extractors.get("locvtp_vit").network(preset).state_dict()
    state = {f"model.{key}": torch.full((), 0.5).expand(value.shape) for key, value in names.items()}
    torch.save(state | {"model.head.weight": torch.zeros(400, 768)}, tmp_path / "timesformer.pyth")
    loaded = weights.make(preset, weights.find(preset, str(tmp_path / "timesformer.pyth"))).state_dict()
    assert float(loaded["blocks.11.temporal_attn.qkv.weight"].max()) == 0.5
