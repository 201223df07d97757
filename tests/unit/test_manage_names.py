"""Names in order and by what is in them, against the simple way to do it."""

import random

import numpy as np

from mq9.manage.names import Order, Texts


def test_order_is_that_of_a_sorted_list_whatever_comes_and_goes() -> None:
    choice = random.Random(7)
    order, known = Order(), dict[str, int]()
    for place in range(12_000):
        name = f"{choice.choice('abc')}{choice.randrange(10**6)}"
        if name not in known:
            known[name] = place
            order.add(name, place)
        if place % 3 == 0:
            gone = choice.choice(list(known)) if place % 300 == 0 else name
            order.remove(gone)
            del known[gone]
    names = sorted(known)
    places = [known[name] for name in names]
    for offset, limit in ((0, 50), (1000, 2000), (len(names) - 5, 50), (len(names), 5)):
        assert order.part(offset, limit, among=None) == places[offset : offset + limit]
        found = order.part(offset, limit, reverse=True, among=None)
        assert found == places[::-1][offset : offset + limit]
    among = np.zeros(12_000, bool)
    among[::7] = True
    some = [place for place in places if place % 7 == 0]
    for offset in (0, 3, len(some) - 2, len(some)):
        assert order.part(offset, 40, among=among) == some[offset : offset + 40]
        found = order.part(offset, 40, reverse=True, among=among)
        assert found == some[::-1][offset : offset + 40]
    for name in ("", "a", "b5", names[77], "zz"):
        assert order.rank(name) == sum(each < name for each in names)
    for name in names:
        order.remove(name)
    assert (order.part(0, 5, among=None), order.rank("a")) == ([], 0)


def test_texts_find_what_a_scan_finds() -> None:
    choice = random.Random(8)
    texts, known = Texts(), dict[int, str]()
    for _ in range(20_000):
        place = choice.randrange(10_000)
        known[place] = "".join(choice.choices("abÄ.\n", k=choice.randrange(7)))
        texts.set(place, known[place])
    for wanted in ("a", "B", "äb", "a.b", "", "zz", "\n"):
        found = texts.find(wanted).tolist()
        scan = [
            place
            for place, name in sorted(known.items())
            if wanted.lower() in name.lower().replace("\n", "")
        ]
        # Nothing at all is in every name, and in the places without one.
        assert found == scan if wanted else set(found) >= set(scan)
    texts.set(3, "only here")
    assert texts.find("LY HE").tolist() == [3]
    texts.set(3, "")
    assert texts.find("ly he").tolist() == []
