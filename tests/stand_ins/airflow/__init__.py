"""A stand-in for Airflow, which the tests do not install."""
