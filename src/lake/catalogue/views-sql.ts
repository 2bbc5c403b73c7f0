import { sqlName, sqlText } from '../sql/literals.ts';
import type { AppEvents, CatalogueEvent, CatalogueParameter } from './read-catalogue.ts';
import { typedSql } from './parameter-types.ts';

/**
 * The text of views.sql: for each app a schema, in it for each custom event a table macro, whose columns are the event's
 * parameters with their types: `FROM app_1.level_complete()`. Macros, since a view would open every file of the lake when
 * it is made. They read the views of snapshot.sql, which is run first. No name in it is taken as it came from a client
 * without quotes, and no control character gets into the text.
 */

/** Columns of all macros together: an engine reads a text of some megabytes in a second. The caller keeps to it. */
export const mostColumns = 20_000;

/** Columns that every macro has, before those of the parameters. */
export const ownColumns = ['event_id', 'date', 'event_time', 'received_at', 'available_at', 'custom_user_id'] as const;

/** A text as SQL that gives it back, whatever it has: with control or invisible characters by its bytes. */
function literal(text: string): string {
  return /[\p{C}\p{Z}]/u.test(text.replaceAll(' ', ''))
    ? `decode(unhex('${Buffer.from(text, 'utf8').toString('hex')}'))`
    : sqlText(text);
}

/** A name in quotes has one character at least, and none that is not seen. */
const toPlain = (text: string): string => text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, '_') || '_';

/** What has a text that becomes a name, and that name. */
type Named<T> = readonly [one: T, name: string];

/**
 * Gives each of some things a name by its text: the engine does not tell names by their case. A text that can be a name is
 * its own, the first of those that differ by their case alone; the others get numbers that make no other's name of theirs.
 * In the order of the texts, so that a name does not change with the volumes.
 */
function nameEach<T>(things: readonly T[], toText: (one: T) => string, taken: readonly string[] = []): Named<T>[] {
  const names = new Set(taken.map((name) => name.toLowerCase()));
  const named: Named<T>[] = [];
  function take(one: T, name: string): boolean {
    if (names.has(name.toLowerCase())) return false;
    names.add(name.toLowerCase());
    named.push([one, name]);
    return true;
  }
  const isOwn = (one: T): boolean => toPlain(toText(one)) === toText(one);
  const sorted = things.toSorted((a, b) => (toText(a) < toText(b) ? -1 : 1));
  const ordered = [...sorted.filter(isOwn), ...sorted.filter((one) => !isOwn(one))];
  for (const one of ordered.filter((each) => !take(each, toPlain(toText(each)))))
    for (let next = 2; !take(one, `${toPlain(toText(one))}_${next}`); next += 1);
  return named;
}

function columnSql({ name, type }: CatalogueParameter, column: string): string {
  return `${typedSql(`custom_event_params[${literal(name)}]`, type)} AS ${sqlName(column)}`;
}

function macroSql(idApp: number, { customEventName, parameters }: CatalogueEvent, name: string): string {
  const columns = nameEach(parameters, (parameter) => parameter.name, [...ownColumns, 'custom_event_params']).map(
    ([parameter, column]) => columnSql(parameter, column),
  );
  return `CREATE OR REPLACE MACRO app_${idApp}.${sqlName(name)}() AS TABLE
SELECT ${[...ownColumns, ...columns, 'custom_event_params'].join(',\n  ')}
FROM tributary.events WHERE kind = 'custom_event' AND id_app = ${idApp} AND custom_event_name = ${literal(customEventName)};`;
}

/** A statement that changes nothing: some clients cannot run a text without any. */
const nothing = 'CREATE SCHEMA IF NOT EXISTS main;';

/** Writes the text. */
export function viewsSql(apps: readonly AppEvents[]): string {
  const parts = apps
    .filter(({ events }) => events.length > 0)
    .map(({ idApp, events }) => {
      const macros = nameEach(events, ({ customEventName }) => customEventName).map(([event, name]) =>
        macroSql(idApp, event, name),
      );
      return `CREATE SCHEMA IF NOT EXISTS app_${idApp};\n${macros.join('\n')}`;
    });
  return `-- Typed parameters of custom events, by DuckDB 1.3 or newer. Run snapshot.sql first: the rows are those of its views.
-- FROM app_1.level_complete(): the custom event of that name of app 1, its parameters as columns of their types.
-- A value of another form than its column is NULL; custom_event_params has all of them as they came.
-- The service writes it anew as events are sealed: an hour after they came, where no setting says otherwise.
-- Which types, and how often: tributary catalogue APP --event NAME.

${(parts.length === 0 ? [nothing] : parts).join('\n\n')}
`;
}
