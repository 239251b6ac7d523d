"""Return every setting with its effective value, for people: defaults are computed, and secrets are masked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from backstream.lake.catalog_address import CatalogAddress, namespace
from backstream.lake.storage import Warehouse
from backstream.runs.home import Home, definitions_folders, expectations_folders
from backstream.runs.settings import SettingValue, mask_secrets
from backstream.spark.heap import driver_heap
from backstream.spark.java import archive_folder
from backstream.storage.home_copy import cache_folder
from backstream.variables import (
    CACHE_VARIABLE,
    CATALOG_CONNECTION_VARIABLE,
    CATALOG_NAME_VARIABLE,
    CATALOG_VARIABLE,
    CLASS_ARCHIVE_VARIABLE,
    DEFINITIONS_VARIABLE,
    EXPECTATIONS_VARIABLE,
    HEAP_VARIABLE,
    HOME_VARIABLE,
    NAMESPACE_VARIABLE,
    SHARED_HOME_VARIABLE,
    TEAM_VARIABLE,
    WAREHOUSE_CONNECTION_VARIABLE,
    WAREHOUSE_VARIABLE,
)


def effective_settings(settings: Sequence[SettingValue], home: Home) -> Iterator[SettingValue]:
    """Yield the settings with the values that a command uses.

    Args:
        settings: settings as resolved from the environment and the project.
        home: home of the installation.

    Raises:
        SpecError: when the value of a setting is invalid.
        SetupError: when the address of the catalog or warehouse is invalid.
    """
    defaults = _default_values(home)
    for setting in settings:
        text = defaults[setting.variable] if setting.text is None else setting.text
        yield SettingValue(setting.variable, mask_secrets(text), setting.source)


def _default_values(home: Home) -> dict[str, str]:
    catalog, warehouse = CatalogAddress.from_home(home), Warehouse.from_home(home)
    return {
        HOME_VARIABLE: home.location,
        CACHE_VARIABLE: str(cache_folder()),
        DEFINITIONS_VARIABLE: _path_list(definitions_folders()),
        EXPECTATIONS_VARIABLE: _path_list(expectations_folders()),
        CATALOG_VARIABLE: catalog.display_text,
        CATALOG_NAME_VARIABLE: "",
        CATALOG_CONNECTION_VARIABLE: "",
        NAMESPACE_VARIABLE: ".".join(namespace()),
        WAREHOUSE_VARIABLE: warehouse.display_text if warehouse.is_given else "that of the namespace",
        WAREHOUSE_CONNECTION_VARIABLE: "",
        SHARED_HOME_VARIABLE: "yes" if home.is_shared else "no",
        TEAM_VARIABLE: "",
        HEAP_VARIABLE: driver_heap().description,
        CLASS_ARCHIVE_VARIABLE: str(archive_folder()),
    }


def _path_list(folders: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, folders))
