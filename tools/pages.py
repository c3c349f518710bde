"""What every chapter's page keeps to. Each rule takes the page's text and its slug and gives its complaints.

``tools/templates/chapter.md`` has the form.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pairs

BOOK = Path(__file__).resolve().parent.parent / "book"
# In this order. A part is a heading, or words that open a box or a paragraph.
PARTS = (
    ("This chapter's question", r"\{admonition\} This chapter's question$"),
    ("Afterwards you can", r"^\*\*Afterwards you can\*\*$"),
    ("Time", r"^\*\*Time\*\* "),
    ("You need", r"^\*\*You need\*\* "),
    ("Beside it", r"^\*\*Beside it\*\* "),
    ("What we measured", r"^## What we measured$"),
    ("As published / at our size", r"As published / at our size$"),
    ("Common mistakes", r"^## Common mistakes$"),
    ("Trade-offs", r"^## Trade-offs$"),
    ("Quiz", r"^## Quiz$"),
    ("Exercises", r"^## Exercises$"),
    ("To remember", r"^## To remember$"),
    ("What is paid, what is owed", r"^## What is paid, what is owed$"),
    ("For teachers", r"^## For teachers$|\{(?:admonition|dropdown)\} For teachers$"),
    ("References", r"^## References$"),
)
_TITLE = re.compile(
    r"\S.* · (?P<kind>practice|assignment) · (?:easy|medium|hard) · [1-9]\d* minutes"
    r" · goals? (?P<goals>\d+(?:(?:, | and )\d+)*)"
)
_BOX = re.compile(
    r"^(?P<fence>`{3,}|:{3,})\{(?P<name>[\w-]+)\}[ \t]*(?P<title>.*)\n(?P<body>(?:.*\n)*?)(?P=fence)[ \t]*$", re.M
)
_FORM = "Name · practice · easy · 10 minutes · goal 2"


def chapters(folder: Path = BOOK) -> list[str]:
    """The slugs of the pages that are chapters: those with a notebook of their own."""
    return [slug for slug in pairs.slugs() if (folder / f"{slug}.md").is_file()]


def section(text: str, title: str) -> str:
    """The text under a heading of the second level, without those below it."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found[1] if found else ""


def boxes(text: str, *names: str) -> list[re.Match]:
    """The directives of these names, in order."""
    return [box for box in _BOX.finditer(text) if box["name"] in names]


def folded(text: str) -> list[re.Match]:
    """The drop-downs, of either kind."""
    marked = re.compile(r"^:class:.*\bdropdown\b", re.M)
    found = boxes(text, "dropdown", "admonition")
    return [box for box in found if box["name"] == "dropdown" or marked.search(box["body"])]


def goals(text: str) -> list[int]:
    """The numbers of the list under "Afterwards you can"."""
    found = re.search(r"^\*\*Afterwards you can\*\*\n(.*?)(?=^:::|^\*\*)", text, re.M | re.S)
    return [int(n) for n in re.findall(r"^(\d+)\. ", found[1], re.M)] if found else []


# ------------------------------------------------------------------------------------- the rules


def has_every_part(text: str, slug: str) -> Iterator[str]:
    places = [(name, match.start() if (match := re.search(words, text, re.M)) else None) for name, words in PARTS]
    yield from (f"no part {name!r}" for name, place in places if place is None)
    there = [(name, place) for name, place in places if place is not None]
    for (name, place), (after, later) in zip(there, there[1:]):
        if later < place:
            yield f"{after!r} stands before {name!r}"
    if len(re.findall(r"^[-*] ", section(text, "To remember"), re.M)) != 3:
        yield "'To remember' is a list of three lines"
    titles = [box["title"].strip() for box in folded(text)]
    if "For teachers" not in titles and not folded(section(text, "For teachers")):
        yield "'For teachers' is folded away: {admonition} For teachers, with :class: dropdown"


def goals_are_numbered_and_exercised(text: str, slug: str) -> Iterator[str]:
    numbers = goals(text)
    if len(numbers) < 2 or numbers != list(range(1, len(numbers) + 1)):
        yield f"the goals are not a list numbered from 1: {numbers}"
    named = set()
    for box in boxes(text, "exercise"):
        if match := _TITLE.fullmatch(box["title"].strip()):
            named |= {int(n) for n in re.findall(r"\d+", match["goals"])}
    yield from (f"no exercise has goal {n}" for n in numbers if n not in named)
    yield from (f"an exercise names goal {n}, which is not among the goals" for n in sorted(named - set(numbers)))


def exercises_say_what_they_are(text: str, slug: str) -> Iterator[str]:
    solved = {box["title"].strip() for box in boxes(text, "solution")}
    kinds = []
    for box in boxes(text, "exercise"):
        title, body = box["title"].strip(), box["body"]
        match = _TITLE.fullmatch(title)
        label = re.search(r"^:label: (\S+)", body, re.M)
        if not match or not label:
            yield f"exercise {title!r}: expected a title such as {_FORM!r}, and a :label: below it"
            continue
        kinds.append(match["kind"])
        yield from (f"exercise {title!r}: no {part}" for part in ("*Hint.*", "*Hand in:*") if part not in body)
        if (match["kind"] == "practice") != (label[1] in solved):
            yield f"exercise {title!r}: a practice problem has a solution on the page, an assignment has none"
        if match["kind"] == "assignment" and f'check("{slug}/' not in body:
            yield f"exercise {title!r}: it does not name its self-check, check(\"{slug}/…\", …)"
    if kinds.count("practice") < 4 or kinds.count("assignment") != 2:
        practice, assignment = kinds.count("practice"), kinds.count("assignment")
        yield f"{practice} practice and {assignment} assignment problems, expected 4 or more and 2"


def each_question_has_its_answer(text: str, slug: str) -> Iterator[str]:
    quiz = section(text, "Quiz")
    answers = folded(quiz)
    asked = quiz
    for box in reversed(answers):
        asked = asked[: box.start()] + asked[box.end() :]
    questions = re.findall(r"^\d+\. |(?<=\n\n)\*\*", "\n\n" + asked.strip(), re.M)  # a numbered line, a bold paragraph
    if len(questions) < 3:
        yield f"the quiz has {len(questions)} questions, expected 3 or more: **1. A question?**"
    if len(questions) != len(answers):
        yield f"the quiz has {len(questions)} questions and {len(answers)} drop-downs, expected one for each"


RULES = (has_every_part, goals_are_numbered_and_exercised, exercises_say_what_they_are, each_question_has_its_answer)
