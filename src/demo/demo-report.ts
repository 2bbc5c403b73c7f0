import { getTextFile } from '../runtime/files/input-file.ts';
import { writeWorkFile } from '../runtime/files/work-files.ts';
import path from 'node:path';
import { openDuckdb, type SqlRow } from '../lake/sql/duckdb.ts';
import { sqlList } from '../lake/sql/literals.ts';
import {
  createExport,
  downloadFiles,
  runCommand,
  waitForReport,
  type DemoExports,
  type ImportResult,
  type ServiceChildOptions,
} from './demo-client.ts';

/** Formats rows as aligned columns under a header. Integers align right. */
export function formatTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = header.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => (row[column] ?? '').length)),
  );
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => cell[/^[\d,]+$/.test(cell) ? 'padStart' : 'padEnd'](widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  return [line(header), widths.map((width) => '-'.repeat(width)).join('  '), ...rows.map(line)].join('\n');
}

/** Formats an integer with separators: `1,234,567`. */
export function formatCount(value: number | bigint): string {
  return value.toLocaleString('en-US');
}

export function formatSeconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

export function cutLine(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, width - 1)}…`;
}

export type StageTiming = ReturnType<typeof createStageTiming>;

export function createStageTiming() {
  const durations = new Map<string, number>();
  return {
    /** Runs a stage and stores its duration. */
    async measure<T>(stage: string, work: () => Promise<T>): Promise<T> {
      const started = performance.now();
      try {
        return await work();
      } finally {
        durations.set(stage, performance.now() - started);
      }
    },
    ms: (stage: string): number => durations.get(stage) ?? 0,
  };
}

export type LakeReader = Awaited<ReturnType<typeof openLakeReader>>;

/** Opens the lake of a data folder through `lake/snapshot.sql`. The service may run. */
export async function openLakeReader(dataDir: string) {
  const duckdb = await openDuckdb({ memoryMb: 1024, threads: 2 });
  const snapshotSql = await getTextFile(path.join(dataDir, 'lake', 'snapshot.sql'));
  return {
    /** Runs a query over the views of the newest commit. */
    async query(sql: string): Promise<SqlRow[]> {
      await duckdb.run(snapshotSql);
      return duckdb.rows(sql);
    },
    /** Runs a query without the lake. */
    plain: (sql: string): Promise<SqlRow[]> => duckdb.rows(sql),
    close: (): void => duckdb.close(),
  };
}

/** Reads a report's CSV parts, which have the selectors eventId and eventName. */
export async function readDownloadedReport(reader: LakeReader, files: readonly string[]) {
  const csv = `read_csv(${sqlList(files)}, header = true, all_varchar = true, delim = ',', quote = '"', escape = '"')`;
  const [totals] = await reader.plain(`SELECT count(*) AS rows, count(DISTINCT eventId) AS ids FROM ${csv}`);
  const names = await reader.plain(`SELECT eventName AS name, count(*) AS events FROM ${csv} GROUP BY ALL`);
  return {
    rows: Number(totals?.['rows']),
    distinctIds: Number(totals?.['ids']),
    byName: new Map(names.map((row) => [String(row['name']), Number(row['events'])])),
  };
}

type OtherEvents = Awaited<ReturnType<typeof showOtherEvents>>;

interface OtherEventsOptions {
  readonly exports: DemoExports;
  readonly child: ServiceChildOptions;
  readonly idApp: number;
  readonly dates: { readonly dateFrom: string; readonly dateTo: string };
  readonly print: (line: string) => void;
}

const campaigns = ['Winter', 'Spring', 'Summer'];

async function exportAndQuery(
  event: string,
  selectors: string,
  sql: string,
  { exports, child, dates }: OtherEventsOptions,
  lake: LakeReader,
): Promise<SqlRow> {
  const id = await createExport(exports, { event, selectors, timezone: 'UTC', ...dates });
  const files = await downloadFiles(exports, await waitForReport(exports, id), child.dataDir);
  const [row] = await lake.plain(`${sql} FROM read_csv(${sqlList(files)}, header = true)`);
  return row ?? {};
}

/** Loads and exports a file of installs, and exports derived sessions. Returns the counts of both. */
export async function showOtherEvents(options: OtherEventsOptions, lake: LakeReader) {
  const { child, idApp, dates, print } = options;
  const file = path.join(child.dataDir, 'installs.csv');
  const tsEvent = Date.parse(`${dates.dateFrom}T00:00:00Z`) / 1000;
  const rows = campaigns.map((title, index) => `install-${index + 1},${idApp},${tsEvent},${index + 1},${title}\n`);
  await writeWorkFile(file, `eventId,idApp,tsEvent,idCampaign,idCampaignTitle\n${rows.join('')}`);
  await runCommand(child, 'load', 'installs', file);
  const { n } = await exportAndQuery('installs', 'eventId,idCampaignTitle', 'SELECT count(*) AS n', options, lake);
  print(`loaded    ${campaigns.length} installs by 'tributary load installs FILE'; their export has ${Number(n)} rows`);
  const sums = 'SELECT count(*) AS sessions, sum(countEvent)::BIGINT AS events';
  const derived = await exportAndQuery('userSessions', 'tsEvent,customUserId,duration,countEvent', sums, options, lake);
  const [users] = await lake.query("SELECT count(*) AS n FROM events WHERE custom_user_id <> ''");
  const [sessions, sessionEvents] = [Number(derived['sessions']), Number(derived['events'])];
  print(`derived   ${formatCount(sessions)} userSessions from ${formatCount(sessionEvents)} events\n`);
  return { loaded: campaigns.length, installs: Number(n), usersEvents: Number(users?.['n']), sessions, sessionEvents };
}

/** Reports whether all loaded rows were exported and each user's event is in one session. */
function otherEventsAgree({ loaded, installs, usersEvents, sessionEvents }: OtherEvents): boolean {
  return installs === loaded && sessionEvents === usersEvents;
}

/** Counts of what was sent, of the lake and of the report: each event must be exactly once in each. */
export interface DemoCounts {
  readonly sent: ImportResult;
  /** Distinct event ids in the lake. */
  readonly stored: number;
  readonly lakeRows: readonly SqlRow[];
  readonly report: Awaited<ReturnType<typeof readDownloadedReport>>;
  readonly others: OtherEvents;
}

/** The demo's query of the lake: columns name, events, users. */
export const countsByName = `SELECT custom_event_name AS name, count(*) AS events, count(DISTINCT custom_user_id) AS users
FROM custom_event GROUP BY ALL ORDER BY events DESC, name`;

function listCounts({ sent, lakeRows, report }: DemoCounts) {
  const inLake = new Map(lakeRows.map((row) => [String(row['name']), row]));
  return [...new Set([...inLake.keys(), ...sent.byName.keys(), ...report.byName.keys()])].map((name) => {
    const { events, users } = inLake.get(name) ?? {};
    const [stored, distinct] = [Number(events ?? 0), Number(users ?? 0)];
    return { name, stored, users: distinct, sent: sent.byName.get(name) ?? 0, exported: report.byName.get(name) ?? 0 };
  });
}

export function formatCountsByName(counts: DemoCounts): string {
  return formatTable(
    ['name', 'events', 'users', 'sent', 'in the file'],
    listCounts(counts).map(({ name, stored, users, sent, exported }) => [
      cutLine(name, 60),
      ...[stored, users, sent, exported].map(formatCount),
    ]),
  );
}

const sameByName = (counts: DemoCounts): boolean =>
  listCounts(counts).every(({ stored, sent, exported }) => sent === stored && sent === exported);

/** Reports whether each acknowledged event is exactly once in lake and report, and the other events agree. */
export function countsAgree(counts: DemoCounts): boolean {
  const { sent, stored, report, others } = counts;
  const isOnce = stored === sent.events && report.rows === sent.events && report.distinctIds === sent.events;
  return isOnce && sameByName(counts) && otherEventsAgree(others);
}

export function formatSummary(counts: DemoCounts, time: StageTiming): string {
  const { sent, stored, report, others } = counts;
  const seconds = (stage: string): string => formatSeconds(time.ms(stage));
  const isOnce = report.distinctIds === sent.events;
  const exported = `${seconds('export')} for the export, ${seconds('download')} for the download`;
  const sessions = otherEventsAgree(others)
    ? "every loaded row, and every user's event in one session"
    : 'their counts DIFFER';
  const names = sameByName(counts) ? 'the same count of each in all three' : 'their counts DIFFER';
  const lines: readonly [string, number, string][] = [
    ['events sent and acknowledged', sent.events, `${seconds('import')} for the import`],
    ['distinct event ids in the lake', stored, `${seconds('lake')} until the last one was there`],
    ['rows in the exported file', report.rows, exported],
    ['distinct event ids in the file', report.distinctIds, isOnce ? 'every event once' : 'NOT every event once'],
    ['event names', listCounts(counts).length, names],
    ['installs loaded, sessions made', others.installs + others.sessions, sessions],
  ];
  return lines
    .map(([what, count, note]) => `${what.padEnd(30)} ${formatCount(count).padStart(10)}   ${note}`)
    .join('\n');
}
