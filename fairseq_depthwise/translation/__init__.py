"""From raw text to translations: tokens and subwords, languages, the search, and the translator that joins them."""
