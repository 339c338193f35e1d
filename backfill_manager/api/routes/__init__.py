"""The endpoints of the REST API, a file for each resource."""
