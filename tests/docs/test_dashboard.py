"""The dashboard for Grafana and the alerting rules ask for metrics that a journal really has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jlog
from cli.command import do
from docs.console import DOCS

NAME = re.compile(r"\bjlog_\w+")


def test_each_panel_and_each_rule_asks_for_metrics_that_are_exported(tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.append(b"tea")
    jlog.Journal(tmp_path / "journal").add_subscriber("billing")
    exported = {line.split("{")[0] for line in do("metrics", tmp_path / "journal").out.decode().splitlines() if line[0] != "#"}
    board = json.loads((DOCS / "services" / "grafana.json").read_text(encoding="utf-8"))
    asked = {target["expr"] for panel in board["panels"] for target in panel["targets"]}
    rules = set(re.findall(r"expr: (.*)", (DOCS / "statistics.md").read_text(encoding="utf-8")))
    assert (len(board["panels"]), len(rules)) == (12, 3)
    for question in asked | rules:
        names = set(NAME.findall(question))
        assert names, question
        assert names <= exported, question


def test_no_panel_lies_over_another() -> None:
    board = json.loads((DOCS / "services" / "grafana.json").read_text(encoding="utf-8"))
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [(at["x"] + x, at["y"] + y) for at in places for x in range(at["w"]) for y in range(at["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
