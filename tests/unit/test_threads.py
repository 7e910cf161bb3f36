"""One event loop is shared by all threads."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, os, threading
from crosscut.threads import run_async

async def running():
    return id(asyncio.get_running_loop())

together, loops = threading.Barrier(8), []

def ask():
    together.wait()
    loops.append(run_async(running()))

asking = [threading.Thread(target=ask) for _ in range(8)]
for thread in asking:
    thread.start()
for thread in asking:
    thread.join()
print(len(loops), len(set(loops)), flush=True)
child = os.fork()
if not child:
    print(run_async(running()) != loops[0], flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_threads_that_ask_first_at_the_same_time_share_one_loop_and_a_child_has_its_own() -> None:
    """Otherwise connections would belong to loops that nobody runs a request on again, and stay open."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["8", "1", "True"], done.stderr


LOCKED = """
import os, threading
from crosscut.threads import ForkLock

lock, held, ended = ForkLock(), threading.Event(), threading.Event()

def hold():
    with lock:
        held.set()
        ended.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if not child:
    with lock:
        print("free", flush=True)
    os._exit(0)
os.waitpid(child, 0)
ended.set()
"""


def test_a_lock_that_another_thread_holds_is_free_in_a_child() -> None:
    done = subprocess.run([sys.executable, "-c", LOCKED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["free"], done.stderr
