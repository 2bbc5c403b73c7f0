import { partitionColumnsSql, type Parted, type Partition } from '../../datasets/partition.ts';

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

/** The value of a partition in one column, of the column's type. */
function valueSql(partition: Partition, { name, type }: Parted['partitionBy'][number]): string {
  return `${sqlText(partition[name] ?? '')}::${type}`;
}

/** The values of a partition as an SQL tuple. */
function tupleSql({ partitionBy }: Parted, partition: Partition): string {
  return `(${partitionBy.map((column) => valueSql(partition, column)).join(', ')})`;
}

/**
 * SQL that is true for the rows of one partition. Unlike a comparison of tuples, it lets the engine pass over the row
 * groups whose statistics exclude them.
 */
export function partitionSql({ partitionBy }: Parted, partition: Partition): string {
  return partitionBy.map((column) => `${column.name} = ${valueSql(partition, column)}`).join(' AND ');
}

/** SQL that is true for the rows of some partitions of a dataset, and never NULL. */
export function partitionsSql(dataset: Parted, partitions: readonly Partition[]): string {
  if (partitions.length === 0) return 'false';
  return `(${partitionColumnsSql(dataset)}) IN (${partitions.map((one) => tupleSql(dataset, one)).join(', ')})`;
}

/** Statements of a text, and what stands behind the last semicolon: the beginning of another one, or nothing. */
export interface SplitSql {
  readonly statements: readonly string[];
  readonly rest: string;
}

/** What begins at a place and hides semicolons: strings, quoted names, comments, dollar quotes. */
const hiding = /'|"|--|\/\*|\$(?:[A-Za-z_]\w*)?\$/y;

/** Where a nested comment that begins at `from` ends; the end of the text where it does not. */
function endOfComment(text: string, from: number): number {
  const marks = /\/\*|\*\//g;
  marks.lastIndex = from;
  let depth = 0;
  for (let mark = marks.exec(text); mark !== null; mark = marks.exec(text)) {
    depth += mark[0] === '/*' ? 1 : -1;
    if (depth === 0) return marks.lastIndex;
  }
  return text.length;
}

/** Where a string or quoted name ends, whose quote stands at `from`; `escapes`: backslashes count, as in E'...'. */
function endOfQuoted(text: string, from: number, escapes: boolean): number {
  const quote = text.charAt(from);
  for (let at = from + 1; at < text.length; at += 1) {
    if (escapes && text.charAt(at) === '\\') at += 1;
    else if (text.charAt(at) === quote) {
      if (text.charAt(at + 1) !== quote) return at + 1;
      at += 1;
    }
  }
  return text.length;
}

function endOfHidden(text: string, from: number, mark: string): number {
  if (mark === '/*') return endOfComment(text, from);
  if (mark === "'" || mark === '"') {
    const escapes = mark === "'" && /(?:^|\W)e$/i.test(text.slice(Math.max(0, from - 2), from));
    return endOfQuoted(text, from, escapes);
  }
  const end = mark === '--' ? text.indexOf('\n', from) : text.indexOf(mark, from + mark.length);
  if (end === -1) return text.length;
  return mark === '--' ? end : end + mark.length;
}

/** Says whether a piece of SQL is nothing but space and comments. */
const isBlank = (sql: string): boolean => sql.replaceAll(/--.*|\/\*[^]*?\*\//g, '').trim() === '';

/**
 * Splits a text at its semicolons, those in strings, names and comments apart; statements are without them, and blank
 * ones are left out. What a statement is the engine decides: this only says where a person has ended one.
 */
export function splitSql(text: string): SplitSql {
  const statements: string[] = [];
  let begin = 0;
  let at = 0;
  while (at < text.length) {
    hiding.lastIndex = at;
    const mark = hiding.exec(text)?.[0];
    if (mark !== undefined) at = endOfHidden(text, at, mark);
    else {
      if (text.charAt(at) === ';') {
        statements.push(text.slice(begin, at).trim());
        begin = at + 1;
      }
      at += 1;
    }
  }
  const rest = text.slice(begin).trim();
  return { statements: statements.filter((sql) => !isBlank(sql)), rest: isBlank(rest) ? '' : rest };
}
