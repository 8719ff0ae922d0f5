"""The confinement of a process: namespaces, Landlock, seccomp, limits. Standard library only.

No module here depends on rubrics: the caller names the program and its room.
"""
