"""What the C headers decode: any bytes behind right checksums, under the address and undefined-behaviour sanitizers; and the
publish protocol with real threads, under ThreadSanitizer. `make fuzz` does the first for as long as one likes."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORPUS = sorted((ROOT / "tests/fuzz/corpus").iterdir())
SECONDS = os.environ.get("JLOG_FUZZ_SECONDS", "2")


def compiled(target: Path, sanitizers: str, *arguments: str) -> Path:
    """A program, in the directory `target`; skips where the compiler has no such sanitizer."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    probe = target / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    flags = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-g", "-O1"]
    probed = subprocess.run([*compiler, *flags, probe, "-o", target / "probe"], capture_output=True, check=False)
    if probed.returncode or subprocess.run([target / "probe"], check=False).returncode:
        pytest.skip(f"the C compiler has no -fsanitize={sanitizers}; gcc and clang of Debian have it")
    program = target / "program"
    subprocess.run(
        [*compiler, *flags, "-Wno-tsan", *arguments, "-Ipyx", "-lpthread", "-o", program],
        cwd=ROOT,
        check=True,
    )
    return program


def test_no_input_with_right_checksums_is_read_past_an_end(tmp_path):
    program = compiled(tmp_path, "address,undefined", "tools/fuzz/headers.c", "tools/fuzz/standalone.c")
    failing = tmp_path / "failing"
    ran = subprocess.run(
        [program, "--seed", "1", "--seconds", SECONDS, "--failing", failing, *CORPUS],
        capture_output=True,
        text=True,
        check=False,
    )
    left = failing.read_bytes().hex() if failing.exists() else "is in the corpus"
    assert ran.returncode == 0, f"{ran.stderr}\nthe input {left}"
    assert "executions" in ran.stdout


def test_the_publish_protocol_has_no_data_race(tmp_path):
    program = compiled(tmp_path, "thread", "tools/tsan/publish.c")
    ran = subprocess.run([program, "2"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "bodies checked" in ran.stdout
