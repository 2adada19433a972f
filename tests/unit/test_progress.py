"""Progress that is heard by something with a display of its own."""

from taskscape.progress import progress_bar, reported_to, track


def test_a_listener_hears_every_step():
    heard: list[tuple[str, int, int | None]] = []
    with reported_to(lambda *output: heard.append(output)):
        assert list(track("ab", "counting")) == ["a", "b"]
        with progress_bar("reading") as advance:
            advance(5)
    assert heard == [
        ("counting", 0, 2), ("counting", 1, 2), ("counting", 2, 2),
        ("reading", 0, None), ("reading", 5, None),
    ]  # fmt: skip


def test_afterwards_nothing_is_heard():
    heard: list[str] = []
    with reported_to(lambda what, done, total: heard.append(what)):
        pass
    with progress_bar("quiet", 3) as advance:
        advance()
    assert heard == []
