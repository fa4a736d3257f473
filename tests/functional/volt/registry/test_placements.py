"""What the use cases of places leave in the database."""

import random
from concurrent.futures import ThreadPoolExecutor
from types import NoneType
from unittest import mock

from sqlalchemy import event, func, select, update
from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from lab.waiting import wait_until
from tests.functional.volt import databases
from tests.functional.volt.registry.base import NOW, TreesCase, portal
from volt import errors
from volt.db.engine import connect
from volt.db.models import WAITING, ImageRow, PlacementRow
from volt.model.hosts import ImageReport, Report
from volt.model.images import NewImage
from volt.model.placements import State
from volt.placement.rules import Shape
from volt.registry.batches import Turns
from volt.registry.images import held
from volt.registry.placements import Placements
from volt.transport import Portal
from volt.transport.iscsi import Chap


class TestLeaving(TreesCase):
    """When a host that left the trees may go."""

    def setUp(self):
        super().setUp()
        self.join("a", "b", "c")
        for host in ("a", "b", "c"):
            self.confirm(host)

    def confirm(self, host):
        self.placements.ready("x", host, self.generation(host))

    def needed(self, host):
        return self.placements.show("x", host).needed

    def test_a_host_in_the_trees_is_needed(self):
        assert self.needed("a")

    def test_a_host_is_needed_until_its_children_read_from_others(self):
        before = {host: self.generation(host) for host in ("b", "c")}
        self.placements.leave("x", "a")
        moved = [host for host, old in before.items() if self.generation(host) != old]
        assert moved
        for host in moved:
            assert self.needed("a")
            self.confirm(host)
        assert not self.needed("a")

    def test_a_child_that_was_placed_again_meanwhile_counts_once_it_is_up_to_date(self):
        self.placements.leave("x", "a")
        self.placements.leave("x", "b")
        assert self.needed("a")
        self.confirm("c")
        assert not self.needed("a")

    def test_hosts_that_all_leave_do_not_wait_for_each_other(self):
        for host in ("a", "b", "c"):
            self.placements.leave("x", host)
        assert not any(map(self.needed, ("a", "b", "c")))

    def test_a_host_that_is_still_joining_may_have_been_given_one_that_left(self):
        self.join("d")
        self.placements.leave("x", "a")
        for host in ("b", "c"):
            self.confirm(host)
        assert self.needed("a")
        self.confirm("d")
        assert not self.needed("a")

    def test_joining_again_ends_leaving(self):
        self.placements.leave("x", "a")
        self.join("a")
        assert self.needed("a")
        assert self.placements.show("x", "a").state == State.JOINING


class TestPlacements(TreesCase):
    def test_only_those_who_have_to_act_get_a_new_generation(self):
        self.join("a", "b", "c")
        before = {host: self.told(host) for host in "abc"}
        generations = {host: self.generation(host) for host in "abc"}
        self.join("d")
        for host in "abc":
            changed = self.told(host) != before[host]
            assert (self.generation(host) > generations[host]) == changed

    def test_a_generation_never_goes_back(self):
        self.join("a", "b")
        before = self.generation("a")
        self.placements.remove("x", "a")
        self.join("a")
        assert self.generation("a") > before

    def test_a_leaving_host_is_told_the_source_once_its_parent_is_removed(self):
        self.join("a", "b", "c")
        self.placements.leave("x", "c")
        assert self.told("c") == [("a", "source"), ("b", "source")]
        before = self.generation("c")
        self.placements.remove("x", "a")
        assert self.told("c") == [(None, None), ("b", "source")]
        assert self.generation("c") > before
        self.placements.remove("x", "b")
        assert self.told("c") == [(None, None), (None, None)]

    def test_a_new_portal_renews_children_and_grandchildren_only(self):
        hosts = [f"h{number}" for number in range(12)]
        self.join(*hosts)
        before = {host: self.generation(host) for host in hosts}
        self.placements.join("x", "h0", portal(99))
        readers = {
            host
            for host in hosts
            for feed in self.placements.show("x", host).stripes
            if "h0" in (feed.parent.host, feed.standby and feed.standby.host)
        }
        assert {host for host in hosts if self.generation(host) != before[host]} == readers

    def test_the_heartbeat_tells_what_changed_in_many_images(self):
        for name in ("y", "z"):
            self.create(name)
            self.join("a", image=name)
        self.join("a")
        self.placements.leave("z", "a")
        news = self.ground.hosts.heartbeat(
            "a",
            Report(
                {
                    "x": ImageReport(1),
                    "y": ImageReport(7),
                    "z": ImageReport(7),
                    "gone": ImageReport(1),
                }
            ),
        )
        assert [placement.image for placement in news.placements] == ["y"]
        assert news.unknown == ("gone",)

    def test_placements_after_many_changes_are_a_forest(self):
        dice = random.Random(3)
        present = []
        for number in range(150):
            if present and dice.random() < 0.45:
                host = present.pop(dice.randrange(len(present)))
                dice.choice([self.placements.leave, self.placements.remove])("x", host)
            else:
                present.append(f"h{number}")
                self.join(present[-1])
            self.check_trees(present)

    def test_stripes_and_fan_out_are_each_images_own(self):
        self.create("paper", stripes=1, fanout=2)
        self.join("a", "b", "c", image="paper")
        (tree,) = self.images.trees("paper").trees
        assert [node.parent for node in tree.nodes] == [None, None, "a"]


