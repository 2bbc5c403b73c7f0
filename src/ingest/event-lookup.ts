import type { IncomingMessage, ServerResponse } from 'node:http';
import { isRecord, membersOf } from '../runtime/files/checksummed-json.ts';
import type { AccessReader, App } from '../access/access.ts';
import { isUuid, makeRequestKeys, naturalKeyFields, readKeyTexts, type KeyMask } from '../datasets/event-id.ts';
import { createQuotaCounter } from '../runtime/async/rate-limits.ts';
import type { QueryEvent, EventQuery, EventReply, EventTarget } from '../stream/event-query-channel.ts';
import { readBody, type Fail } from './import-handler.ts';
import type { ImportResponses } from './responses.ts';
import { findApp } from './find-app.ts';
import { maxKeyLength } from './required-ids.ts';
import type { Refusal } from './refusal.ts';

interface EventLookupDependencies {
  readonly access: AccessReader;
  readonly importResponses: ImportResponses;
  readonly queryEvent: QueryEvent;
  readonly keyMask?: KeyMask | undefined;
  readonly fail: Fail;
}

/** Limit of an app's queries, per import process. */
export const eventQuota = { limit: 20, windowMs: 1000 } as const;
/** Limits of POST /v1/events: events of a request, bytes of its body, requests of an app per import process. */
export const maxListedQueries = 1000;
const maxListBytes = 512 * 1024;
export const eventsQuota = { limit: 2, windowMs: 1000 } as const;
/** Limits of concurrent queries, per import process: in total, of an account, of an app. */
const maxConcurrent = 32;
const maxConcurrentOfAccount = 12;
const maxConcurrentOfApp = 4;
/** Maximum time for all queries of a request, ms. */
const lookupTimeoutMs = 1700;
/** Parameters, of which a query has one. */
const parameterNames = ['eventId', 'key', ...naturalKeyFields.keys()];
const expectedNames = parameterNames.join(' or ');

const refuse = (detail: string): Refusal => ({ reason: 'rules', detail });

/** Parses the query of a request. A key may mean several events: the first known one counts. */
export function parseEventQuery(
  query: Readonly<Record<string, unknown>>,
  idApp: number,
  keyMask: KeyMask = 0,
): readonly EventQuery[] | Refusal {
  const other = Object.keys(query).find((name) => name !== 'idApp' && !parameterNames.includes(name));
  if (other !== undefined) return refuse(`unknown parameter ${other}; expected ${expectedNames}`);
  const [name, another] = parameterNames.filter((one) => query[one] !== undefined);
  if (name === undefined || another !== undefined) return refuse(`either ${expectedNames} must be given`);
  const value = query[name];
  if (name === 'eventId') {
    const id = typeof value === 'string' ? value.toLowerCase() : '';
    return isUuid(id) ? [{ idApp, eventId: id }] : refuse('eventId must be a UUID, as exports have it');
  }
  const makeId = naturalKeyFields.get(name);
  if (makeId !== undefined)
    return typeof value === 'string' && value !== ''
      ? [{ idApp, eventId: makeId(idApp, value) }]
      : refuse(`${name} must not be empty, and be given once`);
  const texts = typeof value === 'string' ? readKeyTexts(value) : [];
  const validTexts = texts.filter(({ length }) => length >= 1 && length <= maxKeyLength);
  if (validTexts.length === 0) return refuse(`key must have 1 to ${maxKeyLength} characters, and be given once`);
  return validTexts.flatMap((text) =>
    makeRequestKeys(idApp, text, keyMask).map((requestKey) => ({ idApp, requestKey })),
  );
}

const withoutApp = (query: EventQuery): EventTarget =>
  'eventId' in query ? { eventId: query.eventId } : { requestKey: query.requestKey };

/** Parses the body of POST /v1/events: an array of objects with one of the parameters each. */
export function parseEventsBody(
  body: Buffer,
  idApp: number,
  keyMask: KeyMask = 0,
): readonly (readonly EventTarget[])[] | Refusal {
  let value: unknown;
  try {
    value = JSON.parse(body.toString('utf8'));
  } catch {
    return { reason: 'json', detail: 'the body is not JSON' };
  }
  if (!Array.isArray(value) || value.length === 0 || value.length > maxListedQueries)
    return refuse(`the body must be an array of 1 to ${maxListedQueries} objects`);
  const queries: (readonly EventTarget[])[] = [];
  for (const [index, item] of value.entries()) {
    const query = isRecord(item)
      ? parseEventQuery(item, idApp, keyMask)
      : refuse(`must be an object with ${expectedNames}`);
    if ('reason' in query) return { ...query, detail: `/${index} ${query.detail}` };
    queries.push(query.map(withoutApp));
  }
  return queries;
}

