"""What an agent that is a program is: its file `sut.toml`, what it needs and what identifies it."""
