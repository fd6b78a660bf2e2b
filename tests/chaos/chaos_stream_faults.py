"""What is done to trainers of one machine."""

from __future__ import annotations

from chaos_faults import (
    Kind,
    exhaust_memory,
    fill_disk,
    interrupt,
    kill_all_workers,
    kill_child,
    kill_starting,
    kill_worker,
    move_clock,
    out_of_memory,
    pause,
    pause_all_workers,
    pause_worker,
    slow,
    slow_worker,
    terminate,
)
from chaos_streams import Inline, InProcesses, OnThreads

ALL = (Inline, OnThreads, InProcesses)
OWN = (InProcesses,)
KINDS = (
    Kind("the trainer is killed", kill_child, ALL, 4),
    Kind("the trainer is killed as it starts", kill_starting, OWN, 1),
    Kind("the trainer is terminated", terminate, ALL, 2),
    Kind("Ctrl-C at the trainer", interrupt, ALL, 6),
    Kind("the trainer is paused", pause, ALL, 2),
    Kind("the trainer is slow", slow, ALL, 1),
    Kind("the clock of the trainer is wrong", move_clock, ALL, 2),
    Kind("the disk is full", fill_disk, ALL, 3, needs_disk=True),
    Kind("a step exhausts memory", exhaust_memory, (Inline, InProcesses), 3),
    Kind("a worker is killed", kill_worker, OWN, 6),
    Kind("all workers are killed", kill_all_workers, OWN, 3),
    Kind("a worker is paused", pause_worker, OWN, 4),
    Kind("all workers are paused", pause_all_workers, OWN, 1),
    Kind("a worker is slow", slow_worker, OWN, 2),
    Kind("a worker is killed for its memory", out_of_memory, OWN, 3),
)
