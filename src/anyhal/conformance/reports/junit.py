"""A report as JUnit XML, which build servers show. SPDX-License-Identifier: Apache-2.0

A refusal and a waiver are skipped tests with their sentence: neither is a pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as xml

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Mapping[str, Any]) -> str:
    """One suite per group; a case's name is its id without the group."""
    root = xml.Element("testsuites", name=_clean(f"anyhal certify {report['device']}"))
    for group in sorted({case["group"] for case in report["cases"]}):
        cases = [case for case in report["cases"] if case["group"] == group]
        outcomes = [case["outcome"] for case in cases]
        skipped = outcomes.count("refused") + outcomes.count("waived")
        node = xml.SubElement(
            root,
            "testsuite",
            name=_clean(f"{report['device']}.{group}"),
            tests=str(len(cases)),
            failures=str(outcomes.count("fail")),
            skipped=str(skipped),
            errors="0",
            time=f"{sum(case['seconds'] for case in cases):.3f}",
            timestamp=_clean(report["started"][:19]),
        )
        for case in cases:
            _add(node, report["device"], case)
    xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(root, "unicode") + "\n"


def _add(parent: xml.Element, device: str, case: Mapping[str, Any]) -> None:
    group, _, name = case["id"].partition("/")
    node = xml.SubElement(
        parent,
        "testcase",
        classname=_clean(f"{device}.{group}.{case['op'] or group}"),
        name=_clean(name),
        time=f"{case['seconds']:.6f}",
    )
    if case["outcome"] == "fail":
        said = xml.SubElement(
            node, "failure", type=_clean(case["code"]), message=_clean(case["reason"])
        )
        said.text = _clean(case["reproduce"])
    elif case["outcome"] != "pass":
        message = f"{case['outcome']} ({case['code']}): {case['reason']}"
        xml.SubElement(node, "skipped", message=_clean(message))


def _clean(text: str) -> str:
    """Without what XML cannot hold, which messages of backends may."""
    return _NOT_XML.sub("?", text)
