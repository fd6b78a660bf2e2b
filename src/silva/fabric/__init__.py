"""Devices, and the links between them.

A `Topology` is data: devices with their memory and FLOP/s, directed links with latency and
bandwidth, and capacities that links share. It is written by hand, read from a file (`files`), taken
from a preset, or measured (`here`, `measure`). `routes` turns it into resources of the simulator:
what a device computes, what a link carries, and what a memory holds.
"""
