"""``fairseq-depthwise serve``: a process from its start to SIGTERM, and what is refused before a model is loaded."""

from __future__ import annotations

import importlib.util
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from probe_checkpoints import checkpoint_of
from served import PATIENCE, Client

from fairseq_depthwise.translation.translator import BeamOptions, LoadedTranslator, TranslatorOptions

#: Seconds until a process has imported PyTorch and loaded a model, on a machine with much else to do.
START = 120.0


@pytest.mark.parametrize("signalled", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
@pytest.mark.long
def test_from_the_start_to_a_signal_during_a_request(signalled: signal.Signals, data: str, tmp_path: Path) -> None:
    path = checkpoint_of(tmp_path, "depthwise_lstm_transformer")
    command = [
        "bash", "-c", 'ulimit -n 256; exec "$@"', "-",
        sys.executable, "-m", "fairseq_depthwise", "serve", path, "--data", data, "--cpu", "--port", "0",
        "--beam", "2", "--max-len-b", "8", "--nbest", "2", "--wait-ms", "1500",
        "--print-alignment", "--token-scores",
    ]  # fmt: skip
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server,
        ThreadPoolExecutor(1) as pool,
        ExitStack() as opened,
    ):
        try:
            assert server.stdout is not None
            line = pool.submit(server.stdout.readline).result(START)
            assert line.startswith("http://127.0.0.1:"), line
            client = Client(int(line.rstrip("/\n").rpartition(":")[2]))
            for _ in range(400):  # more than the server may have files open
                half = opened.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE))
                with suppress(ConnectionError):
                    half.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nX-")
            lines, details = ("w0 w1", "", "w3 w1 w2"), {"alignment": True, "token_scores": True}
            answer = pool.submit(client.translate, *lines, **details)
            client.wait_for(lambda: client.metric("queue_lines") == 3)
            server.send_signal(signalled)
            status, document, _ = answer.result(PATIENCE)
            assert status == 200
            options = TranslatorOptions(beam=BeamOptions(2, 0.6, 8), nbest=2, alignment="hard", token_scores=True)
            expected = LoadedTranslator(path, data=data, options=options).translations(lines)
            assert [found["text"] for found in document["translations"]] == [found.text for found in expected]
            assert [len(found["nbest"]) for found in document["translations"]] == [2, 1, 2]
            best = [found.hypotheses[0] for found in expected]
            for found, hypothesis in zip(document["translations"], best, strict=True):
                assert list(map(tuple, found["alignment"])) == list(hypothesis.alignment or ())
                assert found["tokens"] == list(hypothesis.tokens or ())
                assert found["token_scores"] == pytest.approx(list(hypothesis.token_scores or ()), abs=1e-4)
            assert server.wait(PATIENCE) == 0
            with pytest.raises(ConnectionRefusedError):
                client.translate("w0")
            assert server.stderr is not None
            assert "Traceback" not in server.stderr.read()
        finally:
            server.kill()


def test_a_port_that_is_taken_is_refused_before_a_model_is_loaded(tmp_path: Path, refusal: Callable[..., str]) -> None:
    (tmp_path / "model.pt").touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert f"--port {taken} " in refusal("serve", tmp_path / "model.pt", "--port", taken)


def test_without_the_extra(refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "fairseq-depthwise[serve]" in refusal("serve", "nowhere.pt")
