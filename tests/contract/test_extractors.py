"""Every extractor and every preset there is, through the same tests."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import extractors
from extractors import weights
from extractors.embed import Batcher, network
from extractors.preprocess import to_input
from extractors.spec import ExtractorError
from pipeline.errors import PresetMismatch
from pipeline.plan import Job, check_settings, stream_settings

DEMO = "timm:tf_efficientnet_lite0"  # timm has no presets of its own
PRESETS = {p.name: p for name in extractors.names() for p in extractors.get(name).PRESETS.values()}
NETWORKS = {p.weights.file or p.name: p.name for p in reversed(PRESETS.values())}  # the first preset of each network
SECONDS = {
    "i3d_x101:howto100m", "resnet152:howto100m", "s3d_howto100m:univl", "pytorchvideo:x3d_s", "pytorchvideo:x3d_xs",
    "pytorchvideo:efficient_x3d_xs", "clip:vit_b32", "c3d:activitynet", *(name for name in PRESETS if "colors" in name),
}  # fmt: skip
"""Those of which a row takes less than a second or two."""
LATE = {"videomae:large", "pytorchvideo:mvit_base_16x4", "pytorchvideo:mvit_base_32x3"}
"""Those that take seconds to make even where nothing is computed."""


def _preset(name):
    return PRESETS.get(name) or extractors.preset(name)


def _marked(names, fast):
    return [name if fast(name) else pytest.param(name, marks=pytest.mark.slow) for name in [*names, DEMO]]


def _frames(preset, seed):
    """Return the frames of one row, of the size that the chain makes of a picture of 320 x 240; black for seed None."""
    width, height = preset.chain.frame_size(320, 240)
    shape = (preset.frames, height, width, 3)
    return np.zeros(shape, np.uint8) if seed is None else np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def test_names_are_files():
    assert {"resnet152", "i3d_x101", "s3d_howto100m", "timm", "pytorchvideo"} <= set(extractors.names())
    assert {"torchvision_video", "clip", "timesformer", "videomae", "locvtp_vit", "i3d_inception", "c3d"} <= set(
        extractors.names()
    )
    assert not {"spec", "embed", "weights", "fitting", "catalogue", "networks"} & set(extractors.names())
    with pytest.raises(ExtractorError, match="there are: .*i3d_x101, .*resnet152"):
        extractors.get("resnet151")


@pytest.mark.parametrize("name", extractors.names())
def test_extractors_offer_the_protocol(name):
    module = extractors.get(name)
    assert module.__doc__
    for key, preset in module.PRESETS.items():
        assert preset.name == f"{name}:{key}"
        assert module.preset(key) is preset
    if module.PRESETS:
        assert module.preset("") is next(iter(module.PRESETS.values()))
    with pytest.raises(ExtractorError) as caught:
        module.preset("no-such-preset")
    assert "no-such-preset" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_presets_are_known_without_torch():
    script = (
        "import sys, extractors\n"
        "from extractors import catalogue\n"
        "for name in extractors.names():\n"
        "    if extractors.get(name).PRESETS: extractors.preset(name)\n"
        "assert [catalogue.facts(one) for one in catalogue.known()]\n"
        "print(sorted({'torch', 'torchvision', 'timm', 'pytorchvideo', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_stands_alone():
    script = (
        "import sys, extractors.embed, extractors.catalogue, extractors.fitting\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('pipeline', 'train')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [*PRESETS, DEMO])
def test_presets_are_plain_values(name):
    preset = _preset(name)
    values = preset.as_json()
    prose = replace(preset, batch=99, source="", differs="", warning="")
    assert json.loads(json.dumps(values)) == json.loads(json.dumps(prose.as_json()))
    assert preset.source
    assert preset.differs or preset.extractor == "colors"
    assert preset.batch >= 1
    assert preset.streams[0] == (preset.name, preset.outputs[0].dim)
    assert len({stream for stream, _ in preset.streams}) == len(preset.outputs)


@pytest.mark.parametrize("name", [*PRESETS, DEMO])
def test_weights_say_where_they_come_from(name):
    published = _preset(name).weights
    if not published.file:
        assert _preset(name).extractor == "colors"
        return
    assert published.license
    assert published.url.startswith(("https://", "http://")) or published.package
    assert published.url not in published.dead or published.mirrors  # who has it, where the publisher has not


def _changes(preset):
    """Yield the preset with one choice changed at a time."""
    chain = preset.chain
    crop = 96 if chain.crop is None else None
    for other in (
        {"fps": chain.fps * 2}, {"short_side": chain.short_side + 2}, {"crop": crop}, {"stretch": (96, 100)},
        {"scaler": "bicubic" if chain.scaler == "bilinear" else "bilinear"}, {"crop_first": not chain.crop_first},
    ):  # fmt: skip
        yield replace(preset, chain=replace(chain, **other))
    tail = None if preset.tail else "last"
    for other in (
        {"frames": preset.frames + 1}, {"stride": (preset.stride or 0) + 3}, {"tail": tail},
        {"mean": (0.1, 0.2, 0.3)}, {"std": (0.7, 0.8, 0.9)}, {"scale": 2.0}, {"outputs": preset.outputs[::-1]},
    ):  # fmt: skip
        changed = replace(preset, **other)
        if changed != preset:
            yield changed


@pytest.mark.parametrize("name", [*PRESETS, DEMO])
def test_every_choice_is_stored_and_compared(name):
    """With what a stream was made is in its settings: the same is taken, any other is refused."""
    preset, found = _preset(name), weights.Found("random")
    stored = stream_settings([Job(preset, found)], "float16", False)
    made = SimpleNamespace(path="features.h5", streams={key: {"settings": value} for key, value in stored.items()})
    check_settings(made, stream_settings([Job(preset, found)], "float16", False))
    assert json.loads(json.dumps(stored)) == stored
    for changed in _changes(preset):
        wanted = stream_settings([Job(changed, found)], "float16", False)
        if wanted.keys() & stored.keys():
            with pytest.raises(PresetMismatch, match="was made with other settings"):
                check_settings(made, wanted)
    other = weights.Found("file", Path("net.pth"), "0" * 64)
    for wanted in (
        stream_settings([Job(preset, other)], "float16", False),
        stream_settings([Job(preset, found)], "float32", False),
        stream_settings([Job(preset, found)], "float16", True),
    ):
        with pytest.raises(PresetMismatch):
            check_settings(made, wanted)


def test_files_made_before_rows_could_overlap_are_the_same_streams():
    preset = extractors.preset("resnet152")
    wanted = stream_settings([Job(preset, weights.Found("random"))], "float16", False)
    old = json.loads(json.dumps(wanted))[preset.name]
    del old["stride"], old["tail"], old["chain"]["stretch"]
    check_settings(SimpleNamespace(path="f.h5", streams={preset.name: {"settings": old}}), wanted)


def test_rates_are_the_published_ones():
    rates = {name: extractors.preset(name).rows_per_second for name in ("resnet152", "i3d_x101", "s3d_howto100m")}
    assert rates == {"resnet152": 1, "i3d_x101": 1.5, "s3d_howto100m": 1}


@pytest.mark.parametrize("name", _marked(PRESETS, lambda name: name not in LATE))
def test_dimensions_are_what_the_network_gives(name):
    """On torch's meta device, which knows shapes and computes nothing."""
    preset = _preset(name)
    with torch.device("meta"):
        net = extractors.get(preset.extractor).network(preset)
        frames = torch.from_numpy(np.stack([_frames(preset, None)] * 2))
        rows = net(to_input(frames, preset).to("meta"))
    assert rows.shape == (2, sum(output.dim for output in preset.outputs))


