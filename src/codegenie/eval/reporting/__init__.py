"""Records to what people read. Writes nothing itself."""
