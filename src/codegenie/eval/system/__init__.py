"""The operating system: files, directories, clocks and processes. No module here depends on benches."""
