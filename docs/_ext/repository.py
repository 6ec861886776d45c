"""The address of the repository, for the site's header."""

import re
import subprocess
from pathlib import Path

ADDRESS = re.compile(r'(?:https?://(?:[^@/]*@)?|(?:ssh://)?git@)(?P<host>[\w.-]+)(?::\d+)?[:/](?P<path>[\w./~-]+)')


def repository(checkout: Path) -> str:
    """Return the page of a checkout's origin; '' if it has none, or one that is no page."""
    command = ['git', 'remote', 'get-url', 'origin']
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    found = ADDRESS.fullmatch(done.stdout.strip())
    return f'https://{found["host"]}/{found["path"].strip("/").removesuffix(".git")}' if found else ''
