import { sqlName, sqlText } from '../sql/literals.ts';
import type { AppEvents, CatalogueEvent, CatalogueParameter } from './read-catalogue.ts';
import { typedSql, typeFamilies, type TypedType } from './parameter-types.ts';

/**
 * Renders views.sql: a schema per app, and a table macro per custom event with typed parameters, such as `FROM
 * app_1.level_complete()`. Views would open every file at creation. Values of another type are in `untyped_params`.
 */

/** Columns of all macros. An engine reads some megabytes of text in a second. */
export const maxMacroColumns = 20_000;

export const ownColumns = ['event_id', 'date', 'event_time', 'received_at', 'available_at', 'custom_user_id'] as const;

export const lastColumns = ['custom_event_params', 'untyped_params'] as const;

/** Renders a text as SQL, with control or invisible characters as bytes. */
function literal(text: string): string {
  return /[\p{C}\p{Z}]/u.test(text.replaceAll(' ', ''))
    ? `decode(unhex('${Buffer.from(text, 'utf8').toString('hex')}'))`
    : sqlText(text);
}

/** Replaces invisible characters of a name, which must not be empty. */
const toPlain = (text: string): string => text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, '_') || '_';

type Named<T> = readonly [one: T, name: string];

/** Assigns unique names, ignoring case. The first of equal texts keeps its name, others get numbers. */
export function nameEach<T>(
  items: readonly T[],
  toText: (one: T) => string,
  reservedNames: readonly string[] = [],
): Named<T>[] {
  const names = new Set(reservedNames.map((name) => name.toLowerCase()));
  const named: Named<T>[] = [];
  function take(one: T, name: string): boolean {
    if (names.has(name.toLowerCase())) return false;
    names.add(name.toLowerCase());
    named.push([one, name]);
    return true;
  }
  const isOwn = (one: T): boolean => toPlain(toText(one)) === toText(one);
  const sorted = items.toSorted((a, b) => (toText(a) < toText(b) ? -1 : 1));
  const ordered = [...sorted.filter(isOwn), ...sorted.filter((one) => !isOwn(one))];
  for (const one of ordered.filter((each) => !take(each, toPlain(toText(each)))))
    for (let next = 2; !take(one, `${toPlain(toText(one))}_${next}`); next += 1);
  return named;
}

const castOf = (type: TypedType): string => `tributary.to_${type}`;
const castsSql = typeFamilies
  .flat()
  .map((type) => `CREATE OR REPLACE MACRO ${castOf(type)}(value) AS ${typedSql('value', type)};`)
  .join('\n');

function columnSql({ name, type, types, untyped }: CatalogueParameter, column: string): string {
  const value = `custom_event_params[${literal(name)}]`;
  if (type === 'text' || type === 'empty') return `${value} AS ${sqlName(column)}`;
  const filled = Object.values(types).reduce((sum, count) => sum + count, 0) - types.empty;
  const remark = untyped === 0 ? '' : ` /* NULL: ${untyped} of ${filled} sampled values */`;
  return `${castOf(type)}(${value}) AS ${sqlName(column)}${remark}`;
}

/** SQL of the entries of typed parameters with a value of another type. */
function untypedSql(parameters: readonly CatalogueParameter[]): string {
  const tests = typeFamilies.flat().flatMap((type) => {
    const names = parameters.filter((each) => each.type === type).map(({ name }) => literal(name));
    return names.length === 0 ? [] : [`e.key IN (${names.join(', ')}) AND ${castOf(type)}(e.value) IS NULL`];
  });
  return tests.length === 0
    ? 'NULL::MAP(VARCHAR, VARCHAR)'
    : `map_from_entries(nullif(list_filter(map_entries(custom_event_params), lambda e : trim(e.value) <> '' AND (${tests.join(' OR ')})), []))`;
}

function macroSql(idApp: number, { customEventName, parameters }: CatalogueEvent, name: string): string {
  const columns = nameEach(parameters, (parameter) => parameter.name, [...ownColumns, ...lastColumns]).map(
    ([parameter, column]) => columnSql(parameter, column),
  );
  return `CREATE OR REPLACE MACRO app_${idApp}.${sqlName(name)}() AS TABLE
SELECT ${[...ownColumns, ...columns, 'custom_event_params', `${untypedSql(parameters)} AS untyped_params`].join(',\n  ')}
FROM tributary.events WHERE kind = 'custom_event' AND id_app = ${idApp} AND custom_event_name = ${literal(customEventName)};`;
}

export function viewsSql(apps: readonly AppEvents[]): string {
  const parts = apps
    .filter(({ events }) => events.length > 0)
    .map(({ idApp, events }) => {
      const macros = nameEach(events, ({ customEventName }) => customEventName).map(([event, name]) =>
        macroSql(idApp, event, name),
      );
      return `CREATE SCHEMA IF NOT EXISTS app_${idApp};\n${macros.join('\n')}`;
    });
  return `-- Typed parameters of custom events, for DuckDB 1.3 or newer. Run snapshot.sql first: it creates the views with the rows.
-- FROM app_1.level_complete(): the custom event of that name of app 1, its parameters as columns of their types.
-- A value of another form than its column is NULL, and stands in untyped_params; custom_event_params has all as they came.
-- The service writes it anew as events are sealed: an hour after they came, where no setting says otherwise.
-- Which types, and how often: tributary catalogue APP --event NAME.

CREATE SCHEMA IF NOT EXISTS tributary;
${[castsSql, ...parts].join('\n\n')}
`;
}
