"""Tables that evaluation prints."""

from __future__ import annotations

from fairseq_depthwise.tables import Table, aligned


class ResultTable(Table):
    """Rows of cells by the names of their columns; columns without any cell are not printed."""

    def text(self) -> str:
        columns = zip(self.columns, *self.rows, strict=True)
        filled = [column for column in columns if any(column[1:])]
        rows = []
        for row in zip(*filled, strict=True):
            rows.append([cell or "-" for cell in row])
        return aligned(rows)
