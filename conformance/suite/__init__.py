"""Cases, verdicts, recordings, hardware."""
