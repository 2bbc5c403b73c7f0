import { partitionColumnsSql, type Parted, type Partition } from '../../datasets/partition.ts';

export function sqlText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

export function sqlList(texts: readonly string[]): string {
  return `[${texts.map(sqlText).join(', ')}]`;
}

export function sqlName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** Returns the UTC date of a TIMESTAMPTZ. A cast in a UTC session takes fifteen times as long. */
export function utcDateSql(moment: string): string {
  return `CAST(make_timestamp(epoch_us(${moment})) AS DATE)`;
}

function valueSql(partition: Partition, { name, type }: Parted['partitionBy'][number]): string {
  return `${sqlText(partition[name] ?? '')}::${type}`;
}

function tupleSql({ partitionBy }: Parted, partition: Partition): string {
  return `(${partitionBy.map((column) => valueSql(partition, column)).join(', ')})`;
}

/** Returns a condition for a partition's rows. Unlike a comparison of tuples, it skips row groups by statistics. */
export function partitionSql({ partitionBy }: Parted, partition: Partition): string {
  return partitionBy.map((column) => `${column.name} = ${valueSql(partition, column)}`).join(' AND ');
}

/** Returns a condition, never NULL, for the rows of some partitions of a dataset. */
export function partitionsSql(dataset: Parted, partitions: readonly Partition[]): string {
  if (partitions.length === 0) return 'false';
  return `(${partitionColumnsSql(dataset)}) IN (${partitions.map((one) => tupleSql(dataset, one)).join(', ')})`;
}

/** The statements of a text, and the unfinished one after the last semicolon. */
export interface SplitSql {
  readonly statements: readonly string[];
  readonly rest: string;
}

/** Starts of what may contain semicolons: strings, quoted names, comments, dollar quotes. */
const hiding = /'|"|--|\/\*|\$(?:[A-Za-z_]\w*)?\$/y;

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

/** Returns the end of a string or quoted name. `escapes`: with backslashes, as in E'...'. */
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

const isBlank = (sql: string): boolean => sql.replaceAll(/--.*|\/\*[^]*?\*\//g, '').trim() === '';

/** Splits a text at semicolons, except those in strings, names and comments. Omits blank statements. */
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
