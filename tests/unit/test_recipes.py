"""Recipes: what is refused, what is run, in which order, and the table that comes of it."""

from pathlib import Path

import pytest

from pipeline.errors import BadSetting, UnknownName
from tests.unit.recipes import noted, put
from workflows import __main__ as program
from workflows import reading, results
from workflows.recipe import Command, jobs

WHOLE = """
about = "a recipe"
source = "a paper, Table 1"
columns = ["R@1", "MdR"]
level = "fused"
seeds = 2

[[steps]]
name = "extract"
run = "pipeline run extract --dataset toy --out toy.h5"

[[steps]]
name = "make"
run = "python -m workflows.planted A --seed {seed} --out world-{seed}.h5"

[[steps]]
name = "weigh"
run = "pipeline run idf --features {data}.h5"

[[steps]]
name = "train"
run = '''
train --features {data}.h5 {losses}
    --seed {seed} --out {run}'''

[[steps]]
name = "evaluate"
run = "train evaluate --checkpoint {run} --part {part} --out {run}/part.json"

[[rows]]
label = "L1 alone"
data = "toy"
losses = "--parts L1"
expect = { "R@1" = 12.5, MdR = 6 }

[[rows]]
label = "all: L3's score"
run = "all"
data = "toy"
losses = ""
part = "toy/val"
level = "later"
direction = "v2t"

[[rows]]
label = "all: the sum"
run = "all"
data = "toy"
losses = ""
part = "toy/val"
expect = { "R@1" = 50 }
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A function that writes a recipe's text and loads it, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def made(text: str = WHOLE):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        return reading.load(Path("mine.toml"))

    return made


def lines(recipe, seeds: int = 2) -> list[str]:
    return [f"{job.title}| {' '.join(command.words)}" for job in jobs(recipe, seeds) for command in job.commands]


def test_steps_run_once_for_each_seed_or_row_by_row_and_what_rows_share_only_once(recipe):
    once = "runs/mine/L1-alone-"
    assert lines(recipe()) == [
        "| pipeline run extract --dataset toy --out toy.h5",
        "seed 0| python -m workflows.planted A --seed 0 --out world-0.h5",
        "seed 1| python -m workflows.planted A --seed 1 --out world-1.h5",
        "L1 alone, seed 0| pipeline run idf --features toy.h5",
        f"L1 alone, seed 0| train --features toy.h5 --parts L1 --seed 0 --out {once}0",
        "L1 alone, seed 1| pipeline run idf --features toy.h5",
        f"L1 alone, seed 1| train --features toy.h5 --parts L1 --seed 1 --out {once}1",
        "all: L3's score, seed 0| pipeline run idf --features toy.h5",
        "all: L3's score, seed 0| train --features toy.h5 --seed 0 --out runs/mine/all-0",
        "all: L3's score, seed 0| train evaluate --checkpoint runs/mine/all-0 --part toy/val "
        "--out runs/mine/all-0/part.json",
        "all: L3's score, seed 1| pipeline run idf --features toy.h5",
        "all: L3's score, seed 1| train --features toy.h5 --seed 1 --out runs/mine/all-1",
        "all: L3's score, seed 1| train evaluate --checkpoint runs/mine/all-1 --part toy/val "
        "--out runs/mine/all-1/part.json",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('about = "a recipe"', "", "about is missing"),
        ("seeds = 2", 'seeds = "2"', "seeds = '2': expected int"),
        ("seeds = 2", "seeds = 0", "seeds = 0: expected 1 or more"),
        ("seeds = 2", "sseds = 2", "unknown key 'sseds'; there are: about, source,"),
        ("seeds = 2", "seeds = ", "line"),
        ('columns = ["R@1", "MdR"]', 'columns = ["R@1", "MdR", "R@2"]', "columns: unknown 'R@2'; there are: R@1,"),
        ('columns = ["R@1", "MdR"]', "", "columns is missing, and there are rows"),
        ('"MdR"]', '"recall"]', "columns: 'recall' is not of retrieval, as others are; make a recipe of its own"),
        ('columns = ["R@1", "MdR"]', 'columns = ["mIoU"]', "row 'L1 alone': level is for columns of retrieval, R@1,"),
        ("MdR = 6", "MnR = 6", "row 'L1 alone': expect has 'MnR', which is not in columns"),
        ("MdR = 6", 'MdR = "6"', "row 'L1 alone': expect, MdR = '6': expected a number"),
        ('level = "fused"', "", "row 'L1 alone': level is missing"),
        ('direction = "v2t"', 'direction = "back"', "direction = 'back': expected 't2v' or 'v2t' or 'v2t, best'"),
        ('name = "extract"', 'name = "train"', "steps: 'train' is there twice"),
        ('name = "extract"\n', "", "step '': name is missing"),
        ('name = "extract"', 'name = "extract"\nworkers = 2', "step 'extract': unknown key 'workers'; there are: name"),
        ("pipeline run extract", "make", "step 'extract': run = 'make --dataset toy --out toy.h5': expected pipeline,"),
        ("--dataset toy", "--dataset {set}", "step 'extract': no row has a variable for {set}"),
        ("--dataset toy", "--dataset {toy", "mine.toml: expected '}' before end of string"),
        ('losses = "--parts L1"', 'loses = "--parts L1"', "row 'L1 alone': no step has a placeholder for 'loses'"),
        ('losses = "--parts L1"', "losses = 3", "row 'L1 alone': losses = 3: expected str"),
        ('losses = "--parts L1"', 'seed = "3"', "row 'L1 alone': seed is set by `seeds`"),
        ('label = "all: the sum"', 'label = "L1 alone"', "rows: 'L1 alone' is there twice"),
        ('data = "toy"\nlosses = "--parts L1"', 'data = "toy"', "row 'L1 alone': its last step is none with results"),
        ("--seed {seed} --out {run}", "--out {run}", "step 'train': trains for each seed, but has no --seed {seed}"),
        ("--seed {seed} --out {run}", "--seed {seed} --out x", "step 'train': two different runs in one place"),
        ("{run}/part.json", "part.json", "step 'evaluate': two different runs in one place, --out part.json"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_that_names_file_and_key(recipe, old, new, said):
    assert WHOLE.count(old) >= 1
    with pytest.raises(BadSetting, match="^mine.toml: .*") as error:
        recipe(WHOLE.replace(old, new, 1))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_recipe_that_is_not_there(tmp_path):
    with pytest.raises(UnknownName, match="unknown recipe 'tabel'; there are: .*toy"):
        reading.find("tabel")
    with pytest.raises(BadSetting, match="cannot read recipe .*none.toml: No such file"):
        reading.find(str(tmp_path / "none.toml"))


@pytest.fixture
def ran(monkeypatch):
    return noted(monkeypatch)


def test_from_leaves_out_what_comes_before(recipe, ran):
    assert program.run(recipe(), 1, start="train") == 0
    assert ran[0] == [
        "train.cli --features toy.h5 --parts L1 --seed 0 --out runs/mine/L1-alone-0",
        "train.cli --features toy.h5 --seed 0 --out runs/mine/all-0",
        "train.cli evaluate --checkpoint runs/mine/all-0 --part toy/val --out runs/mine/all-0/part.json",
    ]
    with pytest.raises(UnknownName, match="unknown step 'tarin'; there are: evaluate, extract, make, train, weigh"):
        program.run(recipe(), 1, start="tarin")


def test_finished_runs_are_passed_over_and_those_that_were_begun_are_resumed(recipe, ran):
    for place in ("L1-alone-0/results.json", "L1-alone-0/settings.json", "all-0/settings.json"):
        (Path("runs/mine") / place).parent.mkdir(parents=True, exist_ok=True)
        (Path("runs/mine") / place).write_text("{}")
    assert program.run(recipe(), 1, start="weigh") == 0
    assert ran[0] == [
        "pipeline.cli run idf --features toy.h5",
        "train.cli resume runs/mine/all-0",
        "train.cli evaluate --checkpoint runs/mine/all-0 --part toy/val --out runs/mine/all-0/part.json",
    ]


def test_a_run_of_another_command_is_not_taken_for_a_recipe_s(recipe, ran):
    assert program.run(recipe(), 1, start="train") == 0
    assert (Path("runs/mine/L1-alone-0/command.txt")).read_text().startswith("train --features toy.h5 --parts L1 ")
    assert program.run(recipe(), 1, start="train") == 0
    with pytest.raises(BadSetting, match="runs/mine/L1-alone-0 was made by another command"):
        program.run(recipe(WHOLE.replace("--parts L1", "--parts L2")), 1, start="train")


def test_force_and_steps_without_a_file_always_run_and_a_joined_file_is_not_joined_again(tmp_path):
    (tmp_path / "both.h5").touch()
    words = ("pipeline", "join", "a.h5", "b.h5", "--out", str(tmp_path / "both.h5"))
    assert Command("join", words).makes == tmp_path / "both.h5"
    assert Command("train", ("train", "--features", "f.h5", "--force", "--out", "r")).makes is None
    assert Command("train", ("train", "--features", "f.h5", "--out=r")).makes == Path("r/results.json")
    assert Command("show", ("train", "compare", "r")).makes is None


def test_the_first_step_that_fails_ends_it_but_videos_that_fail_do_not(recipe, ran, capsys):
    ran[1]["pipeline.cli"] = 1
    assert program.run(recipe(), 1) == 1
    assert [words.split(" --")[0] for words in ran[0]] == [
        "pipeline.cli run extract",
        "workflows.planted A",
        "pipeline.cli run idf",
    ]
    assert "some videos failed" in capsys.readouterr().err


def test_dry_run_prints_commands_and_runs_none(recipe, ran, capsys):
    recipe()
    assert program.main(["mine.toml", "--dry-run", "--seeds", "1"]) == 0
    assert ran[0] == []
    assert "$ train --features toy.h5 --parts L1 --seed 0 --out runs/mine/L1-alone-0" in capsys.readouterr().out
    assert not Path("runs").exists()


def test_wrong_words_are_one_line_and_code_2(recipe, capsys):
    recipe()
    assert program.main(["mine.toml", "--seeds", "0"]) == 2
    assert program.main(["mine.toml", "--from", "nowhere"]) == 2
    assert program.main(["toy", "--table"]) == 2
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["error"] * 3


def result(direction: str, first: float, median: float, note: str = "", oracle: bool = False, best: bool = False):
    found = {"direction": direction, "convention": "best_caption" if best else "group_max", "note": note}
    return {**found, "uses_test_queries": oracle, "R@1": first, "MdR": median}


def test_the_table_of_made_up_results(recipe):
    put("L1-alone-0/results.json", {"fused": [result("t2v", 0.1, 7), result("v2t", 0.9, 1)]})
    put("L1-alone-1/results.json", {"fused": [result("t2v", 0.14, 9)]})
    fused = result("t2v", 0.5, 1, "a gallery of 9, 10 are declared", oracle=True)
    later = [result("v2t", 0.8, 1, best=True), result("v2t", 0.3, 2)]
    put("all-0/part.json", {"fused": [fused], "later": later})
    mine = recipe()
    # 10 and 14: mean 12, sd sqrt(2 * 2^2 / 1) = 2.8; 7 and 9: mean 8, sd 1.4
    assert results.markdown(mine, results.collect(mine, 2)) == (
        "# mine\n\na recipe\n\n"
        "Ours / expected, mean ± sd over seeds, recalls in per cent. Expected: a paper, Table 1.\n\n"
        "|  | score | R@1 | MdR | runs |\n"
        "| --- | --- | --: | --: | --- |\n"
        "| L1 alone | fused, t2v | 12.0 ± 2.8 / 12.5 | 8.0 ± 1.4 / 6.0 | 2 |\n"
        "| all: L3's score | later, v2t | 30.0 | 2.0 | 1 of 2; expected: not known |\n"
        "| all: the sum | fused, t2v | 50.0 / 50.0 | 1.0 | "
        "1 of 2; uses test queries; a gallery of 9, 10 are declared |\n"
    )


def test_a_table_without_results_says_so_and_a_score_that_is_not_there_is_an_error(recipe, capsys):
    mine = recipe()
    assert program.main(["mine.toml", "--table"]) == 0
    text = Path("runs/mine/results.md").read_text(encoding="utf-8")
    assert "| L1 alone | fused, t2v | – / 12.5 | – / 6.0 | no results yet |" in text
    assert "(no results yet)" in Path("runs/mine/results.svg").read_text(encoding="utf-8")
    put("all-0/part.json", {"fused": [result("t2v", 0.5, 1)], "early": []})
    with pytest.raises(BadSetting, match="has no score 'later', v2t; there are: fused, early"):
        results.collect(mine, 1)
    put("L1-alone-0/results.json", {"R@1 IoU=0.5": 0.2}, "grounding")
    with pytest.raises(BadSetting, match="row 'L1 alone': .* has no score 'fused', t2v; there are: no scores"):
        results.collect(mine, 1)
