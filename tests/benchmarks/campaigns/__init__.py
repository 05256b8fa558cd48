"""Whole campaigns on simulated deployments, in virtual time: optagent beside other ways to search. See README.md."""
