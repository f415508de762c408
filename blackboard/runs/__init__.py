"""Driving a thread: enter, resume, act, commit, finish."""
