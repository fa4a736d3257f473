"""How trees look as text."""

import testtools

from volt.model.drawing import draw


def node(host, parent, inner=False, state="ready"):
    return {"host": host, "parent": parent, "depth": 1, "inner": inner, "state": state}


class TestDraw(testtools.TestCase):
    def test_a_tree_a_stripe_with_inner_hosts_marked(self):
        first = [
            node("a", None, inner=True),
            node("b", "a", inner=True, state="joining"),
            node("c", "a"),
            node("d", "b"),
        ]
        drawn = draw(
            {"trees": [{"stripe": 0, "nodes": first}, {"stripe": 1, "nodes": [node("a", None)]}]}
        )
        assert drawn == (
            "stripe 0\nsource\n└─ a* (ready)\n   ├─ b* (joining)\n   │  └─ d (ready)\n"
            "   └─ c (ready)\n\nstripe 1\nsource\n└─ a (ready)"
        )

    def test_an_image_without_hosts_is_a_source_alone(self):
        assert draw({"trees": [{"stripe": 0, "nodes": []}]}) == "stripe 0\nsource"

    def test_a_chain_deeper_than_python_recurses(self):
        chain = [node("h0", None), *(node(f"h{n}", f"h{n - 1}") for n in range(1, 2000))]
        assert len(draw({"trees": [{"stripe": 0, "nodes": chain}]}).splitlines()) == 2002
