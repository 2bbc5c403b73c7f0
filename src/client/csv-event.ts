/** Which field of an event a column becomes; an empty name drops it. */
export type ColumnMap = ReadonlyMap<string, string>;

/** The map's own separator: what stands before the dot is an object, what stands behind it a name in that. */
const dot = '.';

/** What may stand between cells. */
export type Separator = ',' | ';' | '\t' | '|';

const cellOf: Readonly<Record<Separator, RegExp>> = {
  ',': /(?:"((?:[^"]|"")*)"|([^,"]*))(,|$)/gy,
  ';': /(?:"((?:[^"]|"")*)"|([^;"]*))(;|$)/gy,
  '\t': /(?:"((?:[^"]|"")*)"|([^\t"]*))(\t|$)/gy,
  '|': /(?:"((?:[^"]|"")*)"|([^|"]*))(\||$)/gy,
};

/** What separates the columns of a header: commas, and where it has none semicolons, tabs or bars. */
export function findSeparator(header: string): Separator {
  const bare = header.replaceAll(/"[^"]*"/g, '');
  return ([',', ';', '\t', '|'] as const).find((separator) => bare.includes(separator)) ?? ',';
}

/** Reads the cells of one CSV record: separators, quotes doubled within quotes. Undefined when it is none. */
export function parseCells(text: string, separator: Separator): string[] | undefined {
  const cells: string[] = [];
  const cell = cellOf[separator];
  cell.lastIndex = 0;
  for (let match = cell.exec(text); match !== null; match = cell.exec(text)) {
    cells.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? '');
    if (match[3] === '') return cells;
  }
  return undefined;
}

/** The fields that the columns of a header become; undefined: none. Throws a sentence for a map that does not suit. */
export function mapHeader(header: readonly string[], map: ColumnMap): readonly (string | undefined)[] {
  const unknown = [...map.keys()].find((column) => !header.includes(column));
  if (unknown !== undefined)
    throw new Error(`--map names the column ${unknown}, and the header has ${header.join(', ')}`);
  const fields = header.map((column) => {
    const field = map.get(column) ?? column;
    return field === '' ? undefined : field;
  });
  const twice = fields.find((field, index) => field !== undefined && fields.indexOf(field) !== index);
  if (twice !== undefined) throw new Error(`two columns become the field ${twice}: name another, or none, by --map`);
  const both = fields.find(
    (field) => field?.includes(dot) === true && fields.includes(field.slice(0, field.indexOf(dot))),
  );
  if (both !== undefined)
    throw new Error(
      `a column becomes ${both}, and another all of ${both.slice(0, both.indexOf(dot))}: drop one by --map`,
    );
  return fields;
}

/**
 * Makes an event of the cells of a record: a text for each field, as the import takes numbers too; empty cells are left
 * out. `customEventParams.level` is the member `level` of the object `customEventParams`.
 */
export function toEvent(fields: readonly (string | undefined)[], cells: readonly string[]): Record<string, unknown> {
  const event: Record<string, unknown> = {};
  for (const [index, field] of fields.entries()) {
    const value = cells[index] ?? '';
    if (field === undefined || value === '') continue;
    const at = field.indexOf(dot);
    const name = at === -1 ? field : field.slice(0, at);
    if (at === -1) define(event, name, value);
    else {
      if (!Object.hasOwn(event, name)) define(event, name, {});
      define(event[name] as Record<string, unknown>, field.slice(at + 1), value);
    }
  }
  return event;
}

/** `__proto__` is a name like any other. */
function define(object: Record<string, unknown>, name: string, value: unknown): void {
  Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}
