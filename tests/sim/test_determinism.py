"""(scenario, seed) decides every byte: in new processes with other hash seeds, one after another in one."""

import os
import re
import subprocess
import sys
from pathlib import Path

from sim.scenario import Scenario
from sim.world import simulate

ROOT = Path(__file__).parents[2]


def digest_in_new_process(file: Path, out: Path, *, seed: int, hash_seed: int) -> str:
    paths = os.pathsep.join((str(ROOT), str(file.parent)))
    done = subprocess.run(
        [sys.executable, "-m", "sim", "run", str(file), "--seed", str(seed), "--out", str(out)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"sha256 +([0-9a-f]{64})", done.stdout)
    assert found is not None, done.stdout
    return found[1]


def test_new_processes_with_other_hash_seeds_give_the_same_bytes(
    apps: Path, small: Scenario, tmp_path: Path
) -> None:
    first = digest_in_new_process(apps / "small.toml", tmp_path, seed=1, hash_seed=1)
    second = digest_in_new_process(apps / "small.toml", tmp_path, seed=1, hash_seed=2)

    assert first == second
    assert first == simulate(small, seed=1)[0].sha256


def test_the_main_job_for_ten_minutes_gives_the_same_bytes_in_two_processes(tmp_path: Path) -> None:
    file = ROOT / "sim" / "scenarios" / "three_stages.toml"
    digests = {digest_in_new_process(file, tmp_path, seed=1, hash_seed=hash_seed) for hash_seed in (1, 2)}

    assert len(digests) == 1
    assert digests <= set(re.findall(r"[0-9a-f]{64}", (ROOT / "README.md").read_text(encoding="utf-8")))


def test_seeds_one_after_another_equal_seeds_alone(small: Scenario) -> None:
    alone = {seed: simulate(small, seed=seed)[0].sha256 for seed in (1, 2, 3)}
    again = {seed: simulate(small, seed=seed)[0].sha256 for seed in (3, 1, 2)}

    assert alone == again
    assert len(set(alone.values())) == 3


def test_a_simulation_loads_no_library_that_reaches_the_outside() -> None:
    heavy = ("aiohttp", "httpx", "iroh", "psutil", "cryptography", "uvloop")
    script = f"import sim.world, sys; print([name for name in {heavy} if name in sys.modules])"

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
