import type { SqlRow } from '../lake/sql/duckdb.ts';
import type { DownloadedReport } from './downloaded-report.ts';
import type { ImportResult } from './import-events.ts';
import { otherEventsAgree, type OtherEvents } from './other-events.ts';
import type { StageTiming } from './stage-timing.ts';
import { cutLine, formatCount, formatSeconds, formatTable } from './text-table.ts';

/** What the demo counted in the three places where each event must be exactly once. */
export interface DemoCounts {
  readonly sent: ImportResult;
  /** Distinct event ids in the lake. */
  readonly stored: number;
  /** Rows of `countsByName`. */
  readonly lakeRows: readonly SqlRow[];
  readonly report: DownloadedReport;
  readonly others: OtherEvents;
}

/** The demo's query of the lake: columns name, events, users. */
export const countsByName = `SELECT custom_event_name AS name, count(*) AS events, count(DISTINCT custom_user_id) AS users
FROM custom_event GROUP BY ALL ORDER BY events DESC, name`;

/** The event names, as the lake has them and then those that it lacks. */
function eventNames({ sent, lakeRows, report }: DemoCounts): string[] {
  return [...new Set([...lakeRows.map((row) => String(row['name'])), ...sent.byName.keys(), ...report.byName.keys()])];
}

/** The counts of each event name in what was sent, the lake, and the report's files, as a table. */
export function formatCountsByName(counts: DemoCounts): string {
  const { sent, lakeRows, report } = counts;
  return formatTable(
    ['name', 'events', 'users', 'sent', 'in the file'],
    eventNames(counts).map((name) => {
      const row = lakeRows.find((candidate) => candidate['name'] === name);
      const numbers = [row?.['events'], row?.['users'], sent.byName.get(name), report.byName.get(name)];
      return [cutLine(name, 60), ...numbers.map((value) => formatCount(Number(value ?? 0)))];
    }),
  );
}

/** Says whether every event name has the same count in what was sent, the lake, and the report's files. */
function sameByName(counts: DemoCounts): boolean {
  const { sent, lakeRows, report } = counts;
  const inLake = new Map(lakeRows.map((row) => [String(row['name']), Number(row['events'])]));
  return eventNames(counts).every(
    (name) => sent.byName.get(name) === inLake.get(name) && sent.byName.get(name) === report.byName.get(name),
  );
}

/**
 * Says whether every event that was acknowledged is exactly once in the lake and in the report's files, and the loaded
 * and derived rows are what they have to be.
 */
export function countsAgree(counts: DemoCounts): boolean {
  const { sent, stored, report, others } = counts;
  const isOnce = stored === sent.events && report.rows === sent.events && report.distinctIds === sent.events;
  return isOnce && sameByName(counts) && otherEventsAgree(others);
}

/** The summary, a line for each count. */
export function formatSummary(counts: DemoCounts, time: StageTiming): string {
  const { sent, stored, report, others } = counts;
  const seconds = (stage: string): string => formatSeconds(time.ms(stage));
  const lines: readonly [string, number, string][] = [
    ['events sent and acknowledged', sent.events, `${seconds('import')} for the import`],
    ['distinct event ids in the lake', stored, `${seconds('lake')} until the last one was there`],
    [
      'rows in the exported file',
      report.rows,
      `${seconds('export')} for the export, ${seconds('download')} for the download`,
    ],
    [
      'distinct event ids in the file',
      report.distinctIds,
      report.distinctIds === sent.events ? 'every event once' : 'NOT every event once',
    ],
    [
      'event names',
      eventNames(counts).length,
      sameByName(counts) ? 'the same count of each in all three' : 'their counts DIFFER',
    ],
    [
      'installs loaded, sessions made',
      others.installs + others.sessions,
      otherEventsAgree(others) ? "every loaded row, and every user's event in one session" : 'their counts DIFFER',
    ],
  ];
  return lines
    .map(([what, count, note]) => `${what.padEnd(30)} ${formatCount(count).padStart(10)}   ${note}`)
    .join('\n');
}
