"""Integrations with schedulers and dbt. Each module imports the program that it is for, and nothing else imports it.

Must not: be imported by another package, or contain what an operation does.
Read first: airflow.py.
"""
