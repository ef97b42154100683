"""Collect the packages of the wheel, some of which are outside this folder."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CollectPackages(BuildHookInterface):
    """Include the package of each folder that an editable installation names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the packages, unless the installation is editable and reads them in place."""
        if version == "editable":
            return
        for folder in self.build_config.dev_mode_dirs:
            [marker] = Path(self.root, folder).glob("headway_*/__init__.py")
            build_data["force_include"][str(marker.parent)] = marker.parent.name
