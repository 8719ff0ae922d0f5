"""What an agent left in its workspace, as data: walked by descriptor, bounded, and never through a link."""
