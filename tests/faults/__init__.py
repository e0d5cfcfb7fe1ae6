"""Crashes, errors, power loss, kills and races, and the proof that the dataset is the old one or the new one."""
