"""Compiled kernels: arrays in, arrays out, no checks, no other capplan module.

Every range is checked by the module that calls a kernel; an index out of range here is undefined.
"""
