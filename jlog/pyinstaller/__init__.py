"""Tells PyInstaller where the hook is that finds jlog's compiled modules. The entry point `pyinstaller40` names this."""

import os


def hook_directories() -> list[str]:
    return [os.path.dirname(__file__)]
