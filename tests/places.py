"""All places of an image in memory, of which changes take parts."""

from dataclasses import replace

from volt.placement.levels import INSIDE, ROOTS


class Memory:
    """Answers as ``volt.db.forests`` does; ``places`` stay as they are."""

    def __init__(self, places, rules):
        self._places = places
        self._stripes = range(rules.stripes)
        self._fanout = rules.fanout

    def read(self, ask):
        """Return what is asked for."""
        yield from self._picked(ask.picks)
        yield from self._where(lambda node: node.host in ask.of or node.host in ask.around)
        yield from self._where(lambda node: node.parent in ask.around)

    def _picked(self, picks):
        for stripe in self._stripes:
            for pick in picks:
                fit = [node for node in self._places.nodes(stripe) if self._is_fit(node, pick)]
                fit.sort(key=lambda node: (node.level, node.host), reverse=pick.kind.lowest)
                for node in fit[: pick.count]:
                    yield (stripe, replace(node)), pick.kind
                    if node.parent is not None:
                        parent = self._places.node(node.parent, stripe)
                        yield (stripe, replace(parent)), None

    def _is_fit(self, node, pick):
        kind = pick.kind
        return (
            kind.inner in (None, node.inner)
            and (not kind.open or node.has_room(self._fanout))
            and (not kind.mixed or node.foreign > 0)
            and (not kind.of_rack or node.rack == pick.rack)
            and kind.stray in (None, node.stray)
            and (not kind.fast or (node.speed or 0) >= pick.speed)
            and (not kind.entry or node.level < ROOTS)
            and (not kind.root or ROOTS <= node.level <= INSIDE)
        )

    def _where(self, is_meant):
        return [
            ((stripe, replace(node)), None)
            for stripe in self._stripes
            for node in self._places.nodes(stripe)
            if is_meant(node)
        ]
