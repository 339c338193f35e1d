"""How a manager is set up: the model of its settings, and where they are read from."""

from backfill_manager.settings.loader import DEFAULT_CONF, RawSettings, load_settings, settings_and_places
from backfill_manager.settings.model import (
    GIT_TRANSPORTS,
    PARSER_GROUP,
    PARSERS,
    ApiSettings,
    BundleRules,
    BundleSettings,
    DirectorySettings,
    LimitSettings,
    PoolSettings,
    RetentionSettings,
    SecretSettings,
    Settings,
    SparkSettings,
    TokenSettings,
    unknown_parser,
)

__all__ = [
    "DEFAULT_CONF", "GIT_TRANSPORTS", "PARSERS", "PARSER_GROUP", "ApiSettings", "BundleRules", "BundleSettings",
    "DirectorySettings", "LimitSettings", "PoolSettings", "RawSettings", "RetentionSettings", "SecretSettings", "Settings",
    "SparkSettings", "TokenSettings", "load_settings", "settings_and_places", "unknown_parser",
]  # fmt: skip
