"""What confines a process: namespaces, Landlock, seccomp, limits. Standard library only.

Nothing here knows of rubrics: it confines whatever program it is told to run in a room.
"""
