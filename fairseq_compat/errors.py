"""The exception for mistakes in the user's input."""


class UserError(ValueError):
    """A mistake in the input: an option, a file, the environment.

    Its message is one sentence that names the option or file, the value found, and what would be right. The command
    line tools print that sentence and end with status 1, without a traceback; in a notebook it is an ordinary
    ``ValueError``.
    """
