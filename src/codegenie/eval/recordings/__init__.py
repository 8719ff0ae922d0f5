"""What a run recorded for others to replay: its format, its reader and its writer."""
