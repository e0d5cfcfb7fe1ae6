"""Plans: which files an operation changes, and the reason for each file.

Must not: write anything. A file is only left out on proof.
Read first: merge.py for merges, maintenance_request.py for compact, optimize and deduplicate.
"""
