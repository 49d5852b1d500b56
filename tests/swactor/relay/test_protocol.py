"""Bytes of the relay protocol, good and bad."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from swactor.relay import Subprotocol, protocol
from swactor.relay.protocol import FrameType, ProtocolError, SignatureError, Status

CHALLENGE = bytes(range(16))
KEY = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)
PUBLIC = KEY.public_key().public_bytes_raw()
OTHER = bytes([9]) * 32


def auth(challenge: bytes = CHALLENGE) -> bytes:
    return b"\x01" + PUBLIC + b"\x40" + KEY.sign(protocol.signed_digest(challenge))


def test_the_signed_digest_is_the_one_clients_sign() -> None:
    # What iroh endpoints accept; a changed context string would keep everybody out.
    digest = protocol.signed_digest(CHALLENGE).hex()
    assert digest == "b7b16e505d2cb5dbaf494800092c3b05a6c45d8d3fd4f1b888c6a77240b876c0"


def test_the_challenge_is_type_0_and_16_bytes() -> None:
    assert protocol.challenge_message(CHALLENGE) == b"\x00" + CHALLENGE


def test_a_right_answer_gives_the_key() -> None:
    assert protocol.verify_auth(auth(), CHALLENGE) == PUBLIC


def test_an_answer_to_another_challenge_is_refused() -> None:
    with pytest.raises(SignatureError):
        protocol.verify_auth(auth(bytes(16)), CHALLENGE)


def test_a_key_that_is_not_the_signers_is_refused() -> None:
    answer = auth()

    with pytest.raises(SignatureError):
        protocol.verify_auth(answer[:1] + OTHER + answer[33:], CHALLENGE)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        auth()[:-1],
        auth() + b"\x00",
        b"\x02" + auth()[1:],
        auth()[:33] + b"\x3f" + auth()[34:],
    ],
)
def test_a_misshapen_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.verify_auth(answer, CHALLENGE)


def test_admission_and_denial() -> None:
    assert protocol.confirm_message() == b"\x02"
    assert protocol.denial_message("bad token") == b"\x03\x09bad token"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=300))
def test_a_denial_has_a_one_byte_length_and_whole_characters(reason: str) -> None:
    message = protocol.denial_message(reason)

    assert message[1] == len(message) - 2 < 128
    assert reason.startswith(message[2:].decode())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"\x04" + OTHER + b"\x00", FrameType.DATAGRAM_TO),
        (b"\x04" + OTHER + b"\x00" + bytes(65536 - 33), FrameType.DATAGRAM_TO),
        (b"\x05" + OTHER + b"\x00\x05\xdc" + bytes(100), FrameType.BATCH_TO),
        (b"\x09" + bytes(8), FrameType.PING),
        (b"\x0a" + bytes(8), FrameType.PONG),
    ],
)
def test_what_a_client_may_send(message: bytes, expected: FrameType) -> None:
    assert protocol.client_frame_type(message) is expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x04" + OTHER,
        b"\x04" + OTHER + b"\x00" + bytes(65536 - 32),
        b"\x05" + OTHER + b"\x00\x05",
        b"\x09" + bytes(7),
        b"\x09" + bytes(9),
        b"\x0a",
        b"\x40\x09" + bytes(8),
        *(bytes([kind]) + bytes(40) for kind in (0, 1, 2, 3, 6, 7, 8, 11, 12, 13, 14, 255)),
    ],
)
def test_what_a_client_may_not_send(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.client_frame_type(message)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_type_or_a_protocol_error(message: bytes) -> None:
    try:
        frame_type = protocol.client_frame_type(message)
    except ProtocolError:
        return
    assert frame_type == message[0]


@given(kind=st.sampled_from([4, 5]), payload=st.binary(min_size=3, max_size=200))
def test_forwarding_swaps_the_key_and_keeps_the_rest(kind: int, payload: bytes) -> None:
    message = bytes([kind]) + OTHER + payload

    assert protocol.destination(message) == OTHER
    assert protocol.forwarded(message, PUBLIC) == bytes([kind + 2]) + PUBLIC + payload


def test_frames_of_the_relay() -> None:
    assert protocol.endpoint_gone_frame(OTHER) == b"\x08" + OTHER
    assert protocol.ping_frame(b"12345678") == b"\x0912345678"
    assert protocol.pong_frame(b"\x0912345678") == b"\x0a12345678"


@pytest.mark.parametrize(
    ("n_bytes", "head"),
    [
        (1, "8201"),
        (125, "827d"),
        (126, "827e007e"),
        (65_535, "827effff"),
        (65_536, "827f0000000000010000"),
    ],
)
def test_a_frame_is_one_unmasked_binary_message(n_bytes: int, head: str) -> None:
    assert protocol.websocket_head(n_bytes).hex() == head


def test_a_status_is_one_byte_in_v2_and_text_in_v1() -> None:
    assert protocol.status_frame(Status.SAME_ID_CONNECTED, Subprotocol.V2) == b"\x0d\x01"
    assert protocol.status_frame(Status.HEALTHY, Subprotocol.V2) == b"\x0d\x00"
    parked = protocol.status_frame(Status.SAME_ID_CONNECTED, Subprotocol.V1)
    assert parked[0] == 11
    assert "same endpoint id" in parked[1:].decode()
    assert protocol.status_frame(Status.HEALTHY, Subprotocol.V1) == b"\x0b"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("iroh-relay-v2, iroh-relay-v1", Subprotocol.V2),
        ("iroh-relay-v1,iroh-relay-v2", Subprotocol.V2),
        ("iroh-relay-v1", Subprotocol.V1),
        ("iroh-relay-v9, chat", None),
        ("", None),
    ],
)
def test_the_newest_common_version_is_spoken(offered: str, chosen: Subprotocol | None) -> None:
    assert protocol.choose_subprotocol(offered) is chosen


@pytest.mark.parametrize(
    ("header", "admitted"),
    [
        ("Bearer open-sesame", True),
        ("bearer  open-sesame ", True),
        ("Basic open-sesame", False),
        ("Bearer open-sesam", False),
        ("Bearer ", False),
        ("", False),
        ("Bearer \udcff\udcfe", False),
    ],
)
def test_a_bearer_token_admits(header: str, *, admitted: bool) -> None:
    assert protocol.authorized(header, "open-sesame") is admitted
