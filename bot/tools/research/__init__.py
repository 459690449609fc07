"""Research on the web: search, pages, papers, and reports with their sources."""
