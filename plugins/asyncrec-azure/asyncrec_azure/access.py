"""The account and its credentials. Missing values are taken from the environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from asyncrec.errors import ArgumentValueError


@dataclass(frozen=True, kw_only=True)
class Access:
    """The options of one client. Storages with equal access options share their connections.

    Attributes:
        endpoint: the account's endpoint, without a trailing slash; ``""`` if the connection string contains it.
        account: the account's name; ``""`` if it is not needed.
        connection_string, account_key, sas_token: the credentials; at most one is set.
        anonymous: whether to send no credentials. If false and no credentials are set, the SDK looks up an identity.
        client_id: the id of the managed identity to use; needed if the machine has several.
        ca_file: a file of trusted certificate authorities; `None` for those of the machine.
    """

    endpoint: str
    account: str = ""
    connection_string: str | None = field(default=None, repr=False)
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    anonymous: bool = False
    client_id: str | None = None
    ca_file: str | None = None

    @property
    def sent(self) -> str:
        """A description of the credentials that are sent to the store, without secrets."""
        if self.sas_token is not None:
            ends = parse_qs(self.sas_token).get("se")
            return f"the sas_token, which ends at {ends[0]}" if ends else "the sas_token"
        if self.account_key is not None:
            return f"the account_key, for the account {self.account}"
        if self.connection_string is not None:
            return "the key or token of the connection_string"
        return "no credentials (anonymous=True)" if self.anonymous else "the token of an identity"

    @property
    def identity(self) -> bool:
        """Whether the client authenticates with an identity that the SDK looks up."""
        return not (self.connection_string or self.account_key or self.sas_token or self.anonymous)


def access_of(
    *,
    host: str = "",
    account: str | None = None,
    endpoint: str | None = None,
    connection_string: str | None = None,
    account_key: str | None = None,
    sas_token: str | None = None,
    anonymous: bool = False,
    client_id: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
) -> Access:
    """Return the `Access` for these options. Missing options are taken from the environment.

    Credentials from the environment belong to the environment's account, and are not sent to another account.

    Args:
        host: the host in the URL, such as ``account.dfs.core.windows.net``, or ``""``.

    Raises:
        ValueError: the options contradict each other, are invalid, or name no account.
    """
    given = [connection_string, account_key, sas_token, anonymous or None]
    if sum(each is not None for each in given) > 1:
        raise ArgumentValueError("connection_string, account_key, sas_token and anonymous cannot be combined")
    if host and (account is not None or endpoint is not None):
        raise ArgumentValueError("the URL already names the account; omit account and endpoint")
    if endpoint is not None:
        _check_endpoint(endpoint)
    elif host:
        endpoint = f"https://{host.replace('.dfs.', '.blob.', 1)}"
    named = account or (_account_of(endpoint) if endpoint is not None else "")
    files = None if ca_file is None else os.fspath(ca_file)
    if all(each is None for each in given):
        connection_string, account_key, sas_token, named = _of_environment(named)
    if connection_string is not None:
        if host or endpoint is not None or account is not None:
            raise ArgumentValueError("the connection_string already names the account; omit account and endpoint")
        return Access(endpoint="", connection_string=connection_string, ca_file=files)
    if not named and endpoint is None:
        named = _variable("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME") or ""
    if not named and endpoint is None:
        raise ArgumentValueError(
            "no storage account is named: pass the option account, set AZURE_STORAGE_ACCOUNT or "
            "AZURE_STORAGE_CONNECTION_STRING, or write abfs://container@account.dfs.core.windows.net/prefix"
        )
    if endpoint is None and not re.fullmatch(r"[a-z0-9]{3,24}(-secondary)?", named):
        raise ArgumentValueError(f"{named!r} is not a valid account name; use 3 to 24 lower-case letters and digits")
    access = Access(
        endpoint=(endpoint or f"https://{named}.blob.core.windows.net").rstrip("/"),
        account=named,
        account_key=account_key,
        sas_token=None if sas_token is None else sas_token.lstrip("?"),
        anonymous=anonymous,
        client_id=client_id,
        ca_file=files,
    )
    if access.identity and not access.endpoint.startswith("https://"):
        raise ArgumentValueError(
            "the token of an identity is sent only over https://; for an endpoint that begins with http://, pass "
            "account_key, sas_token, connection_string or anonymous=True"
        )
    return access


def _of_environment(account: str) -> tuple[str | None, str | None, str | None, str]:
    """Return the connection string, key and token for ``account`` from the environment, and the account's name."""
    own = _variable("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
    if not account and (whole := _variable("AZURE_STORAGE_CONNECTION_STRING")):
        return whole, None, None, ""
    if account and own and own != account:
        return None, None, None, account
    if key := _variable("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"):
        return None, key, None, account or own or ""
    return None, None, _variable("AZURE_STORAGE_SAS_TOKEN"), account or own or ""


def _variable(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _check_endpoint(endpoint: str) -> None:
    parts = urlsplit(endpoint)
    if parts.username is not None or parts.query or parts.fragment:
        raise ArgumentValueError("endpoint must not contain credentials or a query; pass them as options")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ArgumentValueError("endpoint must begin with http:// or https:// and name a host")


def _account_of(endpoint: str) -> str:
    """Return the account's name: the first label of the host or, for an emulator, the path."""
    parts = urlsplit(endpoint)
    return parts.path.strip("/") or (parts.hostname or "").partition(".")[0]
