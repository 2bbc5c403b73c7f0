/**
 * The records of export requests: `reports/<id>/job.json`, the state of a request; `webhooks.json` next to it, the
 * deliveries of its end; and `reports/highest-id`, so that no id is used twice.
 */
import path from 'node:path';
import { isRecord, renameMembers } from '../runtime/files/checksummed-json.ts';
import { findNames } from '../runtime/files/folder-names.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { createRecords, jsonCodec, numberCodec, type Codec, type Records } from '../runtime/store/records.ts';
import { isCount, isText, listOf, matching, oneOf, optional, shapeOf } from '../runtime/store/shape.ts';
import { isInProgress, isReportBasis, isReportFile, isReportSlot, reportStates, type ReportJob } from './reports.ts';

const hasShape = shapeOf<ReportJob>({
  id: isCount,
  idUser: isText,
  idAccount: isCount,
  createdMs: isCount,
  state: oneOf(reportStates),
  attempts: isCount,
  interruptions: optional(isCount),
  event: matching(/^\w+$/),
  nonce: matching(/^[0-9a-f]{32}$/),
  request: (request) => typeof request === 'object' && request !== null,
  slot: optional(isReportSlot),
  error: optional(isText),
  finishedMs: optional(isCount),
  expiresSeconds: optional(isCount),
  files: optional(listOf(isReportFile)),
  basis: optional(isReportBasis),
});

/** Reports whether a document is a request. A request that has ended has a time, and files if it succeeded. */
function isReportJob(value: unknown): value is ReportJob {
  if (!hasShape(value)) return false;
  const isEnded = value.finishedMs !== undefined && value.expiresSeconds !== undefined;
  return (isInProgress(value) || isEnded) && (value.state !== 'success' || value.files !== undefined);
}

/** Reads the member `mayLack` of a slot of version 0.3. */
const jobCodec: Codec<ReportJob> = {
  ...jsonCodec,
  parse(text) {
    const document = jsonCodec.parse(text);
    if (!isRecord(document) || !isRecord(document['slot'])) return document;
    return { ...document, slot: renameMembers(document['slot'], { mayLack: 'mayBeIncomplete' }) };
  },
};

const openJobs = (reportsDir: string): Records<ReportJob> =>
  createRecords(openStore(reportsDir), {
    isValid: isReportJob,
    codec: jobCodec,
    idOf: ({ id }) => String(id),
    ending: '/job.json',
    damaged: {
      code: 'report_damaged',
      hint: 'Restore it from a backup, or remove the file and ask its user to create the export again; the next start deletes the other files of the request.',
    },
  });

export function jobPath(folder: string): string {
  return path.join(folder, 'job.json');
}

/** Reads a request; undefined if there is none. Error: `report_damaged`. */
export async function findJob(reportsDir: string, id: number): Promise<ReportJob | undefined> {
  return await openJobs(reportsDir).get(String(id));
}

export async function writeJob(reportsDir: string, job: ReportJob): Promise<void> {
  await openJobs(reportsDir).put(String(job.id), job);
}

/** Lists the ids of the requests of a folder, ascending. One may have no record. */
export async function listReportIds(reportsDir: string): Promise<number[]> {
  const names = await findNames(reportsDir);
  return names
    .filter((name) => /^[1-9]\d{0,14}$/.test(name))
    .map(Number)
    .toSorted((a, b) => a - b);
}

/** Number of requests by state; `unreadable` counts damaged ones. */
export type ReportSummary = Readonly<Partial<Record<ReportJob['state'] | 'unreadable', number>>>;

/** Counts the requests of a folder by state, with the service running or stopped. */
export async function summarizeReports(reportsDir: string): Promise<ReportSummary> {
  const counts: Partial<Record<ReportJob['state'] | 'unreadable', number>> = {};
  for (const id of await listReportIds(reportsDir)) {
    const state = await findJob(reportsDir, id).then(
      (job) => job?.state,
      () => 'unreadable' as const,
    );
    if (state !== undefined) counts[state] = (counts[state] ?? 0) + 1;
  }
  return counts;
}

/** The delivery of a request's end to a webhook. */
export interface Delivery {
  readonly idWebhook: string;
  readonly state: 'waiting' | 'delivered' | 'given_up';
  readonly attempts: number;
  /** Time of the next attempt, Unix ms. */
  readonly nextMs: number;
  readonly lastError?: string;
}

const isDelivery = shapeOf<Delivery>({
  idWebhook: isText,
  state: oneOf(['waiting', 'delivered', 'given_up']),
  attempts: isCount,
  nextMs: isCount,
  lastError: optional(isText),
});

const deliveriesName = 'webhooks';
const openDeliveries = (folder: string): Records<{ readonly deliveries: readonly Delivery[] }> =>
  createRecords(openStore(folder), {
    isValid: shapeOf<{ readonly deliveries: readonly Delivery[] }>({ deliveries: Array.isArray }),
    damaged: { code: 'report_damaged', hint: 'Remove the file; each webhook is then notified once more.' },
  });

export function deliveriesPath(folder: string): string {
  return path.join(folder, `${deliveriesName}.json`);
}

/** Reads the deliveries of a request; none if they are damaged, so that each webhook is notified again. */
export async function readDeliveries(folder: string): Promise<readonly Delivery[]> {
  const found = await openDeliveries(folder).getSound(deliveriesName);
  return (found?.deliveries ?? []).filter(isDelivery);
}

export async function writeDeliveries(folder: string, deliveries: readonly Delivery[]): Promise<void> {
  await openDeliveries(folder).put(deliveriesName, { deliveries });
}

const highestIdName = 'highest-id';
const openHighestId = (reportsDir: string): Records<{ readonly number: number }> =>
  createRecords(openStore(reportsDir), {
    isValid: shapeOf<{ readonly number: number }>({ number: isCount }),
    codec: numberCodec,
    ending: '',
    damaged: {
      code: 'report_damaged',
      hint: 'Set its content to a number and a line break. The number must be at least the highest id of an export request (see the log lines "export request ended").',
    },
  });

/** Returns the path of the highest id that may have been deleted. */
export function highestIdPath(reportsDir: string): string {
  return path.join(reportsDir, highestIdName);
}

/** Reads the highest id that may have been deleted; 0 for none. Error: `report_damaged`. */
export async function readHighestId(reportsDir: string): Promise<number> {
  return (await openHighestId(reportsDir).get(highestIdName))?.number ?? 0;
}

/** Writes the highest id that was allocated, durably. Called before a folder is deleted. */
export async function writeHighestId(reportsDir: string, id: number): Promise<void> {
  await openHighestId(reportsDir).put(highestIdName, { number: id });
}
