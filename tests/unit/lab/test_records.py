"""What the lab writes down, and the names and numbers it accepts."""

from pathlib import Path

import testtools

from lab.cluster import check_name, check_path
from lab.errors import LabError, NoSuchNode
from lab.forwarding import forward_command, listeners
from lab.network import bytes_per_second, node_address, node_mac
from lab.processes import Process, parse_stat
from lab.rootfs import packages, recipe_key
from lab.state import BedRecord, Disk, NodeRecord, free_index, from_json, to_json

BED = BedRecord("demo", "20mbit", Path("/cache/root.img"), Path("/src"))
NODE = NodeRecord("node1", 1, "448M", "4G", (Disk(Path("/image"), readonly=True),))
KERNEL = Process(pid=100, started=5000, what="node node1")


class TestRecord(testtools.TestCase):
    def test_a_record_is_read_as_it_was_written(self):
        running = NodeRecord("node2", 2, "256M", "1G", (), KERNEL)
        bed = BED.with_node(NODE).with_node(running).with_process(Process(7, 8, "volt"))
        self.assertEqual(bed, from_json(to_json(bed)))

    def test_a_node_replaces_its_older_record(self):
        off, on = NODE, NodeRecord("node1", 1, "448M", "4G", (), KERNEL)
        self.assertEqual((on,), BED.with_node(off).with_node(on).nodes)

    def test_nodes_stand_in_the_order_of_their_addresses(self):
        first = NodeRecord("zz", 1, "448M", "4G", ())
        second = NodeRecord("aa", 2, "448M", "4G", ())
        self.assertEqual((first, second), BED.with_node(second).with_node(first).nodes)

    def test_an_unknown_node_is_named_in_the_error(self):
        error = self.assertRaises(NoSuchNode, BED.node, "node9")
        self.assertIn("node9", str(error))

    def test_a_node_without_power_has_no_process(self):
        bed = BED.with_node(NODE).with_process(KERNEL)
        self.assertEqual([KERNEL], bed.everything())

    def test_lowest_free_address_is_taken(self):
        bed = BED.with_node(NodeRecord("node2", 2, "448M", "4G", ()))
        self.assertEqual(1, free_index(bed, 3))
        self.assertEqual(3, free_index(bed.with_node(NODE), 3))

    def test_a_full_bed_is_an_error(self):
        self.assertRaises(LabError, free_index, BED.with_node(NODE), 1)


class TestProcess(testtools.TestCase):
    def test_a_program_name_with_brackets_does_not_shift_the_fields(self):
        numbers = " ".join(str(number) for number in range(4, 30))
        stat = parse_stat(f"42 (odd ) name (x) S {numbers}")
        self.assertEqual((42, "S", 5, 22), (stat.pid, stat.state, stat.group, stat.started))


class TestNumbers(testtools.TestCase):
    def test_rates_are_bits_and_counted_in_thousands(self):
        self.assertEqual(12_500_000, bytes_per_second("100mbit"))
        self.assertEqual(12_500_000, bytes_per_second("100M"))
        self.assertEqual(100_000, bytes_per_second("800kbit"))
        self.assertEqual(125_000_000, bytes_per_second("1gbit"))

    def test_other_rates_are_refused(self):
        for rate in ("100", "0mbit", "1.5mbit", "10MB", ""):
            self.assertRaises(LabError, bytes_per_second, rate)

    def test_each_node_has_its_own_addresses(self):
        self.assertEqual(250, len({node_address(i) for i in range(1, 251)}))
        self.assertEqual(250, len({node_mac(i) for i in range(1, 251)}))


class TestNames(testtools.TestCase):
    def test_names_fit_a_host_name(self):
        for name in ("demo", "a", "node-12", "x" * 32):
            check_name(name)
        for name in ("", "-x", "x-", "Demo", "a/b", "../x", "x" * 33, "a b"):
            self.assertRaises(LabError, check_name, name)

    def test_paths_fit_a_kernel_parameter(self):
        check_path(Path("/root/.cache/virtman/root.img"))
        for path in ("/a b", "/a,b", "/a:b"):
            self.assertRaises(LabError, check_path, Path(path))


class TestRecipe(testtools.TestCase):
    def test_key_follows_names_and_contents_and_not_their_order(self):
        key = recipe_key({"a": b"1", "b": b"2"})
        self.assertEqual(key, recipe_key({"b": b"2", "a": b"1"}))
        self.assertNotEqual(key, recipe_key({"a": b"1", "b": b"3"}))
        self.assertNotEqual(key, recipe_key({"a": b"1b", "": b"2"}))
        self.assertEqual(16, len(key))

    def test_package_lists_may_have_comments(self):
        self.assertEqual(["fio", "udev"], packages("# nodes\nfio\n\nudev # needed by dm\n"))


class TestForwarding(testtools.TestCase):
    TABLE = (
        "  sl  local_address rem_address   st tx_queue\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000\n"
        "   1: 0100007F:0050 0100007F:9999 01 00000000\n"
        "   2: 00000000:0016 00000000:0000 0A 00000000\n"
    )

    def test_only_listeners_on_the_loopback_address_count(self):
        self.assertEqual({8080}, listeners(self.TABLE))

    def test_each_connection_enters_the_namespace(self):
        listen, connect = forward_command(80, ("10.78.0.254", 8000), Path("/run/netns/x"))[1:]
        self.assertIn("bind=127.0.0.1", listen)
        self.assertIn("nsenter --net=/run/netns/x socat STDIO TCP:10.78.0.254:8000", connect)
