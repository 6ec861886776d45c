"""`mmlape new`: from a folder of data to a config that trains on it.

A module for each form of data says whether a folder has it, and writes what has to be converted;
`choices` chooses model, sizes and length, and `writing` writes the config.
"""
