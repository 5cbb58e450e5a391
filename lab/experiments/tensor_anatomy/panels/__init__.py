"""Measurements that need no program of the visitor's: one module a view."""
