"""States and their legal transitions, the rows of the state tables, and the changes that may be made to them.

Plain values only: no Spark, no Delta, no clock, no thread. Imports nothing but `errors` and `clock`.
"""
