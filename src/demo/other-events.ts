import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { sqlList } from '../lake/sql/literals.ts';
import { createExport, downloadLinks, waitForReport, type ExportOptions } from './export-report.ts';
import type { LakeReader } from './lake-query.ts';
import { runCommand, type ServiceChildOptions } from './service-child.ts';
import { formatCount } from './text-table.ts';

/** What the demo counted of events that nobody imports: one that is loaded, one that is derived. */
export interface OtherEvents {
  /** Rows of the loaded file, and of the export of it. */
  readonly loaded: number;
  readonly installs: number;
  /** Users' events in the lake, and how many of them the exported sessions stand for. */
  readonly usersEvents: number;
  readonly sessions: number;
  readonly sessionEvents: number;
}

export interface OtherEventsOptions extends ExportOptions {
  /** The service's program and data folder, for the command that loads. */
  readonly child: ServiceChildOptions;
  readonly idApp: number;
  /** `dateFrom` and `dateTo` of the exports, in UTC. */
  readonly dates: Readonly<Record<string, string>>;
  readonly print: (line: string) => void;
}

const campaigns = ['Winter', 'Spring', 'Summer'];

/** A tracker's file of installs, as an operator gets it. */
function installsFile(idApp: number, tsEvent: number): string {
  const rows = campaigns.map((title, index) => `install-${index + 1},${idApp},${tsEvent},${index + 1},${title}`);
  return `eventId,idApp,tsEvent,idCampaign,idCampaignTitle\n${rows.join('\n')}\n`;
}

/** Exports an event and downloads it; gives the row that a query over the file's columns has. */
async function exportAndQuery(
  event: string,
  selectors: string,
  sql: string,
  options: OtherEventsOptions,
  lake: LakeReader,
): Promise<Readonly<Record<string, unknown>>> {
  const id = await createExport({ event, selectors, timezone: 'UTC', ...options.dates }, options);
  const files = await downloadLinks(
    await waitForReport(id, options, () => undefined),
    options.child.dataDir,
    options.signal,
  );
  const [row] = await lake.plain(`${sql} FROM read_csv(${sqlList(files.map(({ file }) => file))}, header = true)`);
  return row ?? {};
}

/** Loads a file of installs and exports it, and exports the sessions that the imported events make. */
export async function showOtherEvents(options: OtherEventsOptions, lake: LakeReader): Promise<OtherEvents> {
  const { child, idApp, dates, print } = options;
  const file = path.join(child.dataDir, 'installs.csv');
  await writeFile(file, installsFile(idApp, Date.parse(`${String(dates['dateFrom'])}T00:00:00Z`) / 1000));
  await runCommand(child, 'load', 'installs', file);
  const { n } = await exportAndQuery('installs', 'eventId,idCampaignTitle', 'SELECT count(*) AS n', options, lake);
  print(`loaded    ${campaigns.length} installs by 'tributary load installs FILE'; their export has ${Number(n)}`);
  const sums = 'SELECT count(*) AS sessions, sum(countEvent)::BIGINT AS events';
  const derived = await exportAndQuery('userSessions', 'tsEvent,customUserId,duration,countEvent', sums, options, lake);
  const [users] = await lake.query("SELECT count(*) AS n FROM events WHERE custom_user_id <> ''");
  const [sessions, sessionEvents] = [Number(derived['sessions']), Number(derived['events'])];
  print(`derived   ${formatCount(sessions)} userSessions, which stand for ${formatCount(sessionEvents)} events\n`);
  return { loaded: campaigns.length, installs: Number(n), usersEvents: Number(users?.['n']), sessions, sessionEvents };
}

/** Says whether the loaded rows came back, and every user's event is in one session. */
export function otherEventsAgree({ loaded, installs, usersEvents, sessionEvents }: OtherEvents): boolean {
  return installs === loaded && sessionEvents === usersEvents;
}
