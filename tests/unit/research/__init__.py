"""Texts of strangers, sources, reports, settings of research, and what the offline provider makes of the tools."""
