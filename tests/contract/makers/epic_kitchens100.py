"""EPIC-KITCHENS-100's retrieval tables in small."""

from pathlib import Path

from tests.contract.makers import Shuffle

ANNOTATIONS = [
    "EPIC_100_retrieval_train.csv",
    "EPIC_100_retrieval_test.csv",
    "EPIC_100_retrieval_train_sentence.csv",
    "EPIC_100_retrieval_test_sentence.csv",
]
_HEADER = (
    "narration_id,participant_id,video_id,narration_timestamp,start_timestamp,stop_timestamp,start_frame,stop_frame,"
    "narration,verb,verb_class,noun,noun_class,all_nouns,all_noun_classes"
)


def make(root: Path, shuffle: Shuffle) -> Path:
    """Two videos of train and one of test, six narrations each; the first sentence of each part is listed twice."""
    for part, videos in (("train", ("P02_1", "P02_12")), ("test", ("P03_1",))):
        rows, sentences = [], []
        for video in videos:
            for n in range(6):
                times = f"00:59:{n:02}.{n}0,01:00:{n:02}.00" if n < 3 else f"01:00:1{n}.50,01:00:1{n}.75"
                nouns = f"plate,2,\"['plate', 'lid']\",\"[2, {n}]\""
                rows.append(f"{video}_{n},P01,{video},,{times},1,2,take plate {n % 4},take,0,{nouns}")
                sentences.append(f"{video}_{n},take plate {n % 4}")
        for name, header, lines in (
            (f"EPIC_100_retrieval_{part}.csv", _HEADER, rows),
            (f"EPIC_100_retrieval_{part}_sentence.csv", "narration_id,narration", sentences[:5]),
        ):
            (root / name).write_text("\n".join([header, *shuffle(lines)]) + "\n")
    (root / "P02/videos").mkdir(parents=True, exist_ok=True)
    (root / "P02/videos/P02_12.MP4").touch()
    return root
