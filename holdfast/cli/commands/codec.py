"""`holdfast codec-key` and `holdfast codec-server`: create an encryption key, and decrypt data for the Web UI."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.cli.options import AsJson, DataDir, Storage, settings_from
from holdfast.connection.settings import Settings
from holdfast.core.base.bounds import CODEC_TOKEN_CHARS_MAX
from holdfast.core.base.errors import InvalidInput, MissingPart
from holdfast.core.base.extras import install_command
from holdfast.storage.keys import KEY_FILE, create_key_file

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
UI_PORT: Final = 8233
TOKEN_VARIABLE: Final = "HOLDFAST_CODEC_TOKEN"  # noqa: S105  # its name


def codec_key(
    file: Annotated[Path, typer.Argument(help="The key file to create; an existing file is not overwritten.")],
    *,
    key_id: Annotated[
        str | None, typer.Option("--id", help="The key's name; default: today's date and six digits.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a key file with one new key, readable by its owner only."""
    created_id = create_key_file(file, key_id)
    if as_json:
        sys.stdout.write(json.dumps({"file": str(file), "id": created_id}) + "\n")
    else:
        remedy = f"Set {KEY_FILE}={file.absolute()} for every worker and client, and keep a copy: no key, no data."
        sys.stdout.write(f"made {file} with the key {created_id}\n{remedy}\n")


def codec_server(
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 means any free one.", min=0, max=65_535)] = 8088,
    ui_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="The Web UI's address, http://HOST:PORT; only its pages are served; repeatable; default: the "
            "embedded server's.",
            metavar="ORIGIN",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the token that callers must send; default: HOLDFAST_CODEC_TOKEN, else a new one.",
            metavar="FILE",
        ),
    ] = None,
    data_dir: DataDir = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Decrypt data for the Web UI and fetch it from the storage, until Ctrl-C."""
    settings = settings_from(data_dir=data_dir, storage=storage)
    origins = ui_origin or _embedded_origins(settings)
    asyncio.run(_serve(settings, host, port, origins, codec_token(token_file), as_json=as_json))


async def _serve(
    settings: Settings, host: str, port: int, origins: list[str], token: str | None, *, as_json: bool
) -> None:
    from holdfast.connection.temporal_client import converter_of  # an extra of its own

    try:
        from holdfast.server.codec_server import Access, CodecServer  # an extra of its own
    except ModuleNotFoundError as error:
        problem = f"the codec server needs {error.name}, which is not installed"
        raise MissingPart(f"{problem}; run: {install_command('encryption', 'temporal')}") from None
    access = Access.checked(token, origins)
    if settings.encryption_key_file is None:
        _say(f"warning: {KEY_FILE} is not set: the Web UI shows stored data, but no encrypted data")
    if host not in LOOPBACK:
        _say(f"warning: anyone who reaches {host} and has the token can read everything; put a TLS proxy in front")
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with CodecServer(converter_of(settings), access).serving(host, port) as bound:
        name = f"[{host}]" if ":" in host else host
        _announce(f"http://{name}:{bound}", access.token, sorted(access.origins), drawn=token is None, as_json=as_json)
        await stopping.wait()


def _announce(url: str, token: str, origins: list[str], *, drawn: bool, as_json: bool) -> None:
    """Tell where it is; a token that was drawn here can be known from nowhere else."""
    endpoint = f"{url}/{token}" if drawn else None
    if as_json:
        sys.stdout.write(json.dumps({"url": url, "endpoint": endpoint, "ui_origins": origins}) + "\n")
    else:
        where = f"  codec server  {url}\n  for pages of  {', '.join(origins)}\n"
        sys.stdout.write(
            f"\n{where}  Web UI        Codec Server endpoint: {endpoint or f'{url}/TOKEN'}\n\n"
            "  Anyone with the token can read everything. Ctrl-C stops the server.\n\n"
        )
    sys.stdout.flush()


def codec_token(file: Path | None) -> str | None:
    """Return the token in the file, else in HOLDFAST_CODEC_TOKEN, if it is there. Raises InvalidInput."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(CODEC_TOKEN_CHARS_MAX + 2).strip()
    except (OSError, UnicodeError) as error:
        problem = f"the token file {file} cannot be read ({getattr(error, 'strerror', None) or 'it is no text'})"
        raise InvalidInput(f"{problem}; write a token of 16 letters or more into it") from None


def _embedded_origins(settings: Settings) -> list[str]:
    """Return where the embedded server's Web UI is, or will be by default, by both names of this machine."""
    from holdfast.connection.data_directory import running_server  # an extra of its own

    server = running_server(settings.data_dir)
    port = int(server.ui.rpartition(":")[2]) if server else UI_PORT
    return [f"http://127.0.0.1:{port}", f"http://localhost:{port}"]


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
