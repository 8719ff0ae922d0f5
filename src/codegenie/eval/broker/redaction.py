"""Takes the credential out of what an upstream answers, should it repeat it.

The replacement has the same length, so a body keeps the length that its head states. A credential that is
split between two parts of a stream is found too: only the bytes that may be its beginning are held back.
"""


class Redactor:
    """Replaces one secret in a stream of bytes."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode("ascii")
        self._stars = b"*" * len(self._secret)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what can be passed on of all that came so far."""
        data = (self._held + data).replace(self._secret, self._stars)
        kept = self._beginning(data)
        self._held = data[len(data) - kept :]
        return data[: len(data) - kept]

    def finish(self) -> bytes:
        """Return what was held back."""
        held, self._held = self._held, b""
        return held

    def text(self, value: str) -> str:
        """Return a text without the secret."""
        return value.replace(self._secret.decode(), self._stars.decode())

    def _beginning(self, data: bytes) -> int:
        """Return how many bytes at the end may be the beginning of the secret."""
        most = min(len(data), len(self._secret) - 1)
        return next((size for size in range(most, 0, -1) if data.endswith(self._secret[:size])), 0)
