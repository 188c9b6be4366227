"""Reading a reaper.yaml: strict YAML, Go's notations, sections of known keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from django_outbox.exceptions import ConfigurationError
from django_outbox.standalone.yaml_file import (
    Section,
    conninfo,
    read,
    seconds,
    table_name,
)


def written(folder: Path, text: str) -> Path:
    path = folder / "reaper.yaml"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1s", 1.0),
        ("500ms", 0.5),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("1h2m3s4ms", 3723.004),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("7ns", 7e-9),
        ("2000000000", 2.0),
        ("0", 0.0),
        ("0s", 0.0),
    ],
)
def test_a_go_duration_becomes_seconds(text: str, expected: float) -> None:
    """Units add up; a plain number counts nanoseconds, as in Go's YAML."""
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "s", "1x", "1 s", "-1s", "1s ", "1d", "1.2.3s", "٣s", "1e3s"]
)
def test_what_is_no_go_duration_is_refused(text: str) -> None:
    """Neither signs nor spaces nor other units, and digits are ASCII."""
    with pytest.raises(ValueError, match="is not a"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("outbox", "outbox"),
        ("sales.outbox", "sales.outbox"),
        ("Sales.OutBox", "sales.outbox"),
        ('"Sales"."Out box"', "Sales.Out box"),
        ('sales."Outbox"', "sales.Outbox"),
        ("_o$1", "_o$1"),
    ],
)
def test_a_table_is_named_as_sql_names_it(text: str, expected: str) -> None:
    """What is not quoted is lower case."""
    assert table_name(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1outbox",
        "out box",
        "a.b.c",
        "sales.",
        ".outbox",
        'x"; drop table y; --',
        '"a.b"',
        '""',
        '"a""b"',
        "o" * 64,
        '"' + "ö" * 32 + '"',
    ],
)
def test_what_is_no_table_name_is_refused(text: str) -> None:
    """Only names that become an identifier without a doubt are taken."""
    with pytest.raises(ValueError, match="is not a"):
        table_name(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("user=u password= dbname=d", "user=u password='' dbname=d"),
        ("user=u password=  dbname = d", "user=u password='' dbname = d"),
        ("dbname=d password=", "dbname=d password="),
        ("password=k3y+/abc= dbname=d", "password=k3y+/abc= dbname=d"),
        ("password=' a= b=c' dbname=d", "password=' a= b=c' dbname=d"),
        (r"password='it\'s a= b=c'", r"password='it\'s a= b=c'"),
        ("postgres://u:p%3D%20b@h/d", "postgres://u:p%3D%20b@h/d"),
    ],
)
def test_an_empty_keyword_does_not_swallow_the_next_one(
    text: str, expected: str
) -> None:
    """`password= dbname=d` is no password, and not the password "dbname=d"."""
    assert conninfo(text) == expected


def test_scalars_stay_the_text_of_the_file(tmp_path: Path) -> None:
    """YAML makes neither a number of a password nor a truth value of a level."""
    path = written(tmp_path, "a: 0123\nb: Off\nc: 1_0\nd: 1:30\ne:\nf: ~\ng: '~'\n")
    assert read(path) == {
        "a": "0123",
        "b": "Off",
        "c": "1_0",
        "d": "1:30",
        "e": None,
        "f": None,
        "g": "~",
    }


def test_anchors_and_merges_work(tmp_path: Path) -> None:
    """A merged mapping may be overridden."""
    path = written(tmp_path, "a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\n")
    assert read(path) == {"a": {"p": "1", "q": "2"}, "b": {"p": "1", "q": "3"}}


def test_an_empty_file_is_an_empty_mapping(tmp_path: Path) -> None:
    """Every key has a default."""
    assert read(written(tmp_path, "# nothing\n")) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "has a duplicate key at line 3, column 1."),
        ("a:\n  b: [1\nc: 2\n", "is not valid YAML at line 3, column 2."),
        ("a: !secret s\n", "is not valid YAML at line 1, column 4."),
        ("? [a]\n: 1\n", "is not valid YAML at line 1, column 3."),
        ("a: 1\n---\nb: 2\n", "is not valid YAML at line 2, column 1."),
        ("a: \x07\n", "is not valid YAML."),
        ("- a\n", "must be a mapping of keys to values."),
        ("a\n", "must be a mapping of keys to values."),
    ],
)
def test_a_file_that_cannot_be_read_is_told_by_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    """The place is enough: the text around it may hold a password."""
    with pytest.raises(ConfigurationError) as caught:
        read(written(tmp_path, text))
    assert str(caught.value) == message


def test_an_undefined_alias_is_not_quoted(tmp_path: Path) -> None:
    """A password that begins with a star looks like an alias."""
    with pytest.raises(ConfigurationError) as caught:
        read(written(tmp_path, "sasl.password: *geheim\n"))
    assert "geheim" not in str(caught.value)


def test_a_missing_file_is_told_in_one_line(tmp_path: Path) -> None:
    """The system's own words say why."""
    with pytest.raises(ConfigurationError, match=r"^cannot be read: No such file"):
        read(tmp_path / "missing.yaml")


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    """Nothing is guessed."""
    (tmp_path / "reaper.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigurationError, match=r"^is not UTF-8 text\.$"):
        read(tmp_path / "reaper.yaml")


def test_an_unknown_key_is_told_with_its_path_and_the_nearest_one() -> None:
    """A key of which nobody reads the value is a mistake."""
    with pytest.raises(ConfigurationError) as caught:
        Section({"leaderTopik": "t"}, path="harvest", known=("leaderTopic", "limits"))
    assert str(caught.value) == (
        "harvest.leaderTopik: unknown key. Did you mean 'leaderTopic'?"
    )


def test_an_unknown_key_that_resembles_none_gets_no_guess() -> None:
    """A far-fetched guess would mislead."""
    with pytest.raises(ConfigurationError, match=r"^zzz: unknown key\.$"):
        Section({"zzz": "1"}, known=("limits",))


def test_what_should_be_a_mapping_and_is_not_is_refused() -> None:
    """Its text is not shown."""
    with pytest.raises(ConfigurationError) as caught:
        Section({"limits": "geheim"}).section("limits", known=())
    assert str(caught.value) == "limits: must be a mapping of keys to values."


def test_what_should_be_a_scalar_and_is_not_is_refused() -> None:
    """Neither a list nor a mapping is a value."""
    with pytest.raises(ConfigurationError, match=r"^name: must be a plain value\.$"):
        Section({"name": ["geheim"]}).text("name")


def test_empty_values_count_as_missing() -> None:
    """As in goharvest, an empty text means the default."""
    section = Section({"a": "", "b": None, "c": "x"})
    assert (section.text("a"), section.text("b"), section.text("d")) == (None,) * 3
    assert list(section) == ["c"]


@pytest.mark.parametrize("text", ["1.5", "-1", "ten", "1_000", "9" * 19])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    """The message names the key and the value."""
    section = Section({"sendBuffer": text}, path="limits")
    with pytest.raises(ConfigurationError) as caught:
        section.integer("sendBuffer")
    assert str(caught.value) == f"limits.sendBuffer: {text!r} is not a number."
