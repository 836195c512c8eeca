"""Clients, each shared by all storages on an event loop with the same account and credentials."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.storage.blob.aio import BlobServiceClient, ContainerClient

from asyncrec.errors import ArgumentValueError
from asyncrec.storage import in_thread
from asyncrec.storage.http import SharedClients, trusting

from .access import Access
from .errors import NoNewTokenError
from .transport import Transport


class Client:
    """An SDK client for one account.

    Attributes:
        secrets: the strings to remove from the store's messages, because stores echo them.
        sent: a description of the credentials that are sent to the store, for error messages.
    """

    def __init__(self, access: Access, context: ssl.SSLContext, identity: Any) -> None:
        self.secrets = tuple(_secrets(access))
        self.sent = access.sent
        self._identity = identity
        options: dict[str, Any] = {
            "transport": Transport(context),
            "retry_total": 0,  # only the core retries
            "user_agent": "asyncrec-azure",
        }
        if access.connection_string is not None:
            try:
                self._service = BlobServiceClient.from_connection_string(access.connection_string, **options)
            except ValueError as error:  # the SDK's message contains no secret
                raise ArgumentValueError(f"connection_string: {error}") from None
        else:
            credential = _credential(access) or identity
            self._service = BlobServiceClient(access.endpoint, credential=credential, **options)

    def __repr__(self) -> str:
        return f"<Client of {self._service.primary_hostname}>"

    def container(self, name: str) -> ContainerClient:
        return self._service.get_container_client(name)

    async def close(self) -> None:
        """Close all connections, including those for tokens."""
        try:
            await self._service.close()
        finally:
            if self._identity is not None:
                await self._identity.close()


class _Identity:
    """An identity that the SDK looks up. Once it has returned a token, its failures mean that the service is down.

    The SDK raises the same error if a machine has no identity and if the service of its identity does not respond.
    """

    def __init__(self, credential: Any) -> None:
        self._credential = credential
        self._had_token = False

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        """Return a token. The SDK calls this method.

        Raises:
            NoNewTokenError: the identity returned a token before, but returns none now.
        """
        try:
            token = await self._credential.get_token(*scopes, **options)
        except ClientAuthenticationError as error:
            if error.response is not None or not self._had_token:
                raise
            failure = NoNewTokenError(type(error).__name__)
        else:
            self._had_token = True
            return token
        raise failure

    async def close(self) -> None:
        await self._credential.close()


def _credential(access: Access) -> Any:
    if access.account_key is not None:
        return AzureNamedKeyCredential(access.account, access.account_key)
    return None if access.sas_token is None else AzureSasCredential(access.sas_token)


def _secrets(access: Access) -> Iterator[str]:
    pieces = dict(part.partition("=")[::2] for part in (access.connection_string or "").split(";"))
    if key := access.account_key or pieces.get("AccountKey"):
        yield key
    if token := access.sas_token or pieces.get("SharedAccessSignature"):
        yield token
        # Every URL contains the signature, and a store may echo the decoded form.
        yield from parse_qs(token).get("sig", ())
        yield from (part[4:] for part in token.split("&") if part.startswith("sig="))


def _prepare(access: Access) -> tuple[ssl.SSLContext, Any]:
    """Return the TLS context, and the token source if needed. Reads files and imports, so call this in a thread."""
    context = trusting(access.ca_file, named_by="ca_file", what="opening a client for Azure", shared=True)
    if not access.identity:
        return context, None
    from azure.identity.aio import DefaultAzureCredential

    options = {} if access.client_id is None else {"managed_identity_client_id": access.client_id}
    return context, _Identity(DefaultAzureCredential(**options))


async def _make(access: Access) -> Client:
    return Client(access, *await in_thread(_prepare, access))


CLIENTS = SharedClients("asyncrec_azure_clients", _make, Client.close)
