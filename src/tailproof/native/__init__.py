"""The compiled part of the library: C sources in ``c/``, and typed functions over them, a module a source.

Nothing outside this package knows about pointers. Every function here checks types, shapes and layout of
its arrays, raises a Python error where one does not fit, and never copies the caller's rows. The C code runs
without the GIL and without global state.
"""
