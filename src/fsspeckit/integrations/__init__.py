"""Integrations with schedulers and dbt. Each module imports the program that it is for, and nothing else imports it."""
