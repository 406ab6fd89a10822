"""`capplan synth`."""
