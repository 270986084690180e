//! Tables of text, as all commands print them.

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

use crate::shown;

/// A table whose first column is names, which files may give, and whose others are numbers.
pub(crate) fn of_numbers(header: &[&str], rows: &[Vec<String>]) -> String {
    let shown = |row: &Vec<String>| row.iter().map(|cell| shown::name(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(shown).collect();
    drawn(header, &rows, CellAlignment::Right)
}

/// A table of text.
pub(crate) fn of_text(header: &[&str], rows: &[Vec<String>]) -> String {
    drawn(header, rows, CellAlignment::Left)
}

fn drawn(header: &[&str], rows: &[Vec<String>], alignment: CellAlignment) -> String {
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_header(header.to_vec());
    for row in rows {
        table.add_row(row.iter().map(Cell::new).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(alignment);
    }
    table.to_string()
}
