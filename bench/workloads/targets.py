"""What make builds of C++: a library, what uses it, and what uses others."""

import subprocess
from pathlib import Path

SOURCE = "/usr/src/googletest"
RULES = f"""
VPATH = {SOURCE}/googletest/src:{SOURCE}/googletest/samples:{SOURCE}/googlemock/src
CXXFLAGS = -O0 {
    " ".join(
        f"-I{SOURCE}/{one}{to}" for one in ("googletest", "googlemock") for to in ("", "/include")
    )
}
library.a: gtest-all.o
\tar rc $@ $^
mock.a: gmock-all.o
\tar rc $@ $^
sample%: sample%_unittest.o sample%.o gtest_main.o library.a
\t$(CXX) -o $@ $^
graph numbers text: %: %.o
\t$(CXX) -o $@ $^
archive:
\ttar -cf - {SOURCE} | gzip -1 > $@
"""
PROGRAMS = {
    "graph": ("graph/adjacency_list", "graph/dijkstra_shortest_paths"),
    "numbers": ("multiprecision/cpp_int", "math/special_functions"),
    "text": ("algorithm/string", "date_time/posix_time/posix_time"),
}

work = Path("/tmp/build")  # noqa: S108 - nobody else is in the image
work.mkdir()
(work / "Makefile").write_text(RULES)
for program, headers in PROGRAMS.items():
    includes = "".join(f"#include <boost/{one}.hpp>\n" for one in headers)
    (work / f"{program}.cpp").write_text(includes + "int main() {}\n")


def make(target: str) -> None:
    """Build one."""
    subprocess.run(["make", "-s", "-C", work, target], check=True, capture_output=True)
