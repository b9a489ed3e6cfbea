"""The extractors that wrap torchvision's and transformers' video networks, against the libraries' own way."""

import re
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torchvision.models import video
from torchvision.transforms.functional import center_crop
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil

import extractors
from extractors import weights
from extractors.embed import network
from extractors.preprocess import to_input
from extractors.spec import ExtractorError
from pipeline.decode import Decoding
from pipeline.probe import probe

TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
VIDEOS = ("hmdb51/RATRACE_wave_f_nm_np1_fr_goo_37.avi", "kinetics/flipping_a_pancake.mkv", "msrvtt/video7010.mp4")
"""560 x 240, 640 x 360 and 320 x 240; 3, 10 and 18 s."""
ROWS = 6
"""Of each video at most."""


@pytest.fixture
def tiny(monkeypatch):
    """transformers, whose networks have two layers instead of twelve."""
    transformers = sys.modules["transformers"]  # which it replaces while it is imported
    for name in ("TimesformerConfig", "VideoMAEConfig", "CLIPVisionConfig"):
        monkeypatch.setattr(transformers, name, partial(_small, getattr(transformers, name)))
    return transformers


def _small(make, **choices):
    return make(**(choices | TINY))


# What they are


@pytest.mark.parametrize("name", extractors.get("torchvision_video").PRESETS)
def test_torchvision_presets_are_torchvision_s_own(name):
    preset = extractors.preset(f"torchvision_video:{name}")
    published = video.__dict__[
        {"r2plus1d_18": "R2Plus1D_18", "mvit_v1_b": "MViT_V1_B", "mvit_v2_s": "MViT_V2_S", "s3d": "S3D"}.get(
            name, name.replace("swin3d", "Swin3D").replace(name[-1], name[-1].upper())
        )
        + "_Weights"
    ].KINETICS400_V1
    chain, transform, said = preset.chain, published.transforms(), published.meta["_docs"]
    resize = [chain.short_side] if chain.stretch is None else [chain.stretch[1], chain.stretch[0]]  # height first
    assert (transform.resize_size, transform.crop_size) == (resize, [chain.crop] * 2)
    assert (tuple(transform.mean), tuple(transform.std)) == (preset.mean, preset.std)
    assert (published.url, published.meta["_file_size"]) == (preset.weights.url, preset.weights.mib)
    rate, frames = re.search(r"`frame_rate=([\d.]+)`", said), re.search(r"`clip_len=(\d+)`", said)
    assert (float(rate[1]), int(frames[1])) == (chain.fps, preset.frames)


