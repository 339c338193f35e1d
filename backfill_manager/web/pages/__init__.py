"""The pages, a file for each resource: handlers that render a template or submit a command."""
