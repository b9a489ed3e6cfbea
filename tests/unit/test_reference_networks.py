"""Our networks against the public reference implementations, under weights that depend on names and shapes only."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import extractors
from extractors.networks.s3d import S3D, space_to_depth
from extractors.preprocess import to_input
from extractors.s3d_howto100m import embed_texts, read_dictionary
from extractors.spec import ExtractorError
from tests.deterministic_weights import deterministic_clip, load_deterministic_weights

DATA = Path(__file__).parents[1] / "data"
WORDS = ["add", "tomatoes", "pan", "stir", "the", "cut", "onion", "man", "guitar", "play"]
TEXTS = ["Add the tomatoes to the PAN, and stir!", "a man plays guitar", "unknownword"]


def _relative(ours, reference):
    ours = np.asarray(ours)
    assert ours.shape == reference.shape
    return np.linalg.norm(ours - reference) / np.linalg.norm(reference)


@pytest.fixture(scope="module")
def s3d():
    network = S3D().eval().requires_grad_(False)
    load_deterministic_weights(network)
    return network


@pytest.mark.parametrize(("name", "keys"), [("i3d_x101", "resnext101_kinetics"), ("s3d_howto100m", "s3d_howto100m")])
def test_checkpoints_of_the_reference_fit(name, keys):
    preset = extractors.preset(name)
    with torch.device("meta"):
        state = extractors.get(name).network(preset).state_dict()
    reference = json.loads((DATA / f"{keys}.keys.json").read_text())
    assert {key: list(value.shape) for key, value in state.items()} == reference


@pytest.mark.parametrize(
    ("name", "file", "size"),
    [("resnet152", "resnet152_imagenet", (2, 1, 224, 398)), ("i3d_x101", "resnext101_kinetics", (1, 16, 112, 112))],
)
def test_pooled_features_are_the_reference_s(name, file, size):
    rows, frames, height, width = size
    preset = extractors.preset(name)
    network = extractors.get(name).network(preset)
    load_deterministic_weights(network)
    clip = deterministic_clip(rows * frames, height, width).reshape(rows, frames, height, width, 3)
    with torch.inference_mode():
        ours = network(to_input(clip, preset))
    assert _relative(ours, np.load(DATA / f"{file}.npz")["pooled"]) < 1e-4


def test_s3d_video_tower_is_the_reference_s(s3d):
    reference = np.load(DATA / "s3d_howto100m.npz")
    clip = deterministic_clip(32, 224, 224)
    x = torch.from_numpy(clip).permute(3, 0, 1, 2)[None].float() / 255
    with torch.inference_mode():
        long, short = s3d(x), s3d(x[:, :, :16])
        narrow = s3d(x[:, :, :16, :, :200])  # odd sizes inside: the pools' padding differs from SAME, as published
    for name, ours in (("32", long), ("16", short)):
        assert _relative(ours[:, :1024], reference[f"mixed_5c_{name}"]) < 1e-4
        assert _relative(ours[:, 1024:], reference[f"video_embedding_{name}"]) < 1e-4
    assert _relative(narrow[:, :1024], reference["mixed_5c_16_224x200"]) < 1e-4


def test_s3d_text_tower_is_the_reference_s(s3d):
    reference = np.load(DATA / "s3d_howto100m.npz")["text_embedding"]
    assert _relative(embed_texts(s3d, TEXTS, WORDS), reference) < 1e-4


def test_layers_come_in_the_preset_s_order(s3d):
    x = torch.rand(1, 3, 16, 64, 64, generator=torch.Generator().manual_seed(0))
    swapped = S3D(("video_embedding", "mixed_5c")).eval()
    swapped.load_state_dict(s3d.state_dict())
    with torch.inference_mode():
        both = s3d(x)
        torch.testing.assert_close(swapped(x), torch.cat([both[:, 1024:], both[:, :1024]], 1), rtol=0, atol=0)


def test_space_to_depth_orders_channels_by_time_row_column_colour():
    x = torch.arange(3 * 2 * 2 * 2).view(1, 3, 2, 2, 2)  # value = 8 colour + 4 time + 2 row + column
    order = [8 * c + 4 * t + 2 * h + w for t in (0, 1) for h in (0, 1) for w in (0, 1) for c in (0, 1, 2)]
    assert space_to_depth(x).flatten().tolist() == order


def test_texts_are_cut_at_sixteen_words_and_unknown_ones_take_no_slot(s3d):
    sixteen = " ".join(["unknownword", *["pan"] * 16])
    one, more = embed_texts(s3d, [sixteen, sixteen + " guitar"], WORDS)
    assert torch.equal(one, more)
    assert not torch.equal(one, embed_texts(s3d, ["pan"], WORDS)[0])  # fifteen slots of padding take part
    assert torch.equal(embed_texts(s3d, ["STIR the PAN"], WORDS), embed_texts(s3d, ["stir, the; pan"], WORDS))


def test_dictionary_is_read_without_pickles(tmp_path):
    np.save(tmp_path / "words.npy", np.array(WORDS))
    assert read_dictionary(tmp_path / "words.npy") == WORDS
    np.save(tmp_path / "pickled.npy", np.array(WORDS, dtype=object))
    np.save(tmp_path / "numbers.npy", np.arange(3))
    for name in ("pickled.npy", "numbers.npy", "absent.npy"):
        with pytest.raises(ExtractorError, match=f"{name} is no word list of S3D"):
            read_dictionary(tmp_path / name)


def test_a_dictionary_beyond_the_word_table_is_refused(s3d):
    with pytest.raises(ExtractorError, match="66250 words"):
        embed_texts(s3d, ["pan"], [str(i) for i in range(66_250)])


@pytest.mark.parametrize("shape", [(3, 16, 224, 224), (3, 32, 112, 112), (3, 16, 112, 160)])
def test_i3d_refuses_other_clips(shape):
    with torch.device("meta"):
        network = extractors.get("i3d_x101").network(extractors.preset("i3d_x101"))
        with pytest.raises(ExtractorError, match="takes 16 frames of 112 x 112"):
            network(torch.zeros(1, *shape))


@pytest.mark.parametrize(
    ("preset", "shape", "legal"),
    [
        ("univl", (16, 224, 224), True),
        ("univl", (16, 256, 256), True),
        ("univl", (32, 224, 224), False),
        ("univl", (16, 224, 200), False),
        ("univl", (16, 200, 200), False),
        ("milnce32", (32, 224, 224), True),
        ("milnce32", (30, 224, 224), False),
        ("videoclip30", (30, 224, 224), True),
    ],
)
def test_s3d_presets_refuse_clips_on_which_padding_would_not_be_exact(preset, shape, legal):
    with torch.device("meta"):
        network = extractors.get("s3d_howto100m").network(extractors.preset(f"s3d_howto100m:{preset}"))
        x = torch.zeros(1, 3, *shape)
        if legal:
            assert network(x).shape == (1, 1536)
        else:
            with pytest.raises(ExtractorError, match="s3d_howto100m takes"):
                network(x)