class TestInterruptedJoins(TreesCase):
    """A worker that died once it was written down who wants a place."""

    def setUp(self):
        super().setUp()
        self.join("a")
        self.interrupt("b")

    def interrupt(self, host):
        dying = Placements(self.ground.engine, Turns())
        with mock.patch.object(dying, "_place", side_effect=SystemExit):
            self.assertRaises(SystemExit, dying.join, "x", host, portal())

    def test_who_waits_has_no_place_yet(self):
        self.check_trees(["a"])
        assert self.placements.of_host("b") == ()
        self.assertRaises(errors.HostUnknown, self.placements.show, "x", "b")
        self.assertRaises(errors.HostUnknown, self.placements.leave, "x", "b")
        report = Report({"x": ImageReport(generation=7)})
        assert self.ground.hosts.heartbeat("b", report).unknown == ("x",)
        self.placements.reconsider("x", "b")
        self.check_trees(["a"])

    def test_the_next_join_has_it_placed_too(self):
        self.join("c")
        self.check_trees("abc")
        assert self.placements.show("x", "b").state == State.JOINING

    def test_the_next_join_of_another_image_has_it_placed_too(self):
        self.create("y", 2, 2)
        self.join("c", image="y")
        self.check_trees("ab")

    def test_its_own_next_join_places_it_where_it_serves_by_then(self):
        placement, is_new = self.placements.join("x", "b", portal(7))
        assert (placement.host, is_new) == ("b", False)
        self.placements.remove("x", "a")
        self.join("d")
        self.check_trees("bd")
        parents = {feed.parent.host: feed.parent.portal for feed in
                   self.placements.show("x", "d").stripes}  # fmt: skip
        assert parents["b"] == portal(7)

    def test_another_secret_is_no_place(self):
        source = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:s", 0)
        proof = Chap("source", "secretsecret")
        self.images.rotate("x")
        self.images.create(NewImage("x", 512, Shape.FOREST, 2, 2, source, proof), NOW)
        assert self.placements.of_host("b") == ()
        self.join("b")
        self.check_trees("ab")
        assert len(self.placements.show("x", "b").stripes) == 2

    def test_who_is_removed_as_images_are_held_keeps_nobody_from_a_place(self):
        if self.database == "sqlite":
            self.skipTest("its writers take turns")
        with mock.patch("volt.registry.images.held", side_effect=self.removing(held)) as holding:
            self.join("c")
        assert holding.call_count == 2
        self.check_trees("ac")
        self.assertRaises(errors.HostUnknown, self.placements.show, "x", "b")

    def removing(self, held):
        """Return what holds images once somebody has removed a host that waits."""

        def remove_and_hold(session, names):
            Placements(self.ground.engine, Turns()).remove("x", "b")
            return held(session, names)

        return remove_and_hold

    def test_it_can_be_removed_or_expired_instead(self):
        self.interrupt("c")
        self.placements.remove("x", "b")
        assert self.ground.hosts.expire(["c"]) == 1
        self.join("d")
        self.check_trees("ad")


