"""Recipes of other tasks than retrieval: what is refused, what is not made again, and tables of several tasks."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from pipeline.errors import BadSetting
from tests.unit.recipes import noted, put
from train.moments import Grounding
from train.placement import Video, evaluate, over_seeds
from train.probing import Kind
from train.ranking import COLUMNS
from train.tasks import grounding
from workflows import __main__ as program
from workflows import reading, results
from workflows.recipe import TASKS

OTHERS = """
about = "features, tried on other tasks"
source = "a paper, Table 2"
columns = ["R@1 IoU=0.5", "recall", "uniform", "order"]
seeds = 2

[[steps]]
name = "make"
run = "python -m workflows.synthetic tacos --root data --out tacos.h5"

[[steps]]
name = "train"
run = "train --features tacos.h5 --seed {seed} --out runs/mine/model-{seed}"

[[steps]]
name = "export"
run = "train export-features --checkpoint runs/mine/model-{seed} --features {data}.h5 --out runs/mine/model-{seed}/{data}.h5"

[[steps]]
name = "ground"
run = "train ground --features runs/mine/model-{seed}/{data}.h5 --seed {seed} --out {run}"

[[steps]]
name = "localise"
run = "train evaluate --checkpoint runs/mine/model-{seed} --features {task}.h5 --task steps --out {run}.json"

[[steps]]
name = "segment"
run = "train segment --features {coin}.h5 --seed {seed} --out {run}"

[[steps]]
name = "probe"
run = "train probe --features {probed}.h5 --seed {seed} --out {run}/probes.json"

[[rows]]
label = "moments"
data = "tacos"
expect = { "R@1 IoU=0.5" = 25 }

[[rows]]
label = "when"
task = "crosstask"
expect = { recall = 51.7 }

[[rows]]
label = "where"
probed = "tacos"

[[rows]]
label = "bars"
coin = "coin"
"""  # noqa: E501


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A function that writes a recipe's text and loads it, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def made(text: str = OTHERS):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        return reading.load(Path("mine.toml"))

    return made


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"recall"', '"recal"', "columns: unknown 'recal'; there are: R@1, R@5, R@10, R@50, MdR, MnR, R@1 IoU=0.1,"),
        ("seeds = 2", 'seeds = 2\ndirection = "t2v"', "row 'moments': direction is for columns of retrieval, R@1,"),
        ("recall = 51.7", "mIoU = 51.7", "row 'when': expect has 'mIoU', which is not in columns"),
        ("--seed {seed} --out {run}", "--out {run}", "step 'ground': trains for each seed, but has no --seed {seed}"),
        ("{coin}.h5 --seed {seed}", "{coin}.h5", "step 'segment': trains for each seed, but has no --seed {seed}"),
        ("train ground", "pipeline run", "row 'moments': its last step is none with results: train, train ground,"),
        ("--task steps --out {run}.json", "--task steps", "row 'when': its last step is none with results"),
        ("--out runs/mine/model-{seed}/{data}.h5", "--out new.h5", "step 'export': two different runs in one place"),
    ],
)
def test_what_is_wrong_with_a_recipe_of_other_tasks(recipe, old, new, said):
    assert OTHERS.count(old) >= 1
    with pytest.raises(BadSetting, match="^mine.toml: .*") as error:
        recipe(OTHERS.replace(old, new, 1))
    assert said in str(error.value)


def test_what_is_there_is_not_made_again_and_only_what_is_trained_in_steps_is_resumed(recipe, monkeypatch):
    ran, _ = noted(monkeypatch)
    for place in (
        "../../tacos.h5", "model-0/results.json", "model-0/tacos.h5", "moments-0/settings.json", "when-0.json",
        "where-0/probes.json", "bars-0/settings.json",
    ):  # fmt: skip
        (Path("runs/mine") / place).parent.mkdir(parents=True, exist_ok=True)
        (Path("runs/mine") / place).write_text("{}")
    assert program.run(recipe(), 1) == 0
    assert ran == [
        "train.cli resume runs/mine/moments-0",
        "train.cli segment --features coin.h5 --seed 0 --out runs/mine/bars-0",
    ]


def test_a_table_of_several_tasks_of_which_each_row_has_its_own_numbers(recipe):
    put("moments-0/results.json", {"R@1 IoU=0.5": 0.2, "mIoU": 0.3}, "grounding")
    put("moments-1/results.json", {"R@1 IoU=0.5": 0.24, "mIoU": 0.3}, "grounding")
    put("when-1.json", {"recall": 0.5, "uniform": float("nan")}, "steps")
    mine = recipe()
    # 20 and 24: mean 22, sd sqrt(2 * 2^2 / 1) = 2.8
    assert results.markdown(mine, results.collect(mine, 2)) == (
        "# mine\n\nfeatures, tried on other tasks\n\n"
        "Ours / expected, mean ± sd over seeds, in per cent. Expected: a paper, Table 2.\n\n"
        "|  | R@1 IoU=0.5 | recall | uniform | order | runs |\n"
        "| --- | --: | --: | --: | --: | --- |\n"
        "| moments | 22.0 ± 2.8 / 25.0 | – | – | – | 2 |\n"
        "| when | – | 50.0 / 51.7 | – | – | 1 of 2 |\n"
        "| where | – | – | – | – | no results yet; expected: not known |\n"
        "| bars | – | – | – | – | no results yet; expected: not known |\n"
    )
    results.show(mine, 2)
    drawn = Path("runs/mine/results.svg").read_text(encoding="utf-8")
    assert "R@1 IoU=0.5 (%)" in drawn
    assert "order (%)" in drawn


def test_results_of_another_task_than_a_table_s_are_an_error(recipe):
    put("bars-0/results.json", {"foreground": 0.5, "majority": 0.6}, "segmentation")
    with pytest.raises(BadSetting, match="row 'bars': .* has none of the columns; there are results of segmentation"):
        results.collect(recipe(), 1)


def test_columns_are_those_of_results():
    assert COLUMNS[: len(TASKS["retrieval"])] == TASKS["retrieval"]
    recalls = {(n, m): 0.5 for n in grounding.NS for m in grounding.MS}
    moments = Grounding(queries=1, missing=0, recalls=recalls, mean_iou=0.5).as_dict()
    assert [name for name, value in moments.items() if isinstance(value, float)] == list(TASKS["grounding"])
    placed = evaluate([(Video("task", 1, np.array([[0.0, 1.0]]), np.array([0])), np.zeros((2, 1)))], temperature=1.0)
    assert tuple(name.replace("_", " ") for name in over_seeds([placed])) == TASKS["steps"]
    assert get_args(Kind) == TASKS["probes"]
