"""Bytes to values and back: the bindings and the dialect. Pure: no await, no socket, no clock."""