class TestLostPlaces(TreesCase):
    """A placement that says it has a place in the trees, which have none."""

    def setUp(self):
        super().setUp()
        self.join("a", "b", "c")
        self.lose("b")

    def lose(self, host):
        self.placements.leave("x", host)
        lost = update(PlacementRow).where(PlacementRow.host == host)
        with self.ground.engine.begin() as connection:
            connection.execute(lost.values(left=None, told=None, state=State.JOINING))

    def test_it_can_leave_or_be_removed_and_join_again(self):
        for end in (self.placements.leave, self.placements.remove):
            end("x", "b")
            assert self.placements.of_host("b") == ()
            self.join("b")
            self.check_trees("abc")
            self.lose("b")

    def test_it_expires_with_others(self):
        assert self.ground.hosts.expire(["b", "c"]) == 2
        self.check_trees("a")


class TestImageAtFault(TreesCase):
    """An image whose trees cannot be changed, whatever is the reason."""

    def setUp(self):
        super().setUp()
        self.create("broken")
        with self.ground.engine.begin() as connection:
            connection.execute(update(ImageRow).where(ImageRow.name == "broken").values(inner=[]))

    def test_hosts_join_other_images_while_some_wait_for_it(self):
        wanted = [(image, f"h{number}") for number in range(8) for image in ("broken", "x")]
        with ThreadPoolExecutor(len(wanted)) as pool:
            joins = [
                (image, pool.submit(self.placements.join, image, host, portal()))
                for image, host in wanted
            ]
        for image, join in joins:
            assert isinstance(join.exception(), ValueError if image == "broken" else NoneType)
        self.check_trees([f"h{number}" for number in range(8)])
        self.join("late")
        assert self.placements.show("x", "late").state == State.JOINING


class TestRemovedBeforeTheAnswer(TreesCase):
    def test_only_the_host_itself_hears_of_it(self):
        place = self.placements._place

        def late(wanted):
            self.placements.remove("x", "b")
            return place(wanted)

        with mock.patch.object(self.placements, "_place", late):
            assert self.placements.join("x", "a", portal())[1]
            self.assertRaises(errors.HostUnknown, self.placements.join, "x", "b", portal())
            with ThreadPoolExecutor(8) as pool:
                joins = [
                    pool.submit(self.placements.join, "x", f"h{n}", portal()) for n in range(8)
                ]
                joins.append(pool.submit(self.placements.join, "x", "b", portal()))
        faults = [type(join.exception()) for join in joins]
        assert faults == [type(None)] * 8 + [errors.HostUnknown]


