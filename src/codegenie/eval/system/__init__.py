"""The operating system: files, directories, clocks and processes. Nothing here knows of benches."""
