"""Processes that measure one task after the other; one that dies or hangs takes only its own task with it."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Task = tuple[str, ...]
Result = dict[str, Any]


def serve(measure: Callable[[Task], Result]) -> None:
    """The loop of a worker: reads tasks from standard input, writes results to standard output, a JSON line each.

    What the measured code prints goes to standard error.
    """
    replies = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            print(json.dumps(measure(tuple(json.loads(line)))), file=replies, flush=True)


def run_tasks(
    command: Sequence[str], tasks: Sequence[Task], jobs: int, seconds: float, journal: Path | None = None
) -> Iterator[tuple[Task, Result]]:
    """Results in the order in which they come in, from ``jobs`` workers started with ``command``.

    The result of a task whose worker died or took longer than ``seconds`` is ``{"lost": reason}``. What the ``journal``
    holds comes first and is not measured again, but for what was lost; what is measured is added to it at once.
    """
    done = dict(_read(journal)) if journal and journal.exists() else {}
    missing = [task for task in tasks if task not in done]
    yield from ((task, done[task]) for task in tasks if task in done)
    for number, (task, result) in enumerate(_run(command, missing, jobs, seconds), 1):
        if journal:
            with journal.open("a") as file:
                print(json.dumps([task, result]), file=file)
        print(f"{number}/{len(missing)} {' '.join(task)[:150]}", file=sys.stderr, flush=True)
        yield task, result


def _read(journal: Path) -> Iterator[tuple[Task, Result]]:
    for line in journal.read_text().splitlines():
        task, result = json.loads(line)
        if "lost" not in result:
            yield tuple(task), result


def _run(command: Sequence[str], tasks: Sequence[Task], jobs: int, seconds: float) -> Iterator[tuple[Task, Result]]:
    waiting: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    for task in [*tasks, *[None] * jobs]:
        waiting.put(task)
    finished: queue.SimpleQueue[tuple[Task, Result]] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=_feed, args=(command, waiting, finished, seconds), daemon=True) for _ in range(jobs)
    ]
    for thread in threads:
        thread.start()
    for _ in tasks:
        yield finished.get()


def _feed(command: Sequence[str], waiting: Any, finished: Any, seconds: float) -> None:
    worker: subprocess.Popen[str] | None = None
    while (task := waiting.get()) is not None:
        if worker is None or worker.poll() is not None:
            worker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        finished.put((task, _ask(worker, task, seconds)))
    if worker is not None and worker.stdin is not None:
        worker.stdin.close()
        worker.wait()


def _ask(worker: subprocess.Popen[str], task: Task, seconds: float) -> Result:
    assert worker.stdin is not None
    assert worker.stdout is not None
    timer = threading.Timer(seconds, worker.kill)
    timer.start()
    try:
        worker.stdin.write(json.dumps(task) + "\n")
        worker.stdin.flush()
        reply = worker.stdout.readline()
    except BrokenPipeError:
        reply = ""
    finally:
        timer.cancel()
    if reply:
        return json.loads(reply)
    status = worker.wait()
    return {"lost": f"the process died with status {status}" if status != -9 else f"no answer in {seconds:g} s"}