class TestConcurrency(TreesCase):
    def test_sixteen_threads_never_give_one_slot_twice(self):
        hosts = [f"h{number}" for number in range(96)]
        with ThreadPoolExecutor(16) as pool:
            placed = list(pool.map(lambda host: self.placements.join("x", host, portal()), hosts))
        assert all(is_new for _, is_new in placed)
        self.check_trees(hosts)

    def test_joins_and_removals_mix_and_the_same_join_counts_once(self):
        leavers = [f"l{number}" for number in range(24)]
        self.join(*leavers)
        work = [(self.placements.remove, ("x", host)) for host in leavers]
        work += [(self.placements.join, ("x", f"h{n % 24}", portal())) for n in range(48)]
        random.Random(5).shuffle(work)
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda task: task[0](*task[1]), work))
        self.check_trees([f"h{number}" for number in range(24)])

    def test_joins_of_several_images_at_once_are_each_in_their_trees(self):
        images = ["x", "y", "z"]
        self.create("y", 3, 3)
        self.create("z", 2, 3)
        leavers = {image: [f"l-{image}{number}" for number in range(8)] for image in images}
        for image in images:
            self.join(*leavers[image], image=image)
        hosts = [f"h{number:02}" for number in range(16)]  # each joins all
        work = [(self.placements.join, (image, host, portal())) for image in images
                for host in hosts]  # fmt: skip
        work += [(self.placements.remove, (image, host)) for image in images
                 for host in leavers[image]]  # fmt: skip
        work += [(self.placements.join, ("none", f"n{number}", portal())) for number in range(8)]
        random.Random(6).shuffle(work)
        with ThreadPoolExecutor(16) as pool:
            done = [(act, pool.submit(act, *about)) for act, about in work]
        faults = [type(task.exception()) for _, task in done if task.exception()]
        assert faults == [errors.ImageUnknown] * 8
        joined = [task.result()[1] for act, task in done
                  if act == self.placements.join and not task.exception()]  # fmt: skip
        assert joined == [True] * len(images) * len(hosts)
        for image, fanout in ("x", 2), ("y", 3), ("z", 3):
            self.check_trees(hosts, image, fanout)
            told = {self.placements.show(image, host).image for host in hosts}
            assert told == {image}

    def test_a_database_that_stays_locked_is_reported_as_busy(self):
        impatient = connect(self.ground.url, busy_timeout=0.05)
        self.addCleanup(impatient.dispose)
        with self.ground.engine.connect() as connection:
            connection.exec_driver_sql("UPDATE images SET lun = 1")
            late = Placements(impatient, Turns())
            self.assertRaises(errors.DatabaseBusy, late.join, "x", "a", portal())
        self.join("a")


class TestTurns(TreesCase):
    """Joins that several workers are asked for while somebody gives places."""

    scenarios = tuple((name, {"database": name}) for name in ("postgresql", "mariadb"))

    def test_one_transaction_places_all_who_wait(self):
        self.create("y", 2, 2)
        engine = self.ground.engine
        wanted = [("x", "a"), ("x", "b"), ("y", "c")]
        with ThreadPoolExecutor(len(wanted)) as pool:
            with engine.connect() as others, others.begin():
                others.exec_driver_sql("SELECT name FROM turns FOR UPDATE")
                coming = [
                    pool.submit(Placements(engine, Turns()).join, image, host, portal())
                    for image, host in wanted
                ]
                wait_until(lambda: self.waiting() == len(wanted), "all who wait", 10, 0.05)
            found = [each.result() for each in coming]
        assert [(one.image, one.host, is_new) for one, is_new in found] == [
            (*key, True) for key in wanted
        ]
        self.check_trees("ab")
        assert [self.images.show(image).generation for image in "xy"] == [1, 1]
        assert self.waiting() == 0

    def waiting(self):
        with self.ground.engine.connect() as connection:
            query = select(func.count()).where(PlacementRow.generation == WAITING)
            return connection.execute(query).scalar_one()


class TestCommits(TreesCase):
    """What a join waits for."""

    scenarios = ()
    database = "postgresql"

    def setUp(self):
        super().setUp()
        # the tests' server waits for no commit, unless it is told to
        name = self.ground.engine.url.database
        databases.server("postgresql").query(f"ALTER DATABASE {name} SET synchronous_commit = on")
        self.ground.engine.dispose()

    def test_a_join_waits_for_the_disk_once(self):
        waits = []

        @event.listens_for(self.ground.engine, "commit")
        def note(connection):
            shown = connection.exec_driver_sql("SHOW synchronous_commit").scalar()
            if connection.exec_driver_sql("SELECT pg_current_xact_id_if_assigned()").scalar():
                waits.append(shown)

        self.join("a")
        assert waits == ["off", "on"], waits

    def test_a_join_takes_few_statements(self):
        self.join("a")
        statements = []

        @event.listens_for(self.ground.engine, "before_cursor_execute")
        def note(connection, cursor, statement, *others):
            statements.append(statement)

        self.join("b")
        assert len(statements) <= 16, "\n".join(statements)
