/** Writes a text as an SQL string literal: names of files and other text where a parameter cannot stand. */
export function sqlText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** Writes a list of texts as an SQL list literal. */
export function sqlList(texts: readonly string[]): string {
  return `[${texts.map(sqlText).join(', ')}]`;
}

/** Writes a name, such as a column's, as an SQL identifier. */
export function sqlName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/**
 * The day of a TIMESTAMPTZ in UTC: what a cast makes of it in a session of that zone, which asks a calendar for each row
 * and takes fifteen times as long.
 */
export function utcDateSql(moment: string): string {
  return `CAST(make_timestamp(epoch_us(${moment})) AS DATE)`;
}
