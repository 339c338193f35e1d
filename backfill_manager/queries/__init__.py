"""Read only: plain dicts out of a store, with the field names of the JSON of command line and API, instants as text.

May import `errors`, `clock`, `settings`, `model`, `store`, `dags`, `requests`. A face (cli, api, ui) only chooses and
draws; what a thing is called and how its parts add up is decided here, once.
"""
