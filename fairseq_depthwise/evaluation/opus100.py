"""The languages of OPUS-100 (Zhang et al., 2020): English to and from 99 others."""

_CODES = """
    af am an ar as az be bg bn br bs ca cs cy da de dz el eo es et eu fa fi fr fy ga gd gl gu ha he hi hr hu hy id ig
    is it ja ka kk km kn ko ku ky li lt lv mg mk ml mn mr ms mt my nb ne nl nn no oc or pa pl ps pt ro ru rw se sh si
    sk sl sq sr sv ta te tg th tk tr tt ug uk ur uz vi wa xh yi yo zh zu
"""

LANGUAGES = tuple(_CODES.split())

#: Too small for a test set.
WITHOUT_TEST_SET = ("an", "dz", "hy", "mn", "yo")

#: The 94 languages that BLEU94 is the mean of.
TESTED = tuple(language for language in LANGUAGES if language not in WITHOUT_TEST_SET)

#: The four typologically different languages that BLEU4 is the mean of.
FOUR = ("de", "zh", "br", "te")
