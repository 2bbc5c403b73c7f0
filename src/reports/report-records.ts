/**
 * The objects of export requests: `<id>/job.json`, the state of a request; next to it `webhooks.json`, the deliveries
 * of its end, `delivery.json`, that of its files, and `parts/`, its files; and `highest-id`, so that no id is used twice.
 */
import { isRecord, renameMembers } from '../runtime/files/checksummed-json.ts';
import type { ObjectStore } from '../runtime/store/object-store.ts';
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
  name: optional(isText),
  deliverTo: optional(isText),
  nonce: matching(/^[0-9a-f]{32}$/),
  attemptNonce: optional(matching(/^[0-9a-f]{16}$/)),
  request: (request) => typeof request === 'object' && request !== null,
  slot: optional(isReportSlot),
  traceparent: optional(isText),
  error: optional(isText),
  finishedMs: optional(isCount),
  expiresSeconds: optional(isCount),
  files: optional(listOf(isReportFile)),
  columns: optional(listOf(isText)),
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

export const jobKey = (id: number): string => `${id}/job.json`;
export const deliveriesKey = (id: number): string => `${id}/webhooks.json`;
export const partsPrefix = (id: number): string => `${id}/parts/`;
/** Returns the prefix of the files of a request's current attempt. */
export const attemptPartsPrefix = ({ id, attemptNonce }: Pick<ReportJob, 'id' | 'attemptNonce'>): string =>
  attemptNonce === undefined ? partsPrefix(id) : `${partsPrefix(id)}${attemptNonce}/`;
export const partKey = (job: Pick<ReportJob, 'id' | 'attemptNonce'>, name: string): string =>
  `${attemptPartsPrefix(job)}${name}`;
export const highestIdKey = 'highest-id';

/** Opens the requests of a store, each with its id as text. Error: `report_damaged`. */
export const openJobRecords = (objects: ObjectStore): Records<ReportJob> =>
  createRecords(objects, {
    isValid: isReportJob,
    codec: jobCodec,
    idOf: ({ id }) => String(id),
    ending: '/job.json',
    damaged: {
      code: 'report_damaged',
      hint: 'Restore it from a backup, or remove the file and ask its user to create the export again; the next start deletes the other files of the request.',
    },
  });

/** Lists the ids of the requests of a store, ascending. One may have no record. */
export async function listReportIds(objects: ObjectStore): Promise<number[]> {
  const names = await objects.folders('');
  return names
    .filter((name) => /^[1-9]\d{0,14}$/.test(name))
    .map(Number)
    .toSorted((a, b) => a - b);
}

/** Number of requests by state; `unreadable` counts damaged ones. */
export type ReportSummary = Readonly<Partial<Record<ReportJob['state'] | 'unreadable', number>>>;

/** Counts the requests by state, with the service running or stopped. */
export async function summarizeReports(reportsDir: string): Promise<ReportSummary> {
  const objects = openStore(reportsDir);
  const counts: Partial<Record<ReportJob['state'] | 'unreadable', number>> = {};
  const records = openJobRecords(objects);
  for (const id of await listReportIds(objects)) {
    const state = await records.get(String(id)).then(
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

const openDeliveries = (objects: ObjectStore): Records<{ readonly deliveries: readonly Delivery[] }> =>
  createRecords(objects, {
    isValid: shapeOf<{ readonly deliveries: readonly Delivery[] }>({ deliveries: Array.isArray }),
    ending: '/webhooks.json',
    damaged: { code: 'report_damaged', hint: 'Remove the file; each webhook is then notified once more.' },
  });

/** Reads the deliveries of a request; none if they are damaged, so that each webhook is notified again. */
export async function readDeliveries(objects: ObjectStore, id: number): Promise<readonly Delivery[]> {
  const found = await openDeliveries(objects).getSound(String(id));
  return (found?.deliveries ?? []).filter(isDelivery);
}

export async function writeDeliveries(
  objects: ObjectStore,
  id: number,
  deliveries: readonly Delivery[],
): Promise<void> {
  await openDeliveries(objects).put(String(id), { deliveries });
}

/** The delivery of a request's files to its destination. */
export interface ReportDelivery {
  readonly state: 'waiting' | 'delivered' | 'failed';
  readonly attempts: number;
  /** Time of the next attempt, Unix ms. */
  readonly nextMs: number;
  /** Files that were delivered, without the manifest. */
  readonly files: number;
  /** Time of the delivery, Unix ms. */
  readonly atMs?: number;
  readonly lastError?: string;
}

const openDelivery = (objects: ObjectStore): Records<ReportDelivery> =>
  createRecords(objects, {
    isValid: shapeOf<ReportDelivery>({
      state: oneOf(['waiting', 'delivered', 'failed']),
      attempts: isCount,
      nextMs: isCount,
      files: isCount,
      atMs: optional(isCount),
      lastError: optional(isText),
    }),
    ending: '/delivery.json',
    damaged: { code: 'report_damaged', hint: 'Remove the file; the export is then delivered again.' },
  });

/** Reads the delivery of a request's files; undefined before the first attempt, and if it is damaged. */
export async function readDelivery(objects: ObjectStore, id: number): Promise<ReportDelivery | undefined> {
  return await openDelivery(objects).getSound(String(id));
}

export async function writeDelivery(objects: ObjectStore, id: number, delivery: ReportDelivery): Promise<void> {
  await openDelivery(objects).put(String(id), delivery);
}

const openHighestId = (objects: ObjectStore): Records<{ readonly number: number }> =>
  createRecords(objects, {
    isValid: shapeOf<{ readonly number: number }>({ number: isCount }),
    codec: numberCodec,
    ending: '',
    damaged: {
      code: 'report_damaged',
      hint: 'Set its content to a number and a line break. The number must be at least the highest id of an export request (see the log lines "export request ended").',
    },
  });

/**
 * Reads the highest id that may have been deleted; in a shared store, the highest that was allocated. 0 for none.
 * Error: `report_damaged`.
 */
export async function readHighestId(objects: ObjectStore): Promise<number> {
  return (await openHighestId(objects).get(highestIdKey))?.number ?? 0;
}

/** Writes the highest id that was allocated, durably. Called before a request is deleted. */
export async function writeHighestId(objects: ObjectStore, id: number): Promise<void> {
  await openHighestId(objects).put(highestIdKey, { number: id });
}

/**
 * Raises the highest id by compare-and-swap, durably, and returns it. `to` gets the present one, 0 for none. Error:
 * `report_damaged`.
 */
export async function raiseHighestId(objects: ObjectStore, to: (highest: number) => number): Promise<number> {
  const raised = await openHighestId(objects).change(highestIdKey, (found) => {
    const [before, after] = [found?.number ?? 0, to(found?.number ?? 0)];
    return after > before ? { number: after } : found;
  });
  return raised?.number ?? 0;
}

/** Removes all objects of a request. The caller has made sure that its id is not used again. */
export async function removeReport(objects: ObjectStore, id: number): Promise<void> {
  // Its record is removed first: half deleted, and with the clock set back, it would be a success without files.
  await objects.remove([jobKey(id)]);
  await objects.remove(await objects.list(`${id}/`));
}
