"""DP-dKM: the Krasnosel'skiĭ–Mann framework."""
