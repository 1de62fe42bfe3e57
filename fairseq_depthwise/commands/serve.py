"""``serve``: translations over HTTP, with a model that is loaded once."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_compat.versions import fairseq_problem
from fairseq_depthwise.commands.parsers import add_parser, positive_int
from fairseq_depthwise.commands.translator_options import (
    add_search_options,
    add_text_options,
    chosen_precision,
    load_translator,
)

if TYPE_CHECKING:
    from fairseq_depthwise.serving.http.app import Service


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "serve",
        run=run,
        help="translate over HTTP: JSON, a page for people, metrics",
        example="fairseq-depthwise serve checkpoints --cpu\n"
        "  curl -s localhost:8000/translate -H 'Content-Type: application/json' \\\n"
        """    -d '{"lines": ["a man rides a bike ."]}'\n\n"""
        "http://localhost:8000/ is a page, /openapi.json describes the rest. SIGTERM ends the server once what it has\n"
        "begun is answered.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="as for translate: a checkpoint, an ensemble, an exported folder"
    )
    parser.add_argument("--data", metavar="BIN", help="the folder with the dictionaries")
    parser.add_argument("-s", "--source-lang", metavar="LANG", help="language of the lines unless a request names one")
    parser.add_argument("-t", "--target-lang", metavar="LANG", help="language of translations, in the same way")
    _add_server_options(parser)
    add_text_options(parser)
    add_search_options(
        parser, nbest="translations of a line unless a request says how many (default: 1; at most --beam)"
    )
    group = parser.add_argument_group("alignments and scores")
    group.add_argument(
        "--print-alignment", nargs="?", const="hard", choices=("hard",), metavar="KIND",
        help="let requests ask for word alignments (hard), which takes another pass of the decoder",
    )  # fmt: skip
    group.add_argument(
        "--token-scores", action="store_true",
        help="let requests ask for tokens and their log-probabilities to base 2",
    )  # fmt: skip
    parser.set_defaults(constraints=None, sampling=False, sampling_topk=None)  # which requests do not have


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument(
        "--host", metavar="ADDRESS",
        help="listen there, and answer whatever the Host header is (default: 127.0.0.1, and Host must be it or "
        "localhost)",
    )  # fmt: skip
    group.add_argument("--port", type=_port, default=8000, metavar="N", help="0 picks a free one (default: 8000)")
    group.add_argument(
        "--wait-ms", type=_milliseconds, default=5.0, metavar="MS",
        help="wait so long for more lines before a search of few (default: 5)",
    )  # fmt: skip
    group.add_argument(
        "--batch-lines", type=positive_int, default=256, metavar="N",
        help="lines of all requests that are searched together; --max-tokens and --batch-size divide them further "
        "(default: 256)",
    )  # fmt: skip
    group.add_argument(
        "--queue-lines", type=positive_int, default=4000, metavar="N",
        help="answer 503 where more lines would wait (default: 4000)",
    )  # fmt: skip
    group.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="answer 504 after so many seconds (default: 60)"
    )
    group.add_argument(
        "--max-body", type=positive_int, default=1 << 20, metavar="N", help="bytes of a request (default: 1048576)"
    )
    group.add_argument(
        "--max-lines", type=positive_int, default=1000, metavar="N", help="lines of a request (default: 1000)"
    )
    group.add_argument(
        "--max-chars", type=positive_int, default=10_000, metavar="N", help="characters of a line (default: 10000)"
    )


def run(options: argparse.Namespace) -> int:
    if (problem := fairseq_problem()) is not None:
        raise UserError(problem)
    _require_options(options)
    listener = _bind(options.host or "127.0.0.1", options.port)
    with listener:
        _serve(_service(options), listener, options)
    return 0


def _require_options(options: argparse.Namespace) -> None:
    for name in ("fastapi", "prometheus_client", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise UserError(f"serve needs {name}, which is not installed; pip install 'fairseq-depthwise[serve]'")
    if options.host == "":
        raise UserError("--host is empty; give an address of this machine, or leave it out for 127.0.0.1")
    if options.nbest > options.beam:
        raise UserError(f"--nbest {options.nbest} is more than the hypotheses that --beam {options.beam} keeps")
    if options.max_lines > options.queue_lines:
        raise UserError(
            f"--max-lines {options.max_lines} is more than --queue-lines {options.queue_lines}: such a request would "
            "never be accepted"
        )


def _bind(host: str, port: int) -> socket.socket:
    """Take the port before the model is loaded; nobody can connect until the server listens."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--host {host} is no address of this machine: {reason}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise UserError(
            f"--port {port} of --host {host} cannot be used: {error.strerror}; --port 0 picks a free one"
        ) from error
    return listener


def _service(options: argparse.Namespace) -> Service:
    from fairseq_depthwise import __version__
    from fairseq_depthwise.analysis.explained_sentence import explain, reason_against
    from fairseq_depthwise.serving.http.app import LOCAL_HOSTS, Service
    from fairseq_depthwise.serving.http.messages import DETAILS, Limits

    # A request may ask for as many translations as the search keeps.
    all_hypotheses = argparse.Namespace(**{**vars(options), "nbest": options.beam})
    translator = load_translator(all_hypotheses, chosen_precision(options))
    limits = Limits(
        max_body=options.max_body,
        max_lines=options.max_lines,
        max_chars=options.max_chars,
        queue_lines=options.queue_lines,
        timeout=options.timeout,
        nbest=options.nbest,
        most_nbest=options.beam,
        details=frozenset(name for name in DETAILS if getattr(translator.options, name, False)),
    )
    return Service(
        translator,
        limits,
        few=translator.with_nbest(options.nbest),
        batch_lines=options.batch_lines,
        wait=options.wait_ms / 1000,
        explain=reason_against(translator) or functools.partial(explain, translator),
        hosts=LOCAL_HOSTS if options.host is None else ("*",),
        version=__version__,
    )


def _serve(service: Service, listener: socket.socket, options: argparse.Namespace) -> None:
    """Answer until a signal comes, and then finish what has begun, for the time of a request at most."""
    from fairseq_depthwise.serving.http.connections import server_of

    # uvicorn raises the signal once more when it has ended; its way out is ours.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    try:
        listener.listen()
    except OSError as error:
        raise UserError(f"--port {options.port} cannot be used: {error.strerror}") from error
    host, port = listener.getsockname()[:2]
    print(f"http://{f'[{host}]' if ':' in host else host}:{port}/", flush=True)
    print("SIGTERM or Ctrl-C ends the server", file=sys.stderr)
    server_of(service).run(sockets=[listener])


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 65535")
    return int(text)


def _milliseconds(text: str) -> float:
    return _number(text, least=0.0, most=10_000.0)


def _seconds(text: str) -> float:
    return _number(text, least=0.01, most=86_400.0)


def _number(text: str, *, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}")
    return number
