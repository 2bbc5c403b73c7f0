import { AppError, describeError, isAppError, isStoreError } from '../../runtime/errors.ts';
import { localFiles } from '../../runtime/store/open-store.ts';
import { type Duckdb, openDuckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import {
  type MergedCatalogueInfo,
  type Notice,
  catalogueForm,
  catalogueName,
  openMergedCatalogues,
  readNotices,
} from './catalogue-files.ts';
import { type ParameterType, type TypeCounts, mainType, parameterTypes, typeColumn } from './parameter-types.ts';

export interface CatalogueParameter {
  readonly name: string;
  readonly type: ParameterType;
  readonly seen: number;
  readonly types: TypeCounts;
  /** Non-empty values of another type: NULL in views.sql, listed in `untyped_params`. */
  readonly untyped: number;
  /** Approximate number of distinct values. */
  readonly distinctValues: number;
  /** Frequent values that more than one user sent. */
  readonly examples: readonly string[];
  readonly firstSeen: string;
  readonly lastSeen: string;
}

/** A custom event of an app. Times are ISO 8601. */
export interface CatalogueEvent {
  readonly customEventName: string;
  readonly events: number;
  /** Number of events that were searched for parameters. */
  readonly sampledEvents: number;
  readonly firstSeen: string;
  readonly lastSeen: string;
  readonly moreParameters: number;
  readonly days: readonly { readonly date: string; readonly events: number }[];
  readonly parameters: readonly CatalogueParameter[];
}

export interface Catalogue {
  /** Version of the events table; undefined before the first run. */
  readonly version: number | undefined;
  readonly missingFiles: number;
  readonly customEvents: readonly CatalogueEvent[];
  readonly more: Pick<CatalogueEvent, 'events' | 'days'> & { readonly names: number };
  readonly notices: readonly Notice[];
  /** Prefixes of the keys of its files. */
  readonly keys: ReadonlySet<string>;
}

interface FoldRow {
  readonly event: string | null;
  readonly parameter: string | null;
  readonly events: number;
  readonly seen: number;
  readonly more: number;
  readonly types: TypeCounts;
  readonly values: number | null;
  readonly first: string;
  readonly last: string;
  readonly examples: readonly string[];
  readonly days: readonly { readonly date: string; readonly events: number }[];
}

export const isoSql = (column: string): string => `strftime(${column}::TIMESTAMP, '%Y-%m-%dT%H:%M:%S.%gZ')`;

const toRowSql = (
  examples: string,
  days: string,
): string => `to_json({event: event, parameter: parameter, events: events,
  seen: seen, more: more, types: {${parameterTypes.map((type) => `"${type}": ${typeColumn(type)}`).join(', ')}}, "values": "values",
  first: ${isoSql('first_seen')}, last: ${isoSql('last_seen')}, examples: ${examples}, days: ${days}})::VARCHAR`;
const rowSql = toRowSql('examples', 'days');
/** Omits days and examples, most of the bytes. */
const shortRowSql = toRowSql('[]', '[]');

function toParameter({ parameter, seen, types, values, examples, first, last }: FoldRow): CatalogueParameter {
  const name = parameter ?? '';
  return {
    name,
    ...mainType(types),
    seen,
    types,
    distinctValues: values ?? 0,
    examples,
    firstSeen: first,
    lastSeen: last,
  };
}

function toEvents(rows: readonly FoldRow[]): CatalogueEvent[] {
  const parametersOf = new Map<string, CatalogueParameter[]>();
  for (const row of rows) {
    if (row.event === null || row.parameter === null) continue;
    const known = parametersOf.get(row.event) ?? [];
    if (known.push(toParameter(row)) === 1) parametersOf.set(row.event, known);
  }
  return rows.flatMap(({ event, parameter, events, seen, more, first, last, days }) => {
    if (event === null || parameter !== null) return [];
    const parameters = (parametersOf.get(event) ?? []).toSorted(
      (a, b) => b.seen - a.seen || (a.name < b.name ? -1 : 1),
    );
    return [
      {
        customEventName: event,
        events,
        sampledEvents: seen,
        firstSeen: first,
        lastSeen: last,
        moreParameters: more,
        days,
        parameters,
      },
    ];
  });
}

async function readRows(duckdb: Duckdb, file: string, idApp: number, event?: string): Promise<FoldRow[]> {
  const where = event === undefined ? 'parameter IS NULL' : '(event = $2 OR event IS NULL)';
  const rows = await duckdb.rows(
    `SELECT ${rowSql} AS row FROM read_parquet(${sqlText(file)}) WHERE id_app = $1 AND ${where} ORDER BY events DESC`,
    event === undefined ? [idApp] : [idApp, event],
  );
  return rows.map(({ row }) => JSON.parse(String(row)) as FoldRow);
}

async function readKeys(duckdb: Duckdb, file: string): Promise<Set<string>> {
  const rows = await duckdb.rows(`SELECT event AS key FROM read_parquet(${sqlText(file)}) WHERE id_app IS NULL`);
  return new Set(rows.map(({ key }) => String(key)));
}

const nameBytes = 64;

export interface AppEvents {
  readonly idApp: number;
  readonly events: readonly CatalogueEvent[];
}

/** Reads the largest events from a fold, with at most `most` columns in total; `own`: further ones per event. */
export async function readLargest(
  duckdb: Duckdb,
  file: string,
  { most, own }: { readonly most: number; readonly own: number },
): Promise<AppEvents[]> {
  const fold = `read_parquet(${sqlText(file)})`;
  const rows = await duckdb.rows(`
    WITH counted AS (SELECT id_app, event, max(events) AS size, (sum(1 + strlen(coalesce(parameter, event)) // ${nameBytes}) + ${own - 1})::BIGINT AS columns FROM ${fold} WHERE id_app IS NOT NULL AND event IS NOT NULL GROUP BY ALL),
    summed AS (SELECT id_app, event, sum(columns) OVER (ORDER BY size DESC, id_app, event) AS columns FROM counted)
    SELECT id_app, ${shortRowSql} AS row FROM ${fold} SEMI JOIN (FROM summed WHERE columns <= ${most}) USING (id_app, event)
    ORDER BY id_app, events DESC`);
  const ofApps = new Map<number, FoldRow[]>();
  for (const { id_app: id, row } of rows) {
    const known = ofApps.get(Number(id)) ?? [];
    if (known.push(JSON.parse(String(row)) as FoldRow) === 1) ofApps.set(Number(id), known);
  }
  return [...ofApps].map(([idApp, found]) => ({ idApp, events: toEvents(found) }));
}

const memoryMb = 128;
/** The file may be replaced after its record was read. */
const tries = 3;

function refuseDamaged(error: unknown): never {
  if (isStoreError(error)) throw error;
  throw new AppError('record_damaged', `the catalogue of parameters is damaged: ${describeError(error)}`, {
    cause: error,
    hint: "Remove the folder 'catalogue' of the lake: the compactor recreates it.",
  });
}

async function readFold(
  lakeDir: string,
  idApp: number,
  event: string | undefined,
): Promise<{ rows: readonly FoldRow[]; keys: ReadonlySet<string>; facts: MergedCatalogueInfo } | undefined> {
  for (let attempt = 1; ; attempt += 1) {
    const record = await openMergedCatalogues(lakeDir).get(catalogueName).catch(refuseDamaged);
    if (record?.facts.form !== catalogueForm) return undefined;
    const duckdb = await openDuckdb({ memoryMb, threads: 1 });
    try {
      return await localFiles.use([record], async ([file = '']) => ({
        rows: await readRows(duckdb, file, idApp, event),
        keys: await readKeys(duckdb, file),
        facts: record.facts,
      }));
    } catch (error) {
      if (attempt === tries && isAppError(error, 'sql')) refuseDamaged(error);
      if (attempt === tries) throw error;
    } finally {
      duckdb.close();
    }
  }
}

/** Reads an app's custom events without parameters, or one event with them. Errors: `record_damaged`, the engine's. */
export async function readCatalogue(lakeDir: string, idApp: number, event?: string): Promise<Catalogue> {
  const fold = await readFold(lakeDir, idApp, event);
  const notices = (await readNotices(lakeDir)).filter(
    (notice) =>
      notice.idApp === idApp &&
      (event === undefined || notice.customEventName === undefined || notice.customEventName === event),
  );
  const rows = fold?.rows ?? [];
  const othersRow = rows.find((row) => row.event === null);
  return {
    version: fold === undefined ? undefined : Number(fold.facts.tableVersion),
    missingFiles: fold?.facts.missingFiles ?? 0,
    customEvents: toEvents(rows),
    more: { names: othersRow?.more ?? 0, events: othersRow?.events ?? 0, days: othersRow?.days ?? [] },
    notices,
    keys: fold?.keys ?? new Set(),
  };
}
