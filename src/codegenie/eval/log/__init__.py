"""The audit log: its records, their chain, the files on disk, and what can be read from them."""
