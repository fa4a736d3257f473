"""What Volt has to know of the network to place hosts."""

from oslo_config import cfg

GROUP = "placement"

OPTIONS = [
    cfg.IntOpt(
        "rack_uplink",
        default=0,
        min=0,
        max=10_000_000,
        help="Mbit/s that the uplink of a rack carries each way; 0 if that is not known. Used for "
        "images of shape ring, where hosts tell their racks: while the hosts of most racks receive "
        "or send more than 80 % of this, groups with an overloaded host are parted by racks, so "
        "that their hosts read from no other rack.",
    ),
]
