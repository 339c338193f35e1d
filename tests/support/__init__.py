"""What several tests share: fixtures of state, servers, model implementations, checks of pages."""
