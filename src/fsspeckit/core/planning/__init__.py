"""Plans: which files an operation changes, and the reason for each file.

Must not: write anything. A file is skipped only if statistics, partitions or filters prove that it has no match.
Read first: merge.py for merges, maintenance_request.py for compact, optimize and deduplicate.
"""
