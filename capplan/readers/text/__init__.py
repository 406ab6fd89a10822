"""Formats that hold text: conversations and prompts, turned into token ids while they are read."""
