"""The scorecard: what a run of it stores, and the page, twins and figures that are made of what is stored.

runs and ledger read and write the database; pools, steadiness, build, history, suites and experiments turn rows into a
`card.Scorecard`; sheets turns that into tables, from which twins and page print the same numbers.
"""
