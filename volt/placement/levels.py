"""What the level of a host says: in which part of a stripe tree it is, and how far down there.

In each stripe the first inner host of a rack is the *entry* of that rack. Entries feed each
other, so they are a tree of their own, as low as a tree of hosts would be. Another inner host
of the rack hangs below its entry, or below that of another rack if the entry feeds other entries
only. It is a *root*, and all further inner hosts of the rack hang below its roots::

    source
    `- a1       entry of rack a          level 1
       |- b1    entry of rack b                2
       |  |- a2 root of rack a                 ROOTS + 3
       |  |  |- a3                             INSIDE + 1
       |  |  `- a4                             INSIDE + 1
       |  `- b2 root of rack b                 ROOTS + 3
       `- c1    entry of rack c                2

So entries come first in the order of levels, nearest to the source first; roots are next, in
the order of whom they hang below; and then all others, in the order of their distance from the
root. If a root moves, no level below it changes. In a site with one rack the order is that of
the distances from the source.
"""

ROOTS = 1_000_000
"""Levels of roots are above this one: by how much is their distance from the source."""

INSIDE = 2_000_000
"""Levels of what hangs below roots are above this one: by how much is the distance from them."""
