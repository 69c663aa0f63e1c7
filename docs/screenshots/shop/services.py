"""What the jobs of the shop use, and what fails in it."""

DOWN = {"b2b.example"}
RATES = {"DE": 19, "FR": 20, "IT": 22}


def send(to: str, subject: str) -> str:
    return deliver(f"mx.{to.partition('@')[2]}", to, subject)


def deliver(host: str, to: str, subject: str) -> str:
    if host.removeprefix("mx.") in DOWN:
        raise TimeoutError(f"{host}:587: timed out after 10 s")
    return f"{subject} sent to {to}"


def scaled_height(path: str, width: int) -> int:
    return read_size(path)[1] * width // 1600


def read_size(path: str) -> tuple[int, int]:
    if "draft" in path:
        raise OSError(f"{path}: image file is truncated (41 bytes not processed)")
    return 1600, 1200


def pay(order: int, amount: str, card_token: str) -> str:
    if order % 13 == 0:
        raise ConnectionError("payments.example: 503 Service Unavailable")
    return f"{amount} EUR of order {order}"


def vat(country: str) -> str:
    return f"{country}: {RATES[country]} %"
