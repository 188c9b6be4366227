"""The picture of the architecture shows imports that exist, and all packages."""

from __future__ import annotations

import re
from functools import cache

import grimp

from .checkout import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

ARROW = re.compile(r"\s+(-->|-\. .+? \.->)\s+")
NODE = re.compile(r"\w+")


def picture(text: str) -> str:
    """The one Mermaid block of a page."""
    (block,) = re.findall(r"```mermaid\n(.*?)```", text, re.DOTALL)
    return str(block)


def arrows(block: str) -> set[tuple[str, str, str]]:
    """From, kind and to of each arrow: solid is an import, dotted a message."""
    found = set()
    for line in block.splitlines()[1:]:
        nodes, kinds = ARROW.split(line.strip())[::2], ARROW.findall(line)
        assert kinds, f"not an arrow: {line}"
        for left, kind, right in zip(nodes, kinds, nodes[1:], strict=False):
            found |= {
                (source, "import" if kind == "-->" else "message", target)
                for source in NODE.findall(re.sub(r"[\[(].*[\])]", "", left))
                for target in NODE.findall(re.sub(r"[\[(].*[\])]", "", right))
            }
    return found


def outside(block: str) -> set[str]:
    """What is no package: nodes with a text of their own."""
    return set(re.findall(r"(\w+)[\[(]", re.sub(r'".*?"', "", block)))


@cache
def imports() -> frozenset[tuple[str, str]]:
    """Which part of the top level imports which."""
    graph = grimp.build_graph("django_outbox")
    return frozenset(
        (module.split(".")[1], imported.split(".")[1])
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if module.count(".") and imported.count(".")
    )


def parts() -> set[str]:
    """The packages and modules of the top level."""
    children = grimp.build_graph("django_outbox").find_children("django_outbox")
    return {name.split(".")[1] for name in children}


def test_every_solid_arrow_is_an_import() -> None:
    drawn = arrows(picture(PAGE))
    solid = {(source, to) for source, kind, to in drawn if kind == "import"}
    assert len(solid) > 5
    assert solid - imports() == set()


def test_every_arrow_is_between_packages_and_the_world() -> None:
    block = picture(PAGE)
    ends = {end for source, _, to in arrows(block) for end in (source, to)}
    assert ends - outside(block) - parts() == set()


def test_every_package_is_listed() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(parts())


def test_the_readme_has_the_same_picture() -> None:
    assert picture((ROOT / "README.md").read_text("utf-8")) == picture(PAGE)