def test_torchvision_rows_are_what_the_classifier_sees(tmp_path):
    preset = extractors.preset("torchvision_video:r2plus1d_18")
    torch.manual_seed(0)
    whole = video.r2plus1d_18(weights=None).eval()
    torch.save(whole.state_dict(), tmp_path / "net.pth")
    ours = network(preset, weights.find(preset, str(tmp_path / "net.pth")))
    x = torch.rand(1, 3, 4, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(whole.fc(ours(x)), whole(x))


@pytest.mark.parametrize("name", extractors.get("torchvision_video").PRESETS)
def test_torchvision_checkpoints_fit_less_their_classifier(name):
    preset = extractors.preset(f"torchvision_video:{name}")
    with torch.device("meta"):
        whole = getattr(video, name)(weights=None).state_dict()
        ours = extractors.get("torchvision_video").network(preset).state_dict()
    converted = extractors.get("torchvision_video").convert(whole, preset)
    assert converted.keys() == ours.keys()
    assert len(whole) - len(ours) == 2


# transformers' checkpoints, as it writes them


def _loaded(preset, folder):
    return network(preset, weights.find(preset, str(folder)))


def test_clip_is_loaded_from_a_folder_without_its_text_tower(tiny, tmp_path):
    preset = extractors.preset("clip")
    config = tiny.CLIPConfig(vision_config={**TINY, "patch_size": 32}, text_config=TINY, projection_dim=512)
    whole = tiny.CLIPModel(config).eval()
    whole.save_pretrained(tmp_path)
    x = torch.rand(2, 3, 224, 224)
    with torch.inference_mode():
        theirs = whole.visual_projection(whole.vision_model(x).pooler_output)
        torch.testing.assert_close(_loaded(preset, tmp_path)(x), theirs)


def test_timesformer_s_row_is_what_its_classifier_sees(tiny, tmp_path):
    preset = extractors.preset("timesformer")
    whole = tiny.TimesformerForVideoClassification(tiny.TimesformerConfig()).eval()
    whole.save_pretrained(tmp_path)
    x = torch.rand(1, 3, 8, 224, 224)
    with torch.inference_mode():
        torch.testing.assert_close(whole.classifier(_loaded(preset, tmp_path)(x)), whole(x.transpose(1, 2)).logits)


@pytest.mark.parametrize("old", [False, True])
def test_videomae_s_row_is_what_its_classifier_sees(tiny, tmp_path, old):
    """Also where the file has the biases' old names, which its published ones have."""
    preset = extractors.preset("videomae")
    whole = tiny.VideoMAEForVideoClassification(tiny.VideoMAEConfig()).eval()
    for key, value in whole.state_dict().items():
        if key.endswith("bias"):
            torch.nn.init.normal_(value)
    state = whole.state_dict()
    if old:
        state = {k.replace(".query.bias", ".q_bias").replace(".value.bias", ".v_bias"): v for k, v in state.items()}
        assert sum(key.endswith("q_bias") for key in state) == TINY["num_hidden_layers"]
    torch.save(state, tmp_path / "pytorch_model.bin")
    x = torch.rand(1, 3, 16, 224, 224)
    with torch.inference_mode():
        torch.testing.assert_close(whole.classifier(_loaded(preset, tmp_path)(x)), whole(x.transpose(1, 2)).logits)


def test_what_transformers_keeps_is_found_and_its_digest_recorded(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    snapshot = tmp_path / "hub/models--openai--clip-vit-base-patch32/snapshots/3d74acf9"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").write_bytes(b"other")
    found = weights.find(extractors.preset("clip"))
    assert (found.source, found.path) == ("hub", snapshot / "model.safetensors")
    assert "is not the published" in caplog.text  # which is pytorch_model.bin
    (snapshot / "pytorch_model.bin").write_bytes(b"published")
    assert weights.find(extractors.preset("clip")).path == snapshot / "pytorch_model.bin"


@pytest.mark.parametrize("name", ["clip", "timesformer", "videomae", "locvtp_vit"])
def test_without_a_network_the_missing_file_is_named_in_one_line(name, tmp_path, monkeypatch):
    def offline(url, timeout):
        raise OSError("no route to host")

    for variable in ("HF_HOME", "TORCH_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setattr(weights, "urlopen", offline)
    preset = extractors.preset(name)
    with pytest.raises(ExtractorError) as caught:
        weights.find(preset)
    message = str(caught.value)
    assert "\n" not in message
    for part in (preset.weights.url, "no route to host", f"--weights {preset.name}=FILE", preset.weights.file):
        assert part in message
    with pytest.raises(ExtractorError, match="empty/model.safetensors is no file"):
        (tmp_path / "empty").mkdir()
        weights.find(preset, str(tmp_path / "empty"))


# Their own preprocessing, on frames of real videos


def _theirs(preset):
    """Return a function that makes the network's input of one whole frame, as the library does."""
    if preset.extractor == "torchvision_video":
        published = {"r2plus1d_18": video.R2Plus1D_18_Weights, "mvit_v2_s": video.MViT_V2_S_Weights}
        transform = published[preset.name.partition(":")[2]].KINETICS400_V1.transforms()
        return lambda frame: transform(torch.from_numpy(frame).permute(2, 0, 1)[None])[:, 0]
    if preset.extractor == "clip":
        return lambda frame: CLIPImageProcessorPil()(frame, return_tensors="pt")["pixel_values"][0]
    if preset.extractor == "pytorchvideo":
        return partial(_hub, preset)
    width, height = preset.chain.stretch or (None, None)
    processor = VideoMAEImageProcessorPil(
        size={"width": width, "height": height} if width else {"shortest_edge": preset.chain.short_side},
        crop_size={"width": preset.chain.crop, "height": preset.chain.crop},
        rescale_factor=1 / preset.scale, image_mean=list(preset.mean), image_std=list(preset.std),
    )  # fmt: skip
    return lambda frame: processor([frame], return_tensors="pt")["pixel_values"][0, 0]


def _hub(preset, frame):
    """Do as the hub page of pytorchvideo, whose own transforms cannot be imported beside this torchvision."""
    colour = (torch.from_numpy(frame) / 255 - torch.tensor(preset.mean)) / torch.tensor(preset.std)
    height, width, side = *frame.shape[:2], preset.chain.short_side
    size = (side, width * side // height) if height <= width else (height * side // width, side)
    scaled = F.interpolate(colour.permute(2, 0, 1)[None], size, mode="bilinear", align_corners=False)
    return center_crop(scaled, [preset.chain.crop] * 2)[0]


def _frames(path, chain, most):
    with closing(Decoding(path, probe(path), [chain])) as decoding:
        return [frame.copy() for _, frame in islice(decoding, most)]


def _inputs(preset, path):
    """Yield the network's input of the first rows of a video, in our way and in the library's."""
    probed, theirs = probe(path), _theirs(preset)
    whole = replace(preset.chain, short_side=min(probed.width, probed.height), crop=None, stretch=None)
    ours, originals = (_frames(path, chain, ROWS * preset.frames) for chain in (preset.chain, whole))
    assert len(ours) == len(originals)
    for begin in range(0, len(ours) - preset.frames + 1, preset.frames):
        row = slice(begin, begin + preset.frames)
        other = torch.stack([theirs(frame) for frame in originals[row]], 1)[None]
        yield to_input(np.stack(ours[row])[None], preset), other[:, :, 0] if preset.frames == 1 else other


def _error(ours, theirs):
    return float(torch.linalg.norm(ours - theirs) / torch.linalg.norm(theirs - theirs.mean(0)))


def _errors(name, shared):
    """Return the centred relative errors of rows and of pixels, over all videos long enough for a row."""
    preset = extractors.preset(name)
    net = network(preset, weights.Found("random"))
    rows, pixels = [], []
    for film in VIDEOS:
        for pair in _inputs(preset, shared / "data/videos" / film):
            with torch.inference_mode():
                rows.append(torch.cat([net(one) for one in pair]))
            pixels.append(torch.cat([one.flatten(1)[:, ::101] for one in pair]))
    found = [_error(*torch.stack(parts).unbind(1)) for parts in (rows, pixels)]
    print(f"{name}: centred relative error of {len(rows)} rows {found[0]:.4f}, of pixels {found[1]:.4f}")
    return found


@pytest.mark.parametrize(
    ("name", "rows", "pixels"),
    [
        ("clip:vit_b32", 0.03, 0.05),
        ("timesformer:k400", 0.04, 0.05),
        ("videomae:base", 0.04, 0.05),
        ("pytorchvideo:x3d_xs", 0.12, 0.1),
    ],
)
def test_rows_are_near_those_of_the_library_s_own_preprocessing(name, rows, pixels, tiny, shared):
    """PIL's antialiased scaling against ffmpeg's; untrained networks of two layers. pytorchvideo does without it."""
    found = _errors(name, shared)
    assert found[0] < rows
    assert found[1] < pixels
    assert min(found) > 0.001  # they are two


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "pixels"),
    [
        ("clip:vit_b32", 0.03, 0.05),
        ("torchvision_video:r2plus1d_18", 0.1, 0.15),
        ("torchvision_video:mvit_v2_s", 0.06, 0.05),
        ("i3d_inception:rgb16", 0.07, 0.04),
        ("c3d:activitynet", 0.07, 0.04),
    ],
)
def test_rows_of_whole_networks_are_near_those_of_the_library_s_own_preprocessing(name, rows, pixels, shared):
    """As above. torchvision scales without antialiasing, which shows most where a picture becomes small."""
    found = _errors(name, shared)
    assert found[0] < rows
    assert found[1] < pixels
