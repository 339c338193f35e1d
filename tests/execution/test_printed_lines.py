"""Lines that a process prints, and how one without end is cut."""

from __future__ import annotations

import random
import string
from functools import partial

import pytest

from backfill_manager.masking import NamedSecret, mask_text
from backfill_manager.processes.printed_lines import MAX_LINE, Piece, PrintedLines, end_of_piece

SECRET = "b" * 100 + "/n3v3r-shown/" + "c" * 100
LONG = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=7_000))


def pieces_of(text: str, known: tuple[NamedSecret, ...] = ()) -> list[str]:
    """As they come out of a stream, read in parts."""
    lines, content, found = PrintedLines(partial(end_of_piece, known=known)), text.encode(), list[Piece]()
    for start in range(0, len(content), 100):
        found += lines.feed(content[start : start + 100])
    return [text for text, _ in (*found, *lines.rest())]


@pytest.mark.parametrize("filler", ["x", "some words, ", '{"key": 5, "auth": "a"}, ', "token=abc,"])
@pytest.mark.parametrize("secret", [SECRET, LONG], ids=["short", "long"])
def test_no_known_secret_is_cut(filler: str, secret: str) -> None:
    known, reach = (NamedSecret(secret),), len(secret)
    for offset in range(MAX_LINE - reach, MAX_LINE + reach, 1 + reach // 3):
        text = (filler * MAX_LINE)[:offset] + f" {secret} " + (filler * MAX_LINE)[:MAX_LINE]
        found = pieces_of(text, known)
        assert "".join(found) == text and len(found) > 1
        assert sum(secret in piece for piece in found) == 1


@pytest.mark.parametrize("before", ["password=", '"api_token": "', "https://ann:"])
def test_no_secret_is_cut_that_is_known_by_its_name(before: str) -> None:
    length = 200 if "://" in before else 1_500
    value = "".join(random.Random(2).choices(string.ascii_letters + string.digits, k=length))
    whole = f"{before}{value}{'@host/' if before.endswith('ann:') else ''}"
    for offset in range(MAX_LINE - length, MAX_LINE + length, 1 + length // 5):
        text = "x" * (offset - 1) + f" {whole} " + "y " * MAX_LINE
        found = pieces_of(text)
        assert "".join(found) == text and len(found) > 1
        stored = "".join(map(mask_text, found))
        assert not any(value[at : at + 20] in stored for at in range(0, len(value), 10))


def test_characters_of_several_bytes_and_the_ends_of_lines_come_out_as_they_were() -> None:
    text = "é€𝄞" * MAX_LINE
    found = pieces_of(text)
    assert "".join(found) == text and max(map(len, found)) <= MAX_LINE + 1_000
    assert pieces_of("one\r\n\ntwo\nthree\r") == ["one", "", "two", "three"]
    lines = PrintedLines(end_of_piece)
    assert lines.feed(b"\xff\x00\xfe\r\n\xe2\x82") == [("\ufffd\x00\ufffd", True)]
    assert (lines.rest(), lines.rest()) == ([("\ufffd", True)], [])


def test_a_line_that_is_one_secret_is_cut_all_the_same() -> None:
    found = pieces_of("token=" + "a,token=" * MAX_LINE)
    assert len(found) > 1 and max(map(len, found)) < 3 * MAX_LINE


@pytest.mark.parametrize(
    ("printed", "stored"),
    [
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEow/+\nab==\n-----END RSA PRIVATE KEY-----\nnext",
            "-----BEGIN RSA PRIVATE KEY-----\n***\n\n***\n***\n-----END RSA PRIVATE KEY-----\nnext",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow\nno key: goes on", "-----BEGIN PRIVATE KEY-----\n***\nno key: goes on"),
        ('a: 1\npassword: "one of\n  two\n  three"  # why\nuser: me', 'a: 1\npassword: "***"\n  ***\n  ***"  # why\nuser: me'),
        ("export TOKEN='one\ntwo' X=1\nY=2", "export TOKEN='***'\n***' X=1\nY=2"),
        ('password = """\none\ntwo"""\nuser = 1', 'password = """\n***\n***"""\nuser = 1'),
        ("- password: one\n    two\n    three\n  user: me", "- password: ***\n    ***\n    ***\n  user: me"),
        ("token: expired\n  at com.x.Y(Z.java:1)\n  File 'x'", "token: ***\n  at com.x.Y(Z.java:1)\n  File 'x'"),
        ("password: 'x'\nit's\ntoken='y' and 'z", "password: '***'\nit's\ntoken='***' and 'z"),
        ("password = 'cut off" + "\nline" * 62, "password = '***'" + "\n***" * 60 + "\nline" * 2),
    ],
)  # fmt: skip
def test_a_secret_of_several_lines_is_masked_on_each_of_them(printed: str, stored: str) -> None:
    assert "\n".join(map(mask_text, pieces_of(printed))) == stored
    if "PRIVATE KEY" not in printed:  # which is one *** where it is seen as a whole
        assert mask_text(printed) == stored


def test_a_block_of_a_secret_is_masked_over_its_lines_and_only_there() -> None:
    lines = PrintedLines(end_of_piece)
    printed = b"db:\n  password: |\n    hunter2\r\n\n    and 3\n  user: |\n    me\ntoken: >\n  cut off"
    fed = [piece for at in range(0, len(printed), 5) for piece in lines.feed(printed[at : at + 5])]
    shown = [line for line, _ in (*fed, *lines.rest())]
    assert shown == ["db:", "  password: |", "    ***", "", "    ***", "  user: |", "    me", "token: >", "  ***"]
