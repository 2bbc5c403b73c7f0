import { events as eventsDataset } from '../../datasets/dataset.ts';
import { localFiles } from '../../runtime/store/open-store.ts';
import { isAppError } from '../../runtime/errors.ts';
import { pruneFiles, toAddFilter } from '../files/prune.ts';
import { tablePaths } from '../lake.ts';
import { type DataFile, type Snapshot, readSnapshot, withEmptyFile } from '../log/snapshot.ts';
import { openDuckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { foldedKeyLength, listSources, summaryLimits, partKey } from './file-summaries.ts';
import { type Catalogue, type CatalogueEvent, isoSql, readCatalogue } from './read-catalogue.ts';

/** Inclusive UTC dates, `YYYY-MM-DD`. */
export interface CatalogueDates {
  readonly from: string;
  readonly to: string;
}

interface CatalogueQuery {
  readonly idApp: number;
  /** An event with its parameters; absent: the app's events without parameters. */
  readonly customEventName?: string | undefined;
  readonly dates?: CatalogueDates | undefined;
}

/** A custom event within the dates. `sealed`: its events of all dates, which its parameters come from. */
type CurrentEvent = CatalogueEvent & { readonly sealed: number };

/** The catalogue of the newest version. Unsealed events are counted, but not searched for parameters. */
export interface CurrentCatalogue extends Omit<Catalogue, 'keys' | 'customEvents'> {
  readonly customEvents: readonly CurrentEvent[];
  readonly isComplete: boolean;
  /** Events before it were searched for parameters, ISO 8601. Absent: all were. */
  readonly sealedUntil?: string;
}

/** Events that the catalogue lacks, by name and date. Times are ISO 8601. */
interface Fresh {
  readonly event: string;
  readonly date: string;
  readonly events: number;
  readonly first: string;
  readonly last: string;
}

/** Limit of counted rows, of the newest files. */
const maxRows = 20_000_000;
/** Rows that are read in the time of opening a file. */
const minRows = 10_000;
const memoryMb = 256;
const tries = 3;

const kinds = ['custom_event'];

const shorten = (key: string): string => key.slice(0, foldedKeyLength);

/** Lists the files that the fold lacks: young ones first, then the newest. */
function listFresh({ files }: Snapshot, keys: ReadonlySet<string>, { idApp, dates }: CatalogueQuery): DataFile[] {
  const sealed = new Set(listSources(files).map(({ key }) => shorten(key)));
  const isBehind = [...keys].some((key) => !sealed.has(key));
  const eventTime = dates && {
    fromMs: Date.parse(`${dates.from}T00:00:00Z`),
    toMs: Date.parse(`${dates.to}T23:59:59.999Z`),
  };
  const times = eventTime === undefined ? {} : { eventTime };
  return pruneFiles(files, { idApps: [idApp], kinds, ...times })
    .filter((file) => file.young || (!isBehind && !keys.has(shorten(partKey(file)))))
    .toSorted((a, b) => Number(b.young) - Number(a.young) || (a.path > b.path ? -1 : 1));
}

function boundFiles(files: readonly DataFile[]): readonly DataFile[] {
  let left = maxRows;
  const end = files.findIndex(({ numRecords = 0 }) => (left -= Math.max(numRecords, minRows)) < 0);
  return end === -1 ? files : files.slice(0, end);
}

async function countFresh(
  snapshot: Snapshot,
  files: readonly DataFile[],
  { idApp, customEventName, dates }: CatalogueQuery,
): Promise<Fresh[]> {
  const conditionsSql = [
    ...(dates === undefined ? [] : [`date BETWEEN DATE ${sqlText(dates.from)} AND DATE ${sqlText(dates.to)}`]),
    ...(customEventName === undefined ? [] : ['custom_event_name = $1']),
  ].map((condition) => ` AND ${condition}`);
  const duckdb = await openDuckdb({ memoryMb, threads: 1 });
  try {
    const rows = await localFiles.use(withEmptyFile(snapshot, files), (paths) =>
      duckdb.rows(
        `SELECT to_json({event: custom_event_name, date: date, events: count(*), first: ${isoSql('min(event_time)')}, last: ${isoSql('max(event_time)')}})::VARCHAR AS row
         FROM read_parquet(${sqlList(paths)}, union_by_name = true, hive_partitioning = false)
         WHERE kind = 'custom_event' AND id_app = ${idApp} AND custom_event_name IS NOT NULL${conditionsSql.join('')}
         GROUP BY custom_event_name, date`,
        customEventName === undefined ? [] : [customEventName],
      ),
    );
    return rows.map(({ row }) => JSON.parse(String(row)) as Fresh);
  } finally {
    duckdb.close();
  }
}

type Days = CatalogueEvent['days'];

const sumOf = (days: Days): number => days.reduce((sum, { events }) => sum + events, 0);

function addDays(days: Days): Days {
  const sums = new Map<string, number>();
  for (const { date, events } of days) sums.set(date, (sums.get(date) ?? 0) + events);
  return [...sums].map(([date, events]) => ({ date, events })).toSorted((a, b) => (a.date < b.date ? 1 : -1));
}

function addFresh<T extends Pick<CatalogueEvent, 'events' | 'days'>>(
  found: T,
  fresh: Days,
  dates: CatalogueDates | undefined,
): T {
  const keptDays = found.days.filter(({ date }) => dates === undefined || (date >= dates.from && date <= dates.to));
  const days = addDays([...keptDays, ...fresh]);
  return { ...found, days, events: dates === undefined ? found.events + sumOf(fresh) : sumOf(days) };
}

function toCurrent(found: CatalogueEvent, fresh: readonly Fresh[], dates: CatalogueDates | undefined): CurrentEvent {
  const times = [found.firstSeen, found.lastSeen, ...fresh.flatMap(({ first, last }) => [first, last])];
  const known = times.filter((time) => time !== '').toSorted();
  const seen = { firstSeen: known[0] ?? '', lastSeen: known.at(-1) ?? '' };
  return { ...addFresh(found, fresh, dates), ...seen, sealed: found.events };
}

const newEvent = (customEventName: string): CatalogueEvent => ({
  customEventName,
  events: 0,
  sampledEvents: 0,
  firstSeen: '',
  lastSeen: '',
  moreParameters: 0,
  days: [],
  parameters: [],
});

/** Merges the fold's and newer events, largest first, up to the fold's limit. */
function merge(
  { customEvents, more }: Pick<Catalogue, 'customEvents' | 'more'>,
  fresh: readonly Fresh[],
  { customEventName, dates }: CatalogueQuery,
): Pick<CurrentCatalogue, 'customEvents' | 'more'> {
  const events = new Map(customEvents.map((event) => [event.customEventName, event]));
  const freshOf = new Map<string, Fresh[]>();
  const unlisted: Fresh[] = [];
  for (const row of fresh) {
    const { event } = row;
    // A name that the fold does not list may be counted in its `more`.
    if (!events.has(event) && more.names > 0) unlisted.push(row);
    else {
      events.set(event, events.get(event) ?? newEvent(event));
      freshOf.set(event, [...(freshOf.get(event) ?? []), row]);
    }
  }
  const listed = [...events]
    .map(([name, event]) => toCurrent(event, freshOf.get(name) ?? [], dates))
    .filter((event) => event.events > 0 || customEventName !== undefined)
    .toSorted((a, b) => b.events - a.events || (a.customEventName < b.customEventName ? -1 : 1));
  const beyond = listed.slice(summaryLimits.events);
  const otherEvents = addFresh(more, [...unlisted, ...beyond.flatMap(({ days }) => days)], dates);
  return {
    customEvents: listed.slice(0, summaryLimits.events),
    more: { ...otherEvents, names: more.names + beyond.length },
  };
}

async function readOnce(lakeDir: string, catalogueQuery: CatalogueQuery, isLast: boolean): Promise<CurrentCatalogue> {
  const { keys, ...catalogue } = await readCatalogue(lakeDir, catalogueQuery.idApp, catalogueQuery.customEventName);
  const snapshot = await readSnapshot(
    tablePaths(lakeDir, eventsDataset).table,
    toAddFilter({ idApps: [catalogueQuery.idApp], kinds }),
  );
  const files = listFresh(snapshot, keys, catalogueQuery);
  // A sealed file that cannot be read has no part either.
  const counted = boundFiles(isLast ? files.filter((file) => file.young) : files);
  const fresh = counted.length === 0 ? [] : await countFresh(snapshot, counted, catalogueQuery);
  const since = files.flatMap(({ minValues: { available_at: time } }) =>
    typeof time === 'string' ? Date.parse(time) : [],
  );
  return {
    ...catalogue,
    ...merge(catalogue, fresh, catalogueQuery),
    isComplete: counted.length === files.length,
    ...(since.length === 0 ? {} : { sealedUntil: new Date(since.reduce((a, b) => Math.min(a, b))).toISOString() }),
  };
}

/** Reads the catalogue of an app as of the newest version. Errors: those of `readCatalogue`, the engine's. */
export async function readCurrentCatalogue(lakeDir: string, catalogueQuery: CatalogueQuery): Promise<CurrentCatalogue> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await readOnce(lakeDir, catalogueQuery, attempt === tries);
    } catch (error) {
      if (attempt === tries || !isAppError(error, 'sql')) throw error;
    }
  }
}
