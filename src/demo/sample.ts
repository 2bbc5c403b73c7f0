import { maxBatchEvents } from '../client/batches.ts';
import { createExportArea, type ExportArguments } from '../client/export-area.ts';
import { createHttpClient, type HttpClient } from '../client/http-client.ts';
import { createImportArea, createRetryUntilAnswered, waitForLake, type BatchResponse } from '../client/import-area.ts';
import type { Profile } from '../client/profiles.ts';
import { AppError } from '../runtime/errors.ts';
import { generateGameSessions } from './game-sessions.ts';

/**
 * The sample of a first look: generated game sessions of two weeks with registrations, logins and payments, one rejected
 * request, an export and a paused schedule. All events belong to one app, which can be removed.
 */

const sampleEvents = 2000;
const sampleDays = 14;
const daySeconds = 86_400;
const giveUpAfterMs = 60_000;
const seed = 2015;

type Body = Readonly<Record<string, unknown>>;

/** The bodies of the sample by batch method. */
export function makeSample(untilSeconds: number): ReadonlyMap<string, readonly Body[]> {
  const customEvents = [...generateGameSessions({ seed, events: sampleEvents, until: untilSeconds, days: sampleDays })];
  const [registrations, logins, payments]: [Map<string, Body>, Map<string, Body>, Body[]] = [new Map(), new Map(), []];
  for (const { customEventName, customEventParams, ...event } of customEvents) {
    const { customUserId, eventTimestamp } = event;
    if (!registrations.has(customUserId)) registrations.set(customUserId, event);
    const day = `${customUserId} ${Math.floor(eventTimestamp / daySeconds)}`;
    if (!logins.has(day)) logins.set(day, event);
    const { price, currency, session } = customEventParams;
    if (customEventName === 'purchase')
      payments.push({ ...event, idTransaction: `sample-${session}-${payments.length}`, total: price, currency });
  }
  return new Map<string, readonly Body[]>([
    ['registrationBatch', [...registrations.values()]],
    ['loginBatch', [...logins.values()]],
    ['customRevenueBatch', payments],
    ['customEventBatch', customEvents.map((event) => ({ ...event }))],
  ]);
}

interface SampleOptions {
  /** With the app and the token of the sample; without a secret, no export and no schedule are created. */
  readonly profile: Required<Pick<Profile, 'importUrl' | 'exportUrl' | 'idApp' | 'token'>> &
    Pick<Profile, 'idUser' | 'secret'>;
  readonly nowMs: number;
  readonly signal: AbortSignal;
}

/** Imports the events, and waits until they are in the lake. Returns their number. Error: `service_refused`. */
async function importSample(http: HttpClient, { profile, nowMs, signal }: SampleOptions): Promise<number> {
  const area = createImportArea(http, { ...profile, url: profile.importUrl });
  const retrying = { signal, giveUpAfterMs, onWait: () => undefined };
  const retryUntilAnswered = createRetryUntilAnswered(retrying);
  let [count, lastKey] = [0, ''];
  for (const [method, bodies] of makeSample(Math.floor(nowMs / 1000)))
    for (let at = 0; at < bodies.length; at += maxBatchEvents) {
      const some = bodies.slice(at, at + maxBatchEvents);
      const key = `sample-${nowMs}-${method}-${at}`;
      const answer = await retryUntilAnswered<Exclude<BatchResponse, { readonly state: 'later' }>>(async () => {
        const posted = await area.postBatch(method, JSON.stringify(some), key);
        return posted.state === 'later' ? { why: posted.why, waitMs: posted.waitMs } : posted;
      });
      if (answer === undefined) throw new AppError('stopping', 'the sample is imported in part');
      if (answer.state === 'rejected')
        throw new AppError('service_refused', `the service rejected the sample: ${answer.validationErrors[0]?.reason}`);
      [count, lastKey] = [count + some.length, key];
    }
  // Rejected on purpose.
  await area.postBatch('customEventBatch', JSON.stringify([{ customUserId: 'player-1', age: 200 }]), `${lastKey}-bad`);
  await waitForLake(area, [lastKey], retrying);
  return count;
}

const day = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** Creates an export of the sample's custom events, and a paused daily one. */
async function exportSample(http: HttpClient, { profile, nowMs, signal }: SampleOptions): Promise<void> {
  const { idUser, secret, exportUrl: url, idApp } = profile;
  if (idUser === undefined || secret === undefined) return;
  const area = createExportArea(http, { url, idUser, secret }, { signal, onWait: () => undefined });
  const selectors = 'eventId,tsEvent,customUserId,eventName,params.name,params.value';
  const order: ExportArguments = [
    ['event', 'customEvents'],
    ['selectors', selectors],
    ['idApp', String(idApp)],
    ['timezone', 'UTC'],
  ];
  const period: ExportArguments = [
    ['dateFrom', day(nowMs - sampleDays * daySeconds * 1000)],
    ['dateTo', day(nowMs)],
  ];
  await area.call('/api/raw/v1/export/create.json', [...order, ...period], true);
  const { idSchedule } = await area.call('/api/schedule/v1/create.json', [...order, ['every', 'day']], true);
  await area.call('/api/schedule/v1/pause.json', [['idSchedule', String(idSchedule)]], true);
}

/** Loads the sample. Returns the number of its events. Errors: `service_refused`, `service_away`, `stopping`. */
export async function loadSample(options: SampleOptions): Promise<number> {
  const http = createHttpClient();
  try {
    const count = await importSample(http, options);
    await exportSample(http, options);
    return count;
  } finally {
    http.close();
  }
}
