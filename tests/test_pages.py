"""Every chapter's page keeps the rules of ``tools/pages.py``, and each rule can tell when it is broken."""

import re

import new_chapter
import pages
import pytest

TEMPLATE = new_chapter.fill("chapter.md", "subwords")


@pytest.mark.parametrize("slug", pages.chapters())
@pytest.mark.parametrize("rule", pages.RULES, ids=lambda rule: rule.__name__)
def test_page(slug, rule):
    complaints = list(rule((pages.BOOK / f"{slug}.md").read_text(encoding="utf-8"), slug))
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("rule", pages.RULES, ids=lambda rule: rule.__name__)
def test_the_template_is_faultless(rule):
    assert list(rule(TEMPLATE, "subwords")) == []


def swap(old, new):
    assert re.search(old, TEMPLATE, re.M | re.S), old
    return re.sub(old, new, TEMPLATE, count=1, flags=re.M | re.S)


BROKEN = [
    ("has_every_part", swap("^## To remember$", "## Summary"), "no part 'To remember'"),
    ("has_every_part", swap(r"As published / at our size", "Comparison"), "no part 'As published"),
    ("has_every_part", swap(r"(## Common mistakes\n.*?)(## Trade-offs\n.*?)(?=## Quiz)", r"\2\1"), "stands before"),
    ("has_every_part", swap(r"(## To remember\n\n- TODO\n)- TODO\n", r"\1"), "a list of three lines"),
    ("has_every_part", swap(r"(For teachers\n):class: dropdown\n", r"\1"), "folded away"),
    ("goals_are_numbered_and_exercised", swap(r"^1\. TODO derive", "- TODO derive"), "not a list numbered from 1"),
    ("goals_are_numbered_and_exercised", swap(r"^(2\. TODO say.*?)\n", r"\1\n3. prove\n"), "no exercise has goal 3"),
    ("goals_are_numbered_and_exercised", swap("minutes · goal 2", "minutes · goal 7"), "names goal 7"),
    ("exercises_say_what_they_are", swap(" · easy · 10 minutes", " · 10 minutes"), "expected a title such as"),
    ("exercises_say_what_they_are", swap(" · 10 minutes · goal 1", " · 10 minutes"), "expected a title such as"),
    ("exercises_say_what_they_are", swap(":label: ex-subwords-value\n", ""), "and a :label:"),
    ("exercises_say_what_they_are", swap(r"\*Hand in:\*", ""), "no .Hand in"),
    ("exercises_say_what_they_are", swap(r"\*Hint\.\*", ""), "no .Hint"),
    ("exercises_say_what_they_are", swap(r"\{solution\} ex-subwords-code", "{note}"), "has a solution on the page"),
    ("exercises_say_what_they_are", swap("solution} ex-subwords-code", "solution} ex-subwords-variant"), "has none"),
    ("exercises_say_what_they_are", swap(r"check\(\"subwords/variant", 'check("other/variant'), "name its self-check"),
    ("exercises_say_what_they_are", swap("practice · hard", "assignment · hard"), "3 practice and 3 assignment"),
    ("each_question_has_its_answer", swap(r"(Another\?\*\*\n\n)```.*?```\n", r"\1"), "3 questions and 2 drop-downs"),
    ("each_question_has_its_answer", swap(r"\*\*2\. TODO Another\?\*\*\n", ""), "2 questions, expected 3"),
    ("each_question_has_its_answer", swap("^## Quiz$", "## Questions"), "0 questions, expected 3"),
]


@pytest.mark.parametrize("name, text, complaint", BROKEN, ids=[f"{i}-{name}" for i, (name, *_) in enumerate(BROKEN)])
def test_a_broken_page_is_found(name, text, complaint):
    complaints = list(getattr(pages, name)(text, "subwords"))
    assert any(re.search(complaint, said) for said in complaints), complaints


def test_every_rule_is_tested():
    assert {name for name, *_ in BROKEN} == {rule.__name__ for rule in pages.RULES}


ANSWER = "\n\n```{{dropdown}} Answer\n1. a\n2. b\n```\n\n"
QUIZ = f"## Quiz\n\n{{}}{ANSWER}{{}}{ANSWER}{{}}{ANSWER}## Exercises\n"
LIST = "1. a?\n2. b?\n3. c?"


@pytest.mark.parametrize("three", [("**1.** a?", "**2.** b?", "**3.** c?"), ("**a?**", "**b?**", "**c?**"), (LIST, "", "")])
def test_questions_may_be_written_in_several_ways(three):
    assert list(pages.each_question_has_its_answer(QUIZ.format(*three), "subwords")) == []


def test_several_goals_in_one_title():
    text = TEMPLATE.replace("30 minutes · goal 2", "30 minutes · goals 1 and 2")
    text = text.replace("45 minutes · goal 2", "45 minutes · goals 1, 2")
    assert all(list(rule(text, "subwords")) == [] for rule in pages.RULES)
