r"""``serve``: translations over HTTP, with a model that is loaded once.

example:
  fairseq-depthwise serve checkpoints --cpu
  curl -s localhost:8000/translate -H 'Content-Type: application/json' \
    -d '{"lines": ["a man rides a bike ."]}'

http://localhost:8000/ is a page, /openapi.json describes the rest. SIGTERM ends the server once what it has
begun is answered.
"""

from __future__ import annotations

import argparse
import functools
import signal
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from fairseq_compat import UserError
from fairseq_compat.process import describe_waiting
from fairseq_depthwise.commands.translator_options import add_translator_options, load_translator, require_model
from fairseq_depthwise.options import add_options, options_of, require_extra
from fairseq_depthwise.serving.server_options import ServerOptions
from fairseq_depthwise.translation.translation_options import TranslatorOptions

if TYPE_CHECKING:
    from fairseq_depthwise.serving.http.app import Service


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="as for translate: a checkpoint, an ensemble, an exported folder"
    )
    add_options(parser, ServerOptions)
    add_translator_options(parser, without=("constraints", "sampling", "sampling_topk"))


def check(options: argparse.Namespace) -> None:
    require_extra("serve", "fastapi", "prometheus_client", "uvicorn")
    if options.alignment == "soft":
        raise UserError("--print-alignment soft is for files; requests get hard ones")
    if options.max_lines > options.queue_lines:
        raise UserError(
            f"--max-lines {options.max_lines} is more than --queue-lines {options.queue_lines}: such a request would "
            "never be accepted"
        )
    options_of(TranslatorOptions, options)  # which refuses those that do not go together
    require_model(options.model)


def run(options: argparse.Namespace) -> None:
    translator_options = options_of(TranslatorOptions, options)
    with _bind(options.host or "127.0.0.1", options.port) as listener:
        _serve(_service(options, translator_options), listener, options.timeout)


def _bind(host: str, port: int) -> socket.socket:
    """Reserve the port before the model is loaded; nobody can connect until the server listens."""
    listener = socket.socket()
    try:
        # The host may be an IPv6 address, or have one.
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listener.close()
        listener = socket.socket(family, kind, protocol)
        # A server can be restarted on its port at once.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        listener.close()
        raise UserError(f"--port {port} of --host {host} cannot be used: {error}; --port 0 picks a free one") from error
    return listener


def _service(options: argparse.Namespace, translator_options: TranslatorOptions) -> Service:
    from fairseq_depthwise import __version__
    from fairseq_depthwise.analysis.explained_sentence import explain
    from fairseq_depthwise.serving.http.app import Service

    # A request may ask for as many translations as the search keeps.
    translator = load_translator(options, replace(translator_options, nbest=options.beam))
    return Service(
        translator,
        options_of(ServerOptions, options),
        nbest=options.nbest,
        explain=functools.partial(explain, translator) if translator.models else None,
        version=__version__,
    )


def _serve(service: Service, listener: socket.socket, timeout: float) -> None:
    """Serve until a signal comes, then finish requests that have begun, within the time limit of a request."""
    import torch

    from fairseq_depthwise.serving.http.connections import server_of

    # uvicorn raises the signal again after it has ended; we exit normally instead.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    listener.listen()
    # With --port 0 the system has chosen a port.
    host, port = listener.getsockname()[:2]
    print(f"http://{f'[{host}]' if ':' in host else host}:{port}/", flush=True)
    if torch.get_num_threads() > 1:
        print(describe_waiting(torch.get_num_threads()), file=sys.stderr)
    print("SIGTERM or Ctrl-C ends the server", file=sys.stderr)
    server_of(service, timeout).run(sockets=[listener])
