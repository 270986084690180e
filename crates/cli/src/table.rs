//! Tables of text, as all commands print them.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};

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

/// A table of text whose cells are wrapped to the terminal, or to [`WIDTH`] columns where there is none.
pub(crate) fn of_paragraphs(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = filled(header, rows, CellAlignment::Left);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(WIDTH);
    }
    table.to_string()
}

fn drawn(header: &[&str], rows: &[Vec<String>], alignment: CellAlignment) -> String {
    filled(header, rows, alignment).to_string()
}

fn filled(header: &[&str], rows: &[Vec<String>], alignment: CellAlignment) -> Table {
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
    table
}

/// Columns of text that is not read in a terminal.
const WIDTH: u16 = 100;
