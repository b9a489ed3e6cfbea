"""CrossTask: instructional videos of 18 primary tasks with the spans of their steps, and of 65 related tasks without.

Source: Zhukov et al., "Cross-task weakly supervised learning from instructional videos", CVPR 2019, the archive
`crosstask_release`.

Layout. The release lies in ROOT or in ROOT/crosstask_release:

* `tasks_primary.txt`, `tasks_related.txt`: blocks of five lines, id, name, page, number of steps, and the steps with
  commas between, an empty line between blocks. They become the tasks.
* `videos.csv`, `videos_val.csv`: `task,video,address`, no header.
* `annotations/TASK_VIDEO.csv`: `step,start,end`, no header; steps count from 1, times are seconds. A step may come
  more than once, or never.

Videos are found by their name without suffix, below ROOT/videos, else below ROOT.

A clip is a video under a task, `TASK_VIDEO`, the whole file, and its label is the task: 89 videos stand under more than
one. Its steps are `CLIP#0`, `CLIP#1`, … in the order of time, with the number of the step in its task from 0. There are
no captions: a task's name tells nothing about one video.

Splits. `crosstask`: val is `videos_val.csv`, train is all else in `videos.csv`, the related tasks too. The published
evaluation draws 30 videos of each primary task from train at random to fit its model, and tests on what is left; that
draw belongs to the trainer and is not made here.

Repair rules; every record that one touches is listed:

* Parts hold pairs of task and video, as released: a video of val that train has under another task stays in both.
* A pair that stands twice in a list counts once. One of `videos_val.csv` that `videos.csv` lacks is kept, in val.
* A pair whose task no task file names is dropped, and so is an annotation file whose pair no list names.
* Rows of an annotation file that are not in the order of time are sorted. Steps that overlap, and spans that stand
  twice in a file, are kept; a step whose end is not after its start is dropped.
* An annotation file without a row leaves its clip without steps.

A text file whose last line has no end is an error: it is cut off. Order: clips by video, then by task.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, KEPT, Oddities
from pipeline.records import Clip, Manifest, Part, Step, Task, Video
from pipeline.sources import check_id, find_media, natural, need_folder, read_lines, tidy

HINT = (
    "crosstask_release with tasks_primary.txt, tasks_related.txt, videos.csv, videos_val.csv and annotations/, "
    "and the videos in videos/"
)
EXPECTED: dict[str, dict[str, int]] = {
    "": {"videos": 4_607, "clips": 4_700, "captions": 0, "steps": 20_919},
    "crosstask/train": {"videos": 4_258, "clips": 4_340},
    "crosstask/val": {"videos": 360, "clips": 360},
}
"""Of the whole release."""
SHARED = {"crosstask": [{"train", "val"}]}
"""11 videos of val stand in train under another task: the released lists are of pairs."""

PRIMARY, RELATED, VIDEOS, VAL = "tasks_primary.txt", "tasks_related.txt", "videos.csv", "videos_val.csv"

SEVERAL = "video under several tasks"
BOTH = "in train, but its video is in val under another task"
TWICE = "pair of task and video listed twice"
ONLY_VAL = "in videos_val.csv but not in videos.csv"
NO_TASK = "task that no task file names"
UNLISTED = "annotation file that no list names"
NO_ROWS = "annotation file without a row"
UNSORTED = "annotation file not in the order of time"
OVERLAP = "steps that overlap"
SAME_SPAN = "same span twice in an annotation file"

_Pair = tuple[str, str]
"""Task and video."""


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load CrossTask from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations.
    """
    folder = _release(need_folder(root, HINT))
    odd = Oddities()
    tasks, notes = _tasks(folder)
    train, val = _lists(folder, tasks, odd)
    pairs = _ordered([*train, *val])
    steps, read = _steps(folder, pairs, tasks, odd)
    ids = dict.fromkeys(video for _, video in pairs)
    media, found = find_media(root, videos, ids)
    primary = sum(tasks[task].primary for task, _ in pairs)
    notes += [] if (folder / VAL).is_file() else [f"{VAL} is not beside {VIDEOS}: all is train"]
    return Manifest(
        dataset="crosstask",
        videos=tuple(Video(name, media.get(name)) for name in ids),
        clips=tuple(Clip(_clip(pair), pair[1], label=pair[0]) for pair in pairs),
        splits=tuple(
            Part("crosstask", name, tuple(map(_clip, part)), ())
            for name, part in (("train", train), ("val", val))
            if part
        ),
        steps=tuple(steps),
        tasks=tuple(tasks.values()),
        oddities=odd.found(),
        notes=(*notes, f"{read:,} of {primary:,} clips of primary tasks have their annotation file", found),
    )


def _release(root: Path) -> Path:
    for folder in (root, root / "crosstask_release"):
        if (folder / VIDEOS).is_file() and (folder / PRIMARY).is_file():
            return folder
    raise BadDataset(f"no {VIDEOS} and {PRIMARY} of CrossTask in {root} or its crosstask_release; expected {HINT}")


def _clip(pair: _Pair) -> str:
    return f"{pair[0]}_{pair[1]}"


def _ordered(pairs: Iterable[_Pair]) -> list[_Pair]:
    return sorted(pairs, key=lambda pair: (natural(pair[1]), natural(pair[0])))


def _tasks(folder: Path) -> tuple[dict[str, Task], list[str]]:
    """Return the tasks by id, and notes."""
    tasks: dict[str, Task] = {}
    notes: list[str] = []
    for name, primary in ((PRIMARY, True), (RELATED, False)):
        if not (folder / name).is_file():
            notes.append(f"{name} is not beside {VIDEOS}: videos of its tasks are left out")
            continue
        found = list(_blocks(folder / name, primary))
        for task in found:
            if tasks.setdefault(task.id, task) is not task:
                raise BadDataset(f"{folder / name}: task {task.id} stands twice in the task files; keep one")
        notes.append(f"{len(found):,} tasks in {name}")
    return {name: tasks[name] for name in sorted(tasks, key=natural)}, notes


