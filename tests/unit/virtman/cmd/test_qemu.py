"""Of two objects that libvirt and a domain give QEMU under one name, the domain's is taken."""

import testtools

from virtman.cmd.qemu import only_last

OWN = "memory-backend-file,id=pc.ram,mem-path=/dev/virtman/memory"
SECRET = '{"qom-type":"secret","id":"masterKey0","format":"raw"}'


class OnlyLastTest(testtools.TestCase):
    def test_the_first_of_two_is_left_out_however_it_is_written(self):
        for libvirts in (
            '{"qom-type":"memory-backend-ram","id":"pc.ram","size":100663296}',
            "memory-backend-ram,id=pc.ram,size=100663296",
            "id=pc.ram,qom-type=memory-backend-ram",
        ):
            words = ["-object", SECRET, "-m", "96", "-object", libvirts, "-S", "-object", OWN, "-x"]
            self.assertEqual(
                ["-object", SECRET, "-m", "96", "-S", "-object", OWN, "-x"], only_last(words)
            )

    def test_all_else_stays_as_it_is(self):
        for words in (
            [], ["-version"], ["-object", OWN], ["-name", "-object"], ["-object"],
            ["-object", "rng-random", "-object", "rng-random"],
            ["-device", "a,id=pc.ram", "-object", OWN], ["-object", "a,pid=x", "-object", "b,id=x"],
        ):  # fmt: skip
            self.assertEqual(words, only_last(words))
