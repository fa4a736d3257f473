"""Which command figures are from, without anybody's folders."""

import testtools

from planning.origin import command


class CommandTest(testtools.TestCase):
    def test_it_names_no_file_that_it_writes(self):
        words = ("whole", "--nodes", "3", "--json", "/secret/a", "--plot=/secret/b", "--x", "8M")
        self.assertEqual(
            "python -m bench whole --nodes 3 --x 8M", command("python -m bench", words)
        )
        self.assertEqual("tool churn", command("tool", ["churn", "--json=/secret/a b"]))

    def test_of_files_that_it_reads_it_names_no_folder(self):
        words = ("run", "--measured", "/secret/hops.json", "--profile=/secret/boot", "--seed", "1")
        self.assertEqual(
            "tool run --measured hops.json --profile=boot --seed 1", command("tool", words)
        )
