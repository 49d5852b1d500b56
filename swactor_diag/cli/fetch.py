"""Downloading a bundle from a collector.

Owns: one GET, streamed to disk, and what each way of failing is called. Uses the standard library only, so
that reading bundles needs no web client.
"""

import http.client
import shutil
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from swactor_diag.cli._service import read_token
from swactor_diag.cli.console import CommandError, Exit

_TIMEOUT_S = 60.0
_STATUS_TEXT = {
    401: "the collector asks for a token: give --token-file",
    404: "the collector knows no such run",
}


def download(url: str, run_id: str, *, target: Path, token_file: Path | None) -> int:
    """Write the bundle of ``run_id`` to ``target`` and return its size; a failed download leaves no file.

    Raises:
        CommandError: no address, no answer, a refusal, or the file cannot be written.
    """
    headers = _headers(token_file)
    request = urllib.request.Request(_address(url, run_id), headers=headers)  # noqa: S310 - http(s) only
    unfinished = target.with_name(target.name + ".part")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer, unfinished.open("wb") as file:  # noqa: S310 - as above
            shutil.copyfileobj(answer, file)
        unfinished.replace(target)
    except urllib.error.HTTPError as exc:
        text = _STATUS_TEXT.get(exc.code, f"the collector answered {exc.code}")
        raise CommandError(f"{url}: {text}") from exc
    except urllib.error.URLError as exc:
        raise CommandError(f"cannot reach {url}: {exc.reason}") from exc
    except (OSError, http.client.HTTPException) as exc:
        raise CommandError(f"download from {url} failed: {exc}") from exc
    finally:
        unfinished.unlink(missing_ok=True)
    return target.stat().st_size


def _address(url: str, run_id: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise CommandError(f"not an address of a collector: {url!r}", status=Exit.WRONG_INPUT)
    return f"{url.rstrip('/')}/diag/bundle/{run_id}"


def _headers(token_file: Path | None) -> dict[str, str]:
    token = read_token(token_file)
    return {} if token is None else {"Authorization": f"Bearer {token}"}
