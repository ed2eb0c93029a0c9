"""Evaluation of methods: on surfaces with exact volatilities, and on listed chains."""