def _blocks(file: Path, primary: bool) -> Iterator[Task]:
    lines = [line.strip() for line in read_lines(file, ended=True)]
    for filled, block in groupby(enumerate(lines, start=1), key=lambda line: bool(line[1])):
        if not filled:
            continue
        (row, name), *rest = block
        match [text for _, text in rest]:
            case [title, _, count, texts] if name.isdecimal():
                steps = tuple(tidy(text) for text in texts.split(","))
                if str(len(steps)) == count.lstrip("0") and all(steps):
                    yield Task(name, tidy(title), steps, primary)
                    continue
        raise BadDataset(
            f"{file}, row {row}: the task that begins with {name!r:.40} is not five lines: id, name, page, number of "
            "steps, and as many steps with commas between; download it again"
        )


def _lists(folder: Path, tasks: Mapping[str, Task], odd: Oddities) -> tuple[list[_Pair], list[_Pair]]:
    """Return the pairs of train and those of val."""
    every = _pairs(folder / VIDEOS, tasks, odd)
    val = _pairs(folder / VAL, tasks, odd) if (folder / VAL).is_file() else []
    if not every:
        raise BadDataset(f"{folder / VIDEOS}: no row whose task is in the task files; download both again")
    train = _ordered(set(every) - set(val))
    for pair in _ordered(set(val) - set(every)):
        odd.note(ONLY_VAL, KEPT, _clip(pair))
    held = {video: task for task, video in val}
    under: defaultdict[str, list[str]] = defaultdict(list)
    for task, video in _ordered([*train, *val]):
        under[video].append(task)
    for video, names in under.items():
        if len(names) > 1:
            odd.note(SEVERAL, KEPT, video, ", ".join(names))
    for pair in train:
        if pair[1] in held:
            odd.note(BOTH, KEPT, _clip(pair), f"in val under {held[pair[1]]}")
    return train, val


def _pairs(file: Path, tasks: Mapping[str, Task], odd: Oddities) -> list[_Pair]:
    """Return the pairs of a list, each once, without those of unknown tasks."""
    listed: list[_Pair] = []
    for row, line in enumerate(read_lines(file, ended=True), start=1):
        match line.strip().split(","):
            case [task, video, address] if task.isdecimal() and address:
                listed.append((task, check_id(video, f"{file}, row {row}")))
            case [""]:
                continue
            case _:
                raise BadDataset(f"{file}, row {row}: {line!r:.100}; expected TASK,VIDEO,ADDRESS; download it again")
    ordered = _ordered(listed)
    for one, two in pairwise(ordered):
        if one == two:
            odd.note(TWICE, DROPPED, _clip(one), file.name)
    pairs = list(dict.fromkeys(ordered))
    for pair in pairs:
        if pair[0] not in tasks:
            odd.note(NO_TASK, DROPPED, _clip(pair), file.name)
    return [pair for pair in pairs if pair[0] in tasks]


def _steps(folder: Path, pairs: Sequence[_Pair], tasks: Mapping[str, Task], odd: Oddities) -> tuple[list[Step], int]:
    """Return the steps of all clips, and how many clips have an annotation file."""
    files = {file.stem: file for file in (folder / "annotations").glob("*.csv") if file.is_file()}
    steps: list[Step] = []
    read = 0
    for pair in pairs:
        if file := files.pop(_clip(pair), None):
            read += 1
            steps += _of_clip(_clip(pair), _rows(file, tasks[pair[0]], odd), tasks[pair[0]], odd)
    for name in sorted(files, key=natural):
        odd.note(UNLISTED, DROPPED, name)
    return steps, read


def _rows(file: Path, task: Task, odd: Oddities) -> list[tuple[float, float, int]]:
    """Return (start, end, step from 0) of each row, in the order of time."""
    rows: list[tuple[float, float, int]] = []
    for row, line in enumerate(read_lines(file, ended=True), start=1):
        try:
            step, start, end = line.split(",")
            rows.append((float(start), float(end), int(step) - 1))
        except ValueError:
            raise BadDataset(f"{file}, row {row}: {line!r:.100}; expected STEP,START,END; download it again") from None
        if not (0 <= rows[-1][2] < len(task.steps) and all(0 <= time < math.inf for time in rows[-1][:2])):
            raise BadDataset(
                f"{file}, row {row}: {line!r:.100}; expected a step from 1 to {len(task.steps)}, as task {task.id} "
                "has, and seconds from 0; download it again"
            )
    if not rows:
        odd.note(NO_ROWS, KEPT, file.stem)
    if any(later[0] < earlier[0] for earlier, later in pairwise(rows)):
        odd.note(UNSORTED, "sorted", file.stem)
    return sorted(rows)


def _of_clip(clip: str, rows: Sequence[tuple[float, float, int]], task: Task, odd: Oddities) -> list[Step]:
    steps: list[Step] = []
    for order, (start, end, number) in enumerate(rows):
        if span := odd.span(f"{clip}#{order}", start, end):
            steps.append(Step(f"{clip}#{order}", clip, task.steps[number], *span, number))
    for place, step in enumerate(steps):
        # Sorted by start: those that begin before this one ends are the ones right behind it.
        for later in steps[place + 1 :]:
            if later.start >= step.end:
                break
            odd.note(OVERLAP, KEPT, later.id, f"with {step.id}")
            if (later.start, later.end) == (step.start, step.end):
                odd.note(SAME_SPAN, KEPT, later.id, f"as {step.id}")
    return steps
