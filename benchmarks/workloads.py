"""All workloads, in the order in which they run."""

from benchmarks import (
    arrays,
    audio,
    classification,
    gil,
    kept,
    memory,
    objects,
    overhead,
    recsys,
    simclr,
    ssd,
    startup,
    text,
)
from benchmarks.workload import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        overhead.WORKLOAD,
        gil.WORKLOAD,
        arrays.WORKLOAD,
        startup.WORKLOAD,
        startup.IMPORT,
        memory.WORKLOAD,
        simclr.WORKLOAD,
        ssd.WORKLOAD,
        classification.WORKLOAD,
        classification.LARGE,
        text.WORKLOAD,
        text.TOKENS,
        audio.WORKLOAD,
        recsys.WORKLOAD,
        objects.WORKLOAD,
        kept.WORKLOAD,
    )
}
