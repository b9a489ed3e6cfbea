"""Every extractor and every preset there is, through the same tests."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import extractors
from extractors import weights
from extractors.embed import Batcher, network
from extractors.preprocess import to_input
from extractors.spec import ExtractorError

DEMO = "timm:tf_efficientnet_lite0"  # timm has no presets of its own
PRESETS = {p.name: p for name in extractors.names() for p in extractors.get(name).PRESETS.values()}
NETWORKS = {p.weights.file or p.name: p for p in reversed(PRESETS.values())}  # the first preset of each network
CHEAP = {p.name for p in NETWORKS.values()} - {
    f"pytorchvideo:{name}" for name in ("i3d_r50", "slowfast_r50", "x3d_m", "r2plus1d_r50")
}


def _preset(name):
    return PRESETS.get(name) or extractors.preset(name)


def _marked(names):
    return [name if name in {*CHEAP, DEMO} else pytest.param(name, marks=pytest.mark.slow) for name in [*names, DEMO]]


def _black(preset, rows):
    width, height = preset.chain.frame_size(320, 240)
    return np.zeros((rows, preset.frames, height, width, 3), np.uint8)


def test_names_are_files():
    assert {"resnet152", "i3d_x101", "s3d_howto100m", "timm", "pytorchvideo"} <= set(extractors.names())
    assert not {"spec", "embed", "weights", "networks"} & set(extractors.names())
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
        "for name in extractors.names():\n"
        "    if extractors.get(name).PRESETS: extractors.preset(name)\n"
        "print(sorted({'torch', 'torchvision', 'timm', 'pytorchvideo', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_stands_alone():
    script = "import sys, extractors.embed; print([m for m in sys.modules if m.split('.')[0] in ('pipeline', 'train')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [*PRESETS, DEMO])
def test_presets_are_plain_values(name):
    preset = _preset(name)
    values = preset.as_json()
    assert json.loads(json.dumps(values)) == json.loads(json.dumps(replace(preset, batch=99).as_json()))
    assert preset.source
    assert preset.batch >= 1
    assert preset.streams[0] == (preset.name, preset.outputs[0].dim)
    assert len({stream for stream, _ in preset.streams}) == len(preset.outputs)


def test_rates_are_the_published_ones():
    rates = {name: extractors.preset(name).rows_per_second for name in ("resnet152", "i3d_x101", "s3d_howto100m")}
    assert rates == {"resnet152": 1, "i3d_x101": 1.5, "s3d_howto100m": 1}


@pytest.mark.parametrize("name", [*PRESETS, DEMO])
def test_dimensions_are_what_the_network_gives(name):
    """On torch's meta device, which knows shapes and computes nothing."""
    preset = _preset(name)
    with torch.device("meta"):
        net = extractors.get(preset.extractor).network(preset)
        rows = net(to_input(torch.from_numpy(_black(preset, 2)), preset).to("meta"))
    assert rows.shape == (2, sum(output.dim for output in preset.outputs))


@pytest.mark.parametrize("name", _marked(PRESETS))
def test_a_black_row_gives_finite_numbers(name):
    preset = _preset(name)
    found = weights.find(preset, "random" if preset.weights.file else None)
    ((_, row),) = Batcher(preset, network(preset, found), 1).add(0, _black(preset, 1)[0])
    assert row.shape == (sum(output.dim for output in preset.outputs),)
    assert np.isfinite(row.astype(np.float16)).all()


@pytest.mark.parametrize("name", _marked(preset.name for preset in NETWORKS.values()))
def test_two_random_networks_are_one(name):
    preset = _preset(name)
    first, second = (network(preset, weights.Found("random")) for _ in range(2))
    assert not any(module.training for module in first.modules())
    assert first.state_dict().keys() == second.state_dict().keys()
    assert all(torch.equal(value, second.state_dict()[key]) for key, value in first.state_dict().items())
