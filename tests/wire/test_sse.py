"""The event stream grammar: read in any pieces, against a slow reader that follows the text of the standard."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.wire.sse import KEEP_ALIVE, EventStream, EventTooLarge, ServerSentEvent, frame

FIXTURE = (
    b"\xef\xbb\xbf: a byte order mark comes first\n"
    b"\n"
    b'id: 1\ndata: {"a":1}\n\n'
    b"id: 2\r\nevent: update\r\ndata: one\r\ndata:two\r\ndata:  three\r\n\r\n"
    b"retry: 1500\rdata: \xf0\x9f\x91\x8b \xc3\xa9\r\r"
    b"data: mixed\r\n\r"
    b"data: line ends\r\r\n"
    b":\n\n\n\n"
    b"id\ndata\n\n"
    b"id: nul\0\nretry: 1s\nunknown: x\ndata: y\n:data: no\n\n"
    b"event: without data\nid: 7\n\n"
    b"data: keeps seven\n\n"
    b"data:unfinished"
)
EVENTS = [
    ServerSentEvent("message", b'{"a":1}', "1", None),
    ServerSentEvent("update", b"one\ntwo\n three", "2", None),
    ServerSentEvent("message", "👋 é".encode(), "2", 1500),
    ServerSentEvent("message", b"mixed", "2", None),
    ServerSentEvent("message", b"line ends", "2", None),
    ServerSentEvent("message", b"", None, None),
    ServerSentEvent("message", b"y", None, None),
    ServerSentEvent("message", b"keeps seven", "7", None),
]


def read(*chunks: bytes) -> tuple[list[ServerSentEvent], bytes]:
    stream = EventStream()
    return read_with(stream, chunks), stream.close()


def read_with(stream: EventStream, chunks: Iterable[bytes]) -> list[ServerSentEvent]:
    return [event for chunk in chunks for event in stream.feed(chunk)]


def slow_read(stream: bytes) -> list[ServerSentEvent]:
    """WHATWG HTML §9.2.5 and §9.2.6 word by word, over a whole stream."""
    lines: list[bytes] = []
    line = b""
    at = 3 if stream[:3] == b"\xef\xbb\xbf" else 0
    while at < len(stream):
        if stream[at : at + 1] in (b"\r", b"\n"):
            lines.append(line)
            line = b""
            at += 2 if stream[at : at + 2] == b"\r\n" else 1
        else:
            line += stream[at : at + 1]
            at += 1

    events = []
    data, kind, id_buffer = b"", "", ""
    retry: int | None = None
    for line in lines:
        if line == b"":
            if data:
                events.append(ServerSentEvent(kind or "message", data[:-1], id_buffer or None, retry))
            data, kind, retry = b"", "", None
            continue
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        match name:
            case b"data":
                data += value + b"\n"
            case b"event":
                kind = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                id_buffer = value.decode("utf-8", "replace")
            case b"retry" if value and all(byte in b"0123456789" for byte in value):
                retry = int(value)
    return events


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


field = st.sampled_from([b"data", b"id", b"event", b"retry", b"", b"datax", b" data", b"unknown"])
value = st.one_of(
    st.binary(max_size=8),
    st.text(max_size=8).map(str.encode),
    st.integers(0, 99_999).map(lambda number: b"%d" % number),
)
line_end = st.sampled_from([b"\n", b"\r\n", b"\r"])
some_line = st.one_of(
    st.just(b""),
    st.tuples(field, st.sampled_from([b":", b": ", b":  ", b""]), value).map(b"".join),
)
some_stream = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"]),
    st.lists(st.tuples(some_line, line_end).map(b"".join), max_size=20).map(b"".join),
    st.binary(max_size=6),
).map(b"".join)
places = st.lists(st.integers(0, 10_000), max_size=8)


def test_every_form_of_the_grammar_is_read() -> None:
    assert read(FIXTURE) == (EVENTS, b"data:unfinished")


def test_the_slow_reader_of_these_tests_reads_the_fixture_alike() -> None:
    assert slow_read(FIXTURE) == EVENTS


@pytest.mark.parametrize("second", [None, 0, 1, 2, 3])
def test_a_cut_at_any_byte_changes_nothing(second: int | None) -> None:
    for at in range(len(FIXTURE) + 1):
        cuts = [at] if second is None else [at, min(at + second, len(FIXTURE))]
        assert read(*cut(FIXTURE, cuts)) == (EVENTS, b"data:unfinished")


def test_one_byte_at_a_time_changes_nothing() -> None:
    assert read(*(FIXTURE[at : at + 1] for at in range(len(FIXTURE)))) == (EVENTS, b"data:unfinished")


@given(some_stream, places)
def test_any_stream_in_any_pieces_is_read_as_the_standard_says(stream: bytes, where: list[int]) -> None:
    assert read(*cut(stream, where))[0] == slow_read(stream)


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_random_bytes_raise_nothing_and_are_read_as_the_standard_says(chunks: list[bytes]) -> None:
    assert read(*chunks)[0] == slow_read(b"".join(chunks))


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(1, 40))
def test_random_bytes_under_a_limit_raise_only_the_documented_error(chunks: list[bytes], limit: int) -> None:
    stream = EventStream(max_event_bytes=limit)
    expected = slow_read(b"".join(chunks))
    events: list[ServerSentEvent] = []
    with contextlib.suppress(EventTooLarge):
        for chunk in chunks:
            events += stream.feed(chunk)
    assert events == expected[: len(events)]
    stream.close()


@given(some_stream, places, st.integers(1, 40))
def test_where_a_frame_is_too_large_does_not_depend_on_the_pieces(stream: bytes, where: list[int], limit: int) -> None:
    def outcome(chunks: list[bytes]) -> tuple[list[ServerSentEvent], bool]:
        reader = EventStream(max_event_bytes=limit)
        events: list[ServerSentEvent] = []
        try:
            for chunk in [*chunks, b""]:
                events += reader.feed(chunk)
        except EventTooLarge:
            return events, True
        return events, False

    assert outcome(cut(stream, where)) == outcome([stream])


@given(st.lists(st.tuples(st.dictionaries(st.text(), st.text() | st.integers()), st.none() | st.integers(0))), places)
def test_what_frame_writes_is_read_back(values: list[tuple[dict[str, object], int | None]], where: list[int]) -> None:
    payloads = [(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), id_) for value, id_ in values]
    written = KEEP_ALIVE.join(frame(data, id_) for data, id_ in payloads)
    events, rest = read(*cut(written, where))
    assert rest == b""
    last: str | None = None
    for (data, id_), event in zip(payloads, events, strict=True):
        last = last if id_ is None else str(id_)
        assert event == ServerSentEvent("message", data, last, None)


def test_a_frame_is_written_as_id_and_data() -> None:
    assert frame(b"{}", 3) == b"id: 3\ndata: {}\n\n"
    assert frame(b"{}") == b"data: {}\n\n"


def test_a_keep_alive_is_no_event() -> None:
    assert read(KEEP_ALIVE, KEEP_ALIVE) == ([], b"")


@pytest.mark.parametrize(
    ("retry", "milliseconds"),
    [
        (b"0", 0),
        (b"0250", 250),
        (b"", None),
        (b"-1", None),
        (b"1.5", None),
        ("\N{ARABIC-INDIC DIGIT ONE}".encode(), None),
        (b"9" * 5000, None),
    ],
)
def test_retry_is_taken_from_ascii_digits_only(retry: bytes, milliseconds: int | None) -> None:
    stream = EventStream()
    assert stream.feed(b"retry: " + retry + b"\ndata: x\n\n") == [ServerSentEvent("message", b"x", None, milliseconds)]
    assert stream.retry == milliseconds


def test_retry_and_id_of_a_frame_without_data_are_kept() -> None:
    stream = EventStream()
    assert stream.feed(b"retry: 20\nid: seven\n\n") == []
    assert (stream.retry, stream.last_event_id) == (20, "seven")


def test_retry_stays_with_its_own_event_and_on_the_stream() -> None:
    stream = EventStream()
    assert [event.retry for event in stream.feed(b"retry: 20\ndata: x\n\ndata: y\n\n")] == [20, None]
    assert stream.retry == 20


def test_the_id_of_an_unfinished_frame_does_not_count() -> None:
    stream = EventStream()
    stream.feed(b"id: 1\ndata: x\n\nid: 2\ndata: y\n")
    assert stream.close() == b"id: 2\ndata: y"
    assert stream.last_event_id == "1"


def test_a_stream_that_goes_on_starts_with_the_id_it_is_given() -> None:
    stream = EventStream(last_event_id="41")
    assert stream.feed(b"data: x\n\nid: 42\ndata: y\n\n") == [
        ServerSentEvent("message", b"x", "41", None),
        ServerSentEvent("message", b"y", "42", None),
    ]


@pytest.mark.parametrize("end", [b"", b"data: x\n\n", b"data: x\r\n\r\n", b"data: x\r\r", b"\n\n\n", b"\xef\xbb\xbf"])
def test_a_stream_that_ends_between_frames_leaves_nothing(end: bytes) -> None:
    assert read(end)[1] == b""


@pytest.mark.parametrize("end", [b"data: x", b"data: x\n", b"data: x\r", b"data: x\r\n", b"\xef\xbb", b"d"])
def test_a_stream_that_ends_within_a_frame_shows_what_was_left(end: bytes) -> None:
    events, rest = read(b"", end)
    assert events == []
    assert rest == end.rstrip(b"\r\n")


def test_only_the_first_byte_order_mark_is_dropped() -> None:
    assert read(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n")[0] == [ServerSentEvent("message", b"b", None, None)]


def test_a_frame_of_many_megabytes_in_small_pieces_arrives_whole() -> None:
    data = b"x" * (64 * 1024 * 1024 - len("id: 1\ndata: \n"))
    written = memoryview(frame(data, 1))
    stream = EventStream()
    events = [
        event for at in range(0, len(written), 16 * 1024) for event in stream.feed(bytes(written[at : at + 16 * 1024]))
    ]
    assert len(events) == 1
    assert events[0].data == data
    assert events[0].id == "1"


@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_limit_counts_each_line_with_its_end_and_not_the_blank_line(size: int) -> None:
    written = b"id: 1\ndata: 0123456789\n\n"
    fits = EventStream(max_event_bytes=len(written) - 1)
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    assert [event.data for event in read_with(fits, pieces * 2)] == [b"0123456789"] * 2

    tight = EventStream(max_event_bytes=len(written) - 2)
    with pytest.raises(EventTooLarge, match="more than 22 bytes") as refused:
        read_with(tight, pieces)
    assert refused.value.max_event_bytes == len(written) - 2


def test_a_frame_without_end_is_refused_as_soon_as_it_is_over_the_limit() -> None:
    stream = EventStream(max_event_bytes=100)
    assert stream.feed(b"data: " + b"x" * 94) == []
    with pytest.raises(EventTooLarge):
        stream.feed(b"x")


def test_events_before_one_that_is_too_large_are_handed_out_first() -> None:
    stream = EventStream(max_event_bytes=20)
    written = b"data: a\n\ndata: b\n\ndata: " + b"c" * 20 + b"\n\ndata: d\n\n"
    assert [event.data for event in stream.feed(written)] == [b"a", b"b"]
    for _ in range(2):
        with pytest.raises(EventTooLarge):
            stream.feed(b"data: e\n\n")
    assert stream.close() == b""


def test_many_events_stay_within_a_limit_that_each_of_them_keeps() -> None:
    stream = EventStream(max_event_bytes=20)
    assert len(stream.feed(b"data: 0123\n\n" * 1000)) == 1000
