"""DAGs written in YAML: reading them, and the JSON schema for editors."""
