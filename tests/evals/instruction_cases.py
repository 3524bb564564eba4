"""Answers for each IFEval instruction, right and wrong ones and edges: built by a seeded generator, our own words.

`cases()` gives (instruction id, arguments, answer), at least 20 for each of the 25 instructions.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from language_samples import SAMPLES

Case = tuple[dict[str, Any], str]

WORDS = [
    "river", "stone", "garden", "window", "yellow", "engine", "letter", "market", "winter", "simple", "copper",
    "valley", "planet", "bread", "silver", "forest", "quiet", "summer", "doctor", "travel", "music", "paper",
    "harbor", "candle", "mirror", "wagon", "butter", "lemon", "tiger", "carpet",
]  # fmt: skip
RELATIONS = ("at least", "less than")


def words(rng: random.Random, n: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(n))


def sentence(rng: random.Random) -> str:
    return words(rng, rng.randint(3, 6)).capitalize() + rng.choice(".!?")


def prose(rng: random.Random, n: int) -> str:
    return " ".join(sentence(rng) for _ in range(n))


def existence(rng: random.Random) -> Iterator[Case]:
    for _ in range(12):
        keywords = rng.sample(WORDS, 2)
        yield {"keywords": keywords}, f"{prose(rng, 1)} {keywords[0].upper()} and {keywords[1]}s"
        yield {"keywords": keywords}, f"A {keywords[0]}. {rng.choice(['Nothing else.', keywords[1][:-1] + '.'])}"


def frequency(rng: random.Random) -> Iterator[Case]:
    for _ in range(24):
        keyword, n = rng.choice(WORDS), rng.randint(1, 4)
        text = " ".join(rng.choice([keyword, keyword.upper(), keyword + "s", "no"]) for _ in range(rng.randint(1, 7)))
        yield {"keyword": keyword, "frequency": n, "relation": rng.choice(RELATIONS)}, text


def forbidden_words(rng: random.Random) -> Iterator[Case]:
    for _ in range(8):
        bad = rng.sample(WORDS, 2)
        yield {"forbidden_words": bad}, f"One {bad[0]}s, two {bad[1]}ed."
        yield {"forbidden_words": bad}, f"One {bad[0].upper()}."
        yield {"forbidden_words": bad}, f"Two un-{bad[1]}'s and {words(rng, 3)}"


def letter_frequency(rng: random.Random) -> Iterator[Case]:
    for letter in "aeqzt#!":
        for _ in range(4):
            text = prose(rng, 1) + letter.upper() * rng.randint(0, 3) + "#" * rng.randint(0, 3)
            yield {"letter": letter, "let_frequency": rng.randint(1, 4), "let_relation": rng.choice(RELATIONS)}, text


def response_language(rng: random.Random) -> Iterator[Case]:
    asked = [
        "hi", "kn", "mr", "vi", "ko", "sw", "de", "pa", "fa", "ru", "bg", "pt",
        "gu", "te", "it", "ar", "ta", "fi", "ur", "th", "ne", "bn", "en",
    ]  # fmt: skip
    for language in asked:
        yield {"language": language}, SAMPLES[language]
        yield {"language": language}, SAMPLES[rng.choice([other for other in sorted(SAMPLES) if other != language])]
    near = [("hi", "mr"), ("mr", "ne"), ("ne", "hi"), ("ar", "fa"), ("fa", "ur"), ("ur", "ar"), ("ru", "bg")]
    near += [("bg", "ru"), ("ru", "uk"), ("pt", "es"), ("it", "es"), ("de", "en"), ("en", "fr")]
    for wanted, given in near:
        yield {"language": wanted}, SAMPLES[given]
    yield {"language": "en"}, "12345 67890!"
    yield {"language": "en"}, "Okay"
    yield {"language": "de"}, f"{SAMPLES['de']} The end."


def number_words(rng: random.Random) -> Iterator[Case]:
    for _ in range(20):
        n = rng.randint(3, 12)
        text = rng.choice([words, lambda r, k: words(r, k).replace(" ", ", ")])(rng, n + rng.randint(-1, 1))
        yield {"num_words": n, "relation": rng.choice(RELATIONS)}, text
    for text in ("It isn't a well-known fact.", "* one\n* two\n\n3. three", "f(x) = 3.5", "a_b c-d e/f"):
        yield {"num_words": 5, "relation": "at least"}, text
        yield {"num_words": 6, "relation": "at least"}, text


def number_sentences(rng: random.Random) -> Iterator[Case]:
    for _ in range(20):
        n = rng.randint(1, 5)
        yield {"num_sentences": n, "relation": rng.choice(RELATIONS)}, prose(rng, n + rng.randint(-1, 1)) or "No end"
    edges = (
        ("Dr. Jones met Mrs. Smith.", 2), ("He lives in the U.S. with a cat.", 2), ("Tea, milk, etc. are sold.", 2),
        ("It costs 3.5 dollars. Cheap!", 3), ('"Stop!" she said.', 3), ('He said "go." Then he left.', 2),
        ("Wait... what is it?", 2), ("Well... No.", 2), ("One line\nanother line\nthird", 2), ("What?! Really?", 2),
        ("1. Wash the cup.\n2. Dry it.", 3), ("- Wash the cup.\n- Dry it.", 2), ("Visit example.com today.", 2),
        ("I saw J. Smith. He waved.", 3), ("(It rained.) We left.", 2), ("At 5 p.m. we left. Good.", 3),
        ("**Bold.** Next one.", 2), ("Buy milk, e.g. oats.", 2), ("Yes.No.Maybe.", 2), ("Answer: no. Then go.", 2),
    )  # fmt: skip
    for text, n in edges:
        yield {"num_sentences": n, "relation": "at least"}, text


def number_paragraphs(rng: random.Random) -> Iterator[Case]:
    for _ in range(12):
        n = rng.randint(1, 4)
        parts = [sentence(rng) for _ in range(max(1, n + rng.randint(-1, 1)))]
        yield {"num_paragraphs": n}, rng.choice(["\n***\n", "\n\n***\n\n", " *** "]).join(parts)
    edges = (
        "One.\n\n***\n\nTwo.\n\n***", "***\nOne.\n***\nTwo.", "***\nOne.\n***\nTwo.\n***", "One.\n***\n***\nTwo.",
        "One.\n* * *\nTwo.", "One.\n******\nTwo.", "***", "One.\n\nTwo.", "One.\n---\nTwo.", "***One*** and two.",
    )  # fmt: skip
    for text in edges:
        yield {"num_paragraphs": 2}, text
        yield {"num_paragraphs": 1}, text


def nth_paragraph_first_word(rng: random.Random) -> Iterator[Case]:
    for _ in range(14):
        n = rng.randint(2, 4)
        nth, word = rng.randint(1, n), rng.choice(WORDS)
        parts = [sentence(rng) for _ in range(n + rng.choice([0, 0, 0, 1]))]
        start = rng.choice([word.capitalize(), word.upper(), word + ",", f'"{word}', word + "s", f"The {word}"])
        parts[nth - 1] = f"{start} {words(rng, 2)}."
        yield {"num_paragraphs": n, "nth_paragraph": nth, "first_word": word}, "\n\n".join(parts)
    edges = (
        "One.\n\nLemon cake.", "One.\n\n\n\nLemon cake.", "One.\n\n\nLemon cake.", "One.\nLemon cake.",
        "One.\n\n**Lemon** cake.", "One.\n\n'Lemon' cake.", "One.\n\nLemon-cake.", "One.\n\n# Lemon",
        "\n\nOne.\n\nLemon.", "One.\n\nLemon.\n\n", "One.\n\nLemon\ncake", "One.\n \nLemon cake.",
    )  # fmt: skip
    for text in edges:
        yield {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "lemon"}, text


def postscript(rng: random.Random) -> Iterator[Case]:
    endings = (
        "P.S. Call me.", "P.P.S. Call me.", "P. S. Call me.", "p.s. call me", "PS: call me", "PPS call me", "P.S",
        "P.P.S", "P. P. S. Call", "**P.S.** Call me.", "P.S.", "Maps. Call me.", "Post scriptum: call me.",
    )  # fmt: skip
    for ending in endings:
        for marker in ("P.S.", "P.P.S"):
            yield {"postscript_marker": marker}, f"{sentence(rng)}\n\n{ending}"


def number_placeholders(rng: random.Random) -> Iterator[Case]:
    for _ in range(14):
        n = rng.randint(1, 4)
        text = " ".join(f"{rng.choice(WORDS)} [{rng.choice(WORDS)}]" for _ in range(n + rng.randint(-1, 1))) or "none"
        yield {"num_placeholders": n}, text
    edges = ("[]", "[ ]", "[[name]]", "[name][city]", "[name\ncity]", "(name)", "[link](address)", "{name}", "[a b-c]")
    for text in edges:
        yield {"num_placeholders": 1}, text


def number_bullet_lists(rng: random.Random) -> Iterator[Case]:
    for _ in range(12):
        n, mark = rng.randint(1, 4), rng.choice(["* ", "- ", "  * ", "+ ", "1. ", "• "])
        yield {"num_bullets": n}, "\n".join(mark + words(rng, 2) for _ in range(max(1, n + rng.choice([0, 0, 1]))))
    edges = (
        "* one\n* two", "* one\n- two", "*one\n*two", "-one\n-two", "**Title**\n* one\n* two", "* one\n\n* two\n---",
        "*Note*\n* one\n* two", "one * two * three", "* one\n  * inner", "- 5\n-5", "*\n* two",
        "Text - with\n* one\n* two",
    )  # fmt: skip
    for text in edges:
        yield {"num_bullets": 2}, text


def number_highlighted_sections(rng: random.Random) -> Iterator[Case]:
    for _ in range(12):
        n, mark = rng.randint(1, 4), rng.choice(["*", "**", "_"])
        parts = [f"{mark}{words(rng, 2)}{mark} {words(rng, 1)}" for _ in range(n + rng.randint(-1, 1))]
        yield {"num_highlights": n}, " ".join(parts) or "plain"
    edges = (
        "*a* and **b**", "**a** *b*", "*a\nb* *c*", "** ** * *", "* one\n* two", "***a*** *b*",
        "* one *two*\n* three *four*",
        "*a**b*", "a * b * c * d * e", "*a* b*", "**a*", "* item *", "*one * two*",
    )  # fmt: skip
    for text in edges:
        yield {"num_highlights": 2}, text
        yield {"num_highlights": 1}, text


def multiple_sections(rng: random.Random) -> Iterator[Case]:
    for _ in range(14):
        n, mark = rng.randint(1, 4), rng.choice(["Section", "SECTION", "Day", "Audience"])
        parts = [f"{mark} {i + 1}\n{sentence(rng)}" for i in range(n + rng.randint(-1, 1))]
        yield {"section_spliter": mark, "num_sections": n}, "\n".join(parts) or "none"
    edges = (
        "Section 1: a\nSection 2: b", "section 1\nsection 2", "SECTION 1\nSECTION 2", "Section I\nSection II",
        "Section A\nSection B", "Section1\nSection2", "**Section 1** a **Section 2** b", "Section  1\nSection  2",
        "Section 1\nas Section 1 says", "Subsection 1\nSection 2",
    )  # fmt: skip
    for text in edges:
        yield {"section_spliter": "Section", "num_sections": 2}, text


def title(rng: random.Random) -> Iterator[Case]:
    for _ in range(8):
        yield {}, f"<<{words(rng, 2)}>>\n{prose(rng, 1)}"
        yield {}, f"{rng.choice(['# ', '<', '**'])}{words(rng, 2)}{rng.choice(['', '>', '**'])}\n{prose(rng, 1)}"
    for text in ("<<>>", "<< >>", "<<a\nb>>", "<<<a>>>", "<a>", "text <<a>> text", "<<a>", "<<a > b>>", "<< >> <<b>>"):
        yield {}, text


def json_format(rng: random.Random) -> Iterator[Case]:
    for _ in range(6):
        value = json.dumps({rng.choice(WORDS): [rng.randint(0, 9), rng.choice(WORDS)]})
        yield (
            {},
            rng.choice(["{}", "```json\n{}\n```", "```\n{}\n```", "```JSON\n{}\n```", "  {}\n"]).replace("{}", value),
        )
        yield {}, rng.choice([value[:-1], f"Here: {value}", value.replace('"', "'"), value + value])
    for text in ("[1, 2]", "42", '"text"', "null", "true", "NaN", "{'a': 1}", '{"a": 1,}', "{}", "```json\n{}",
                 "{}\n```",
                 '```python\n{"a": 1}\n```'):  # fmt: skip
        yield {}, text


def constrained_response(rng: random.Random) -> Iterator[Case]:
    for answer in ("yes", "no", "maybe", "YES", "perhaps"):
        yield {}, f"My answer is {answer}."
        yield {}, f"{sentence(rng)} My answer is {answer}. {sentence(rng)}"
        yield {}, f"My answer is {answer}"
        yield {}, f"my answer is {answer}."
        yield {}, f"My answer is: {answer}."


def two_responses(rng: random.Random) -> Iterator[Case]:
    for _ in range(6):
        a, b = prose(rng, 1), prose(rng, 2)
        yield {}, f"{a}{rng.choice(['******', chr(10) + '******' + chr(10)])}{b}"
        yield (
            {},
            rng.choice([f"{a}\n***\n{b}", f"{a}\n******\n{a}", f"{a}\n\n{b}", f"{a}\n******\n{b}\n******\n{a} more"]),
        )
    edges = ("a******b******", "******a******b", "******a******b******", "a************b", "******", "a******",
             "a*******b",
             "a ******\n a", "a***** b")  # fmt: skip
    for text in edges:
        yield {}, text


def repeat_prompt(rng: random.Random) -> Iterator[Case]:
    for _ in range(6):
        prompt = f"Write about {words(rng, 3)}."
        for text in (f"{prompt}\n\n{sentence(rng)}", f"  {prompt.upper()} Yes.", f"Sure! {prompt} Yes.", f'"{prompt}"',
                     prompt[:-2]):  # fmt: skip
            yield {"prompt_to_repeat": prompt}, text


def end_checker(rng: random.Random) -> Iterator[Case]:
    for _ in range(6):
        end = sentence(rng)
        for text in (f"{sentence(rng)} {end}", f'"{words(rng, 2)}. {end}"', f"{words(rng, 2)} {end} Bye",
                     f"So {end.upper()}\n",
                     f"{words(rng, 2)} {end[:-1]}"):  # fmt: skip
            yield {"end_phrase": end}, text


def quotation(rng: random.Random) -> Iterator[Case]:
    for _ in range(4):
        text = prose(rng, 1)
        for form in (f'"{text}"', f' "{text}"\n', f"“{text}”", f"'{text}'", f'"{text}', f'{text}"', f'"{text}" ok'):
            yield {}, form
    yield {}, '"'
    yield {}, '""'


def english_capital(rng: random.Random) -> Iterator[Case]:
    for language in ("en", "de", "fr", "ru", "hi", "es", "sw", "ko"):
        yield {}, SAMPLES[language].upper()
        yield {}, SAMPLES[language]
    for text in (
        "THE CAT IS ON THE MAT.",
        "THE CAT is ON THE MAT.",
        "12345",
        "A 1 B",
        "HELLO WORLD",
        "I AM HERE, 24/7!",
    ):
        yield {}, text
        yield {}, f"{text} {words(rng, 1)}"


def english_lowercase(rng: random.Random) -> Iterator[Case]:
    for language in ("en", "de", "fr", "ru", "hi", "es", "sw", "ko"):
        yield {}, SAMPLES[language].lower()
        yield {}, SAMPLES[language]
    for text in ("the cat is on the mat.", "the cat is on the Mat.", "12345", "a 1 b", "we were here, 24/7 and you?"):
        yield {}, text
        yield {}, f"{text} the end of {words(rng, 1)}"


def capital_word_frequency(rng: random.Random) -> Iterator[Case]:
    for _ in range(14):
        n = rng.randint(1, 4)
        text = " ".join(rng.choice([str.upper, str.lower, str.capitalize])(w) for w in words(rng, 6).split())
        yield {"capital_frequency": n, "capital_relation": rng.choice(RELATIONS)}, text
    edges = (
        "I AM.",
        "A DOG-HOUSE",
        "DON'T GO",
        "U.S. NAVY",
        "COVID-19 5G",
        "NO, NO!",
        "**YES** _NO_",
        "YES/NO",
        "R&D II",
        "x Y",
    )
    for text in edges:
        yield {"capital_frequency": 2, "capital_relation": "at least"}, text
        yield {"capital_frequency": 3, "capital_relation": "at least"}, text


def no_comma(rng: random.Random) -> Iterator[Case]:
    for _ in range(10):
        text = prose(rng, 2)
        yield {}, text
        yield {}, text.replace(" ", rng.choice([", ", ","]), 1)
    for text in ("1,000", "one、two", "one，two", "a;b", ","):
        yield {}, text


GENERATORS: dict[str, Callable[[random.Random], Iterator[Case]]] = {
    "change_case:capital_word_frequency": capital_word_frequency,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "combination:repeat_prompt": repeat_prompt,
    "combination:two_responses": two_responses,
    "detectable_content:number_placeholders": number_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:json_format": json_format,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:number_bullet_lists": number_bullet_lists,
    "detectable_format:number_highlighted_sections": number_highlighted_sections,
    "detectable_format:title": title,
    "keywords:existence": existence,
    "keywords:forbidden_words": forbidden_words,
    "keywords:frequency": frequency,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
    "length_constraints:number_paragraphs": number_paragraphs,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_words": number_words,
    "punctuation:no_comma": no_comma,
    "startend:end_checker": end_checker,
    "startend:quotation": quotation,
}


def cases() -> Iterator[tuple[str, dict[str, Any], str]]:
    """All of them; the same at every call."""
    for name, generate in GENERATORS.items():
        for arguments, answer in generate(random.Random(name)):
            yield name, arguments, answer
