"""The recipes that there are: every command parses, and what several of them make they make in one way."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import extractors
from pipeline import datasets
from pipeline.cli import app as pipeline_app
from train.cli import app as train_app
from train.presets import PRESETS, expanded
from workflows import planted, reading, synthetic
from workflows.recipe import Command, jobs


def parsed(words: list[str]) -> None:
    """Parse a command as its program does, without running it. Raises what is wrong with it."""
    module, *given = Command("", tuple(words)).program
    made = {"workflows.planted": planted, "workflows.synthetic": synthetic}
    if module in made:
        made[module]._parsed(given)
    else:
        app = train_app if module == "train.cli" else pipeline_app
        app.parse_args(expanded(given) if app is train_app else given, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_flags_that_there_are(name):
    grounds = ["ground"] * name.startswith(("tan2d", "spans"))
    parsed(["train", *grounds, "--features", "f.h5", "--preset", name])


def test_a_preset_s_flags_give_way_to_those_that_are_given():
    words = expanded(["--preset", "ncl-clip4clip-msvd", "--no-freeze-text", "--batch=64"])
    assert not {"--freeze-text", "--batch"} & set(words)
    assert words[words.index("--steps") + 1] == "1900"


def test_a_preset_s_rate_of_its_text_encoder_is_not_another_encoder_s():
    """CLIP is tuned at 1e-7; at that an encoder from scratch would never learn. So does a method without a preset."""
    for words in (["--preset", "ncl-clip4clip"], ["--method", "ncl"]):
        assert "--text-lr" in expanded(words)
        assert "--text-lr" not in expanded([*words, "--text-encoder", "tiny"])
        assert "--text-lr" not in expanded([*words, "--text-encoder=tiny"])


@pytest.mark.parametrize("name", reading.names())
def test_every_recipe_is_commands_that_there_are(name):
    """Every command parses, on data sets, streams and parts of splits that exist; other streams are exported before."""
    recipe = reading.find(name)
    presets = [p for e in ("resnet152", "i3d_x101", "s3d_howto100m") for p in extractors.get(e).PRESETS.values()]
    streams = {stream for preset in presets for stream, _ in preset.streams}
    parts = {part for one in datasets.names() for part in datasets.expected(one)}
    commands = [command for job in jobs(recipe, 1) for command in job.commands]
    assert commands
    for command in commands:
        parsed(list(command.words))
        given = dict(zip(command.words, command.words[1:], strict=False))
        assert given.get("--dataset", "toy") in datasets.names()
        streams.add(given.get("--name", ""))
        named = given.get("--streams", "").split(",")
        assert {stream for stream in named if stream and not stream.startswith("timm:")} <= streams
        assert given.get("--part", "split1/test") in parts
    known = [recipe.source] if any(row.expect for row in recipe.rows) else []
    assert all(re.search(r"\d", source) or "DREAM" in source for source in known)


def test_recipes_that_share_what_they_make_make_it_the_same_way():
    """Where one recipe is run after another one, what is there is taken for its own: so it must be.

    Extraction adds what is missing, but a file that is joined of what was extracted is not joined again.
    """
    made: dict[Path, tuple[str, list[tuple[str, ...]]]] = {}
    for name in reading.names():
        commands = [command.words for job in jobs(reading.find(name), 2) for command in job.commands]
        extracted = {words[-1]: words for words in commands if words[:3] == ("pipeline", "run", "extract")}
        for words in commands:
            joined = words[2:] if words[:2] == ("pipeline", "join") else ()
            way = [words, *(extracted[path] for path in joined if path in extracted)]
            if (place := Command("", words).makes) is not None:
                other, its = made.setdefault(place, (name, way))
                assert its == way, f"{name} and {other} make {place} in different ways"
    assert made[Path("runs/locvtp_table1/howto100m-imagenet-0/results.json")][0] == "locvtp_table1"


def test_the_list_of_recipes():
    out = subprocess.run([sys.executable, "-m", "workflows"], check=True, capture_output=True, text=True).stdout
    assert [line.split()[0] for line in out.splitlines()] == reading.names()
