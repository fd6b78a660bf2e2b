"""All workloads, in the order in which they run."""

from benchmarks import arrays, gil, images, memory, overhead, startup
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
        images.WORKLOAD,
    )
}
