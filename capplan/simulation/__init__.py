"""Simulation: engines' real tiers, one capacity at a time, beside the exact one-pass curve."""
