"""What cache drivers tell programs, and what they write on cache devices."""

import subprocess
from pathlib import Path

import fixtures
import testtools

from virtman.privileged import context, flashcache, ssd

# As flashcache-utils documents it: options, then cachedev, ssd_devname and disk_devname.
# It refuses what begins with a superblock of its own, and makes a sysctl folder of the pair.
FLASHCACHE_CREATE = """\
#!/bin/sh
set -e
mode='' block=8
while getopts p:b:s:fv option; do
    case $option in
    p) mode=$OPTARG ;;
    b) block=$OPTARG ;;
    s | f | v) ;;
    *) exit 1 ;;
    esac
done
shift $((OPTIND - 1))
case $mode in back | around | thru) ;; *) echo "Usage: flashcache_create -p" >&2; exit 1 ;; esac
[ $# -eq 3 ] || { echo "Usage: flashcache_create" >&2; exit 1; }
if [ "$(head -c 5 "$2")" = flash ]; then
    echo "Valid Flashcache already exists on $2" >&2
    exit 1
fi
echo "$mode $block $1 $2 $3" > "$STAND_IN/made"
mkdir "$STAND_IN/$(basename "$2")+$(basename "$3")"
"""


class DeviceCase(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(context, "client_mode", False))
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.device = self.folder / "ssd"
        self.device.write_bytes(bytes(1024 * 1024))


class FlashcacheTest(DeviceCase):
    def setUp(self):
        super().setUp()
        program = self.folder / "flashcache_create"
        program.write_text(FLASHCACHE_CREATE)
        program.chmod(0o755)
        self.useFixture(fixtures.EnvironmentVariable("PATH", f"{self.folder}:/usr/bin:/bin"))
        self.useFixture(fixtures.EnvironmentVariable("STAND_IN", str(self.folder)))
        self.useFixture(fixtures.MockPatchObject(flashcache, "_SYSCTLS", self.folder))

    def test_a_cache_is_made_in_writearound_mode_and_keeps_what_was_read_last(self):
        flashcache.create("virtman_i_cached", str(self.device), "/dev/mapper/virtman_i_shim")
        flashcache.keep_latest(str(self.device), "/dev/mapper/virtman_i_shim")
        self.assertEqual(
            f"around 4k virtman_i_cached {self.device} /dev/mapper/virtman_i_shim\n",
            (self.folder / "made").read_text(),
        )
        policy = self.folder / "ssd+virtman_i_shim" / "reclaim_policy"
        self.assertEqual("1", policy.read_text())

    def test_what_the_program_says_against_it_is_the_error(self):
        self.device.write_bytes(b"flash")
        error = self.assertRaises(
            OSError, flashcache.create, "virtman_i_cached", str(self.device), "/dev/x"
        )
        self.assertIn("Valid Flashcache already exists", str(error))

    def test_a_slice_that_was_wiped_is_taken(self):
        self.device.write_bytes(b"flash" + bytes(1024 * 1024))
        ssd.wipe(str(self.device))
        flashcache.create("virtman_i_cached", str(self.device), "/dev/x")
        self.assertTrue((self.folder / "made").exists())

    def test_without_the_program_the_error_names_it(self):
        (self.folder / "flashcache_create").unlink()
        error = self.assertRaises(OSError, flashcache.create, "a", str(self.device), "/dev/x")
        self.assertIn("flashcache_create is not installed", str(error))


class ClaimTest(DeviceCase):
    def test_an_empty_device_is_taken_and_known_again(self):
        ssd.claim(str(self.device))
        said = self.device.read_bytes()
        self.assertTrue(said.startswith(b"virtman cache group"))
        ssd.claim(str(self.device))
        self.assertEqual(said, self.device.read_bytes())

    def test_a_device_with_a_file_system_is_refused_and_not_touched(self):
        subprocess.run(["mke2fs", "-q", self.device], check=True)
        before = self.device.read_bytes()
        error = self.assertRaises(OSError, ssd.claim, str(self.device))
        self.assertIn("holds ext2", str(error))
        self.assertEqual(before, self.device.read_bytes())

    def test_what_caches_wrote_behind_the_first_block_is_no_reason_to_refuse(self):
        ssd.claim(str(self.device))
        subprocess.run(["mke2fs", "-q", "-E", "offset=65536", self.device, "512k"], check=True)
        ssd.claim(str(self.device))
