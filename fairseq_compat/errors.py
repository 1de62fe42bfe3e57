"""The exception for mistakes in the user's input."""


class UserError(ValueError):
    """A mistake in the input: an option, a file, the environment.

    Its message is one sentence that names the option or file, the value found, and what would be right. The command
    line tools print that sentence and end with status 1, without a traceback; in a notebook it is an ordinary
    ``ValueError``.
    """


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, at most 300 characters, or its class where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