const isNeverSeen = (reply: EventReply): boolean =>
  'answer' in reply && membersOf(reply.answer)['state'] === 'never_seen';

/** Asks one query after the other until the event of one was seen. */
async function queryEach(queryEvent: QueryEvent, queries: readonly EventQuery[]): Promise<EventReply> {
  const untilMs = performance.now() + lookupTimeoutMs;
  let reply: EventReply = { busy: 'no lookup was made' };
  for (const eventQuery of queries) {
    reply = await queryEvent(eventQuery, Math.max(1, untilMs - performance.now()));
    if (!isNeverSeen(reply)) return reply;
  }
  return reply;
}

type LookupSlot = Pick<App, 'idApp' | 'idAccount'>;

export type EventLookup = ReturnType<typeof createEventLookup>;

/** Creates GET /v1/event and POST /v1/events: import passes the lookup to a process that reads the lake, a limited number at a time. */
export function createEventLookup({ access, importResponses, queryEvent, keyMask, fail }: EventLookupDependencies) {
  const quota = createQuotaCounter([eventQuota]);
  const listQuota = createQuotaCounter([eventsQuota]);
  const slots = new Set<LookupSlot>();

  function hasCapacity({ idApp, idAccount }: LookupSlot): boolean {
    const ofAccount = [...slots].filter((other) => other.idAccount === idAccount);
    const ofApp = ofAccount.filter((other) => other.idApp === idApp);
    return slots.size < maxConcurrent && ofAccount.length < maxConcurrentOfAccount && ofApp.length < maxConcurrentOfApp;
  }

  /** Sends the reply to a query if there is capacity. */
  async function respond(
    { idApp, idAccount }: LookupSlot,
    response: ServerResponse,
    ask: () => Promise<EventReply>,
  ): Promise<void> {
    const slot = { idApp, idAccount };
    const end = (detail: string): void =>
      importResponses.refuse(response, { reason: 'busy', detail }, { idApp: String(idApp) });
    if (!hasCapacity(slot)) return end('too many concurrent lookups');
    slots.add(slot);
    try {
      const reply = await ask();
      if ('busy' in reply) end(reply.busy);
      else importResponses.send(response, JSON.stringify(reply.answer));
    } finally {
      slots.delete(slot);
    }
  }

  return {
    /** GET /v1/event. */
    async handle(
      query: Readonly<Record<string, unknown>>,
      request: IncomingMessage,
      response: ServerResponse,
    ): Promise<void> {
      const { idApp } = query;
      const end = (refusal: Refusal): void => importResponses.refuse(response, refusal, { idApp });
      const app = findApp(access, idApp, request);
      if ('reason' in app) return end(app);
      if (quota.take(String(app.idApp), performance.now()) !== undefined)
        return end({ reason: 'quota', detail: `an app may send ${eventQuota.limit} lookups per second` });
      const queries = parseEventQuery(query, app.idApp, keyMask);
      if ('reason' in queries) return end(queries);
      await respond(app, response, () => queryEach(queryEvent, queries));
    },
    /** POST /v1/events. */
    handleMany(query: Readonly<Record<string, unknown>>, request: IncomingMessage, response: ServerResponse): void {
      const { idApp } = query;
      const end = (refusal: Refusal): void => importResponses.refuse(response, refusal, { idApp });
      const app = findApp(access, idApp, request);
      if ('reason' in app) return end(app);
      const other = Object.keys(query).find((name) => name !== 'idApp');
      if (other !== undefined) return end(refuse(`unknown parameter ${other}; ids and keys are in the body`));
      if (listQuota.take(String(app.idApp), performance.now()) !== undefined)
        return end({ reason: 'quota', detail: `an app may send ${eventsQuota.limit} such requests per second` });
      readBody(request, maxListBytes, (body) => {
        // Answered already, because it came too slowly.
        if (request.socket.writableEnded) return;
        // A token that was revoked meanwhile is refused.
        const current = findApp(access, idApp, request);
        if ('reason' in current) return end(current);
        const queries = 'reason' in body ? body : parseEventsBody(body, app.idApp, keyMask);
        if ('reason' in queries)
          return end(
            queries.reason === 'size'
              ? { ...queries, detail: `the body is larger than ${maxListBytes} bytes` }
              : queries,
          );
        const ask = (): Promise<EventReply> => queryEvent({ idApp: app.idApp, queries }, lookupTimeoutMs);
        respond(app, response, ask).catch((error: unknown) => fail(error, { request, response, idApp }));
      });
    },
  };
}