@lru_cache(maxsize=1)  # tests of one network follow each other: each is made once, and one is held at a time
def _rows(name):
    """Return (network, rows of a, b, black, and a twice more: at another place, and beside padding)."""
    preset = _preset(name)
    net = network(preset, weights.Found("random" if preset.weights.file else "none"))
    batcher = Batcher(preset, net, batch=2)
    rows = {}
    for tag, seed in (("a", 0), ("b", 1), ("black", None), ("a, second", 0), ("a, alone", 0)):
        rows.update(batcher.add(tag, _frames(preset, seed)))
    rows.update(batcher.flush())
    return net, rows


OF_NETWORKS = pytest.mark.parametrize("name", _marked(NETWORKS.values(), {*SECONDS, DEMO}.__contains__), scope="module")


@OF_NETWORKS
def test_rows_are_repeated_to_the_bit_whatever_their_neighbours(name):
    """Their place may move the last bit: torch takes the sigmoid of numbers beyond the last whole vector otherwise."""
    _, rows = _rows(name)
    assert np.array_equal(rows["a"], rows["a, alone"])
    assert np.linalg.norm(rows["a"] - rows["a, second"]) < 2**-20 * np.linalg.norm(rows["a"])
    for other in ("b", "black"):  # and they do depend on their own frames
        assert np.abs(rows["a"] - rows[other]).max() > 1e-3 * np.abs(rows["a"]).max()


@OF_NETWORKS
def test_rows_fit_float16_within_its_rounding(name):
    _, rows = _rows(name)
    for row in rows.values():
        stored = row.astype(np.float16)
        assert np.isfinite(stored).all()
        assert np.linalg.norm(stored - row) < 2**-11 * np.linalg.norm(row) + 2**-25 * np.sqrt(row.size)


@OF_NETWORKS
def test_networks_are_frozen(name):
    net, _ = _rows(name)
    assert not any(module.training for module in net.modules())
    assert not any(parameter.requires_grad for parameter in net.parameters())


@pytest.mark.slow
@OF_NETWORKS
def test_random_networks_are_the_same_each_time(name):
    first, _ = _rows(name)
    second = network(_preset(name), weights.Found("random"))
    assert first.state_dict().keys() == second.state_dict().keys()
    assert all(torch.equal(value, second.state_dict()[key]) for key, value in first.state_dict().items())


def _half(name, device):
    """Return how far half precision moves a row, relative to it."""
    preset, frames = _preset(name), _frames(_preset(name), 0)
    net = network(preset, weights.Found("random" if preset.weights.file else "none"), device)
    rows = [Batcher(preset, net, 1, autocast=half).add("a", frames)[0][1] for half in (False, True)]
    found = float(np.linalg.norm(rows[1] - rows[0]) / np.linalg.norm(rows[0]))
    print(f"{name}: {found:.5f}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SECONDS))
def test_half_precision_is_near_on_a_cpu(name):
    """bfloat16, which has 8 bits."""
    assert _half(name, "cpu") < 0.02


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("name", NETWORKS.values())
def test_half_precision_is_near_on_a_gpu(name):
    """float16, which has 11."""
    assert _half(name, "cuda") < 0.01
